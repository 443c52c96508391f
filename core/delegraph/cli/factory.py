"""`MODEL.py:factory` or `model.pt2` -> models, with their arguments for export."""

from __future__ import annotations

import os
from argparse import ArgumentError
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram

from delegraph.aot.export import DynamicShapes, ExampleArguments
from delegraph.cli.source_files import function_from
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
    factory = function_from(spec)
    try:
        return factory()
    except Exception as cause:
        raise LoweringError(f"{spec} raised {cause_of(cause)}") from cause


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
