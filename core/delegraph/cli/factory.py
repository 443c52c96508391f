"""`MODEL.py:factory` or `model.pt2` -> models, with their arguments for export."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from argparse import ArgumentError
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch.export import ExportedProgram

from delegraph.aot.export import DynamicShapes, ExampleArguments
from delegraph.errors import LoweringError, cause_of

__all__ = ["ModelToLower", "called", "field_by_method", "models_from"]


@dataclass(frozen=True, slots=True)
class ModelToLower:
    """A model and its example arguments; an ExportedProgram has none."""

    model: torch.nn.Module | ExportedProgram
    args: ExampleArguments = None
    kwargs: Mapping[str, object] | None = None
    dynamic_shapes: DynamicShapes = None


def models_from(spec: str) -> dict[str, ModelToLower]:
    """Read the `.pt2`, or call the function, that `spec` names; its models by method name.

    Raises `ArgumentError` if there is no such thing, `LoweringError` if it raises or gives something else.
    """
    source = _loaded(spec) if spec.endswith(".pt2") else called(spec)
    by_method = source if isinstance(source, Mapping) else {"forward": source}
    return {method: _model(entry, f"{spec}, method {method!r}") for method, entry in by_method.items()}


def field_by_method(models: Mapping[str, ModelToLower], field: str) -> Any:
    """One field of the models, where it is given; None if it nowhere is."""
    values = {method: getattr(model, field) for method, model in models.items()}
    return {method: value for method, value in values.items() if value is not None} or None


def _loaded(path: str) -> ExportedProgram:
    if not os.path.isfile(path):
        raise ArgumentError(None, f"there is no file {path}")
    from torch.ao.quantization.fx import _decomposed  # noqa: F401  # a quantized program calls its operators

    try:
        return torch.export.load(path)
    except Exception as cause:
        raise LoweringError(f"{path} is not what torch.export.save writes: {cause}") from cause


def called(spec: str) -> object:
    """The result of the function that `spec` names. Raises as `models_from`."""
    place, separator, name = spec.rpartition(":")
    if not separator:
        raise ArgumentError(None, f"{spec!r} names no function: write MODEL.py:factory")
    factory = getattr(_module(place, spec), name, None)
    if not callable(factory):
        raise ArgumentError(None, f"{place} has no function {name!r}")
    try:
        return factory()
    except Exception as cause:
        raise LoweringError(f"{spec} raised {cause_of(cause)}") from cause


def _module(place: str, spec: str) -> ModuleType:
    is_file = place.endswith(".py")
    if is_file and not os.path.isfile(place):
        raise ArgumentError(None, f"{spec}: there is no file {place}")
    # as `python MODEL.py` and `python -m MODEL` would find the model's imports
    sys.path.insert(0, os.path.dirname(os.path.abspath(place)) if is_file else os.getcwd())
    try:
        return _load(place) if is_file else importlib.import_module(place)
    except Exception as cause:
        raise LoweringError(f"importing {place} raised {cause_of(cause)}") from cause


def _load(path: str) -> ModuleType:
    name = os.path.splitext(os.path.basename(path))[0]
    module_spec = importlib.util.spec_from_file_location(name, path)
    assert module_spec is not None and module_spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module


def _model(source: object, where: str) -> ModelToLower:
    if isinstance(source, ExportedProgram):
        return ModelToLower(source)
    if not isinstance(source, tuple) or not 2 <= len(source) <= 4:
        raise LoweringError(
            f"{where}: expected (model, args), (model, args, kwargs), (model, args, kwargs, dynamic_shapes) or an"
            f" ExportedProgram, not {type(source).__name__}{f' of {len(source)}' if isinstance(source, tuple) else ''}"
        )
    model, args, *rest = source
    return ModelToLower(model, args, *rest)
