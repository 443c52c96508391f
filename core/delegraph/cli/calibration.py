"""`calib.npz` or `DATA.py:function` -> batches that `quantize` takes."""

from __future__ import annotations

from argparse import ArgumentError
from collections.abc import Mapping
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram

from delegraph.cli.factory import ModelToLower, called

__all__ = ["batches_from"]


def batches_from(source: str | None, models: Mapping[str, ModelToLower]) -> Any:
    """The batches, for `models` by method name. Raises `ArgumentError` for a file that does not fit."""
    if source is None:
        return None
    if not source.endswith(".npz"):
        return called(source)
    if len(models) > 1:
        raise ArgumentError(None, f"--data {source}: there are several methods; write DATA.py:function for {{name: …}}")
    return _batches(source, _arrays(source), _inputs(next(iter(models.values()))))


def _inputs(model: ModelToLower) -> dict[str, Any]:
    """The example inputs of a model, by name."""
    if isinstance(model.model, ExportedProgram):
        args, kwargs = model.model.example_inputs or ((), {})
        names = model.model.graph_signature.user_inputs
        return dict(zip((str(name) for name in names), [*args, *kwargs.values()], strict=False))
    bound = signature(model.model.forward).bind(*(model.args or ()), **(model.kwargs or {}))
    return dict(bound.arguments)


def _batches(source: str, arrays: Mapping[str, Any], inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    by_name = arrays if set(arrays) == set(inputs) else dict(zip(inputs, arrays.values(), strict=False))
    if len(arrays) != len(inputs):
        raise ArgumentError(
            None, f"--data {source}: the model takes {', '.join(inputs)}, the file has {', '.join(arrays)}"
        )
    size = next(iter(inputs.values())).shape[0]
    count = min(len(array) for array in by_name.values()) // size
    if not count:
        raise ArgumentError(None, f"--data {source}: fewer samples than the {size} of the model's example")
    tensors = {name: torch.from_numpy(array) for name, array in by_name.items()}
    return [{name: one[i * size : (i + 1) * size] for name, one in tensors.items()} for i in range(count)]


def _arrays(path: str) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as loaded:
            return dict(loaded)
    except OSError as error:
        raise ArgumentError(None, f"--data {path}: {error.strerror or error}") from error
    except (ValueError, EOFError, AttributeError) as error:
        raise ArgumentError(None, f"--data {path} is not an .npz: {error}") from error
