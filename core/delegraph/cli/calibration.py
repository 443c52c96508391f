"""`calib.npz` or `DATA.py:function` -> batches that `quantize` takes."""

from __future__ import annotations

from argparse import ArgumentError
from collections.abc import Mapping
from inspect import signature
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram

from delegraph.cli.arrays import arrays_in
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
    return _batches(source, arrays_in(source, "--data"), _inputs(next(iter(models.values()))))


def _inputs(model: ModelToLower) -> dict[str, object]:
    """The example inputs of a model, by name."""
    if isinstance(model.model, ExportedProgram):
        args, kwargs = model.model.example_inputs or ((), {})
        names = model.model.graph_signature.user_inputs
        return dict(zip((str(name) for name in names), [*args, *kwargs.values()], strict=False))
    bound = signature(model.model.forward).bind(*(model.args or ()), **(model.kwargs or {}))
    return dict(bound.arguments)


def _batches(source: str, arrays: Mapping[str, NDArray[Any]], inputs: Mapping[str, Any]) -> list[dict[str, object]]:
    by_name = arrays if set(arrays) == set(inputs) else dict(zip(inputs, arrays.values(), strict=False))
    if len(arrays) != len(inputs):
        raise ArgumentError(
            None, f"--data {source}: the model takes {', '.join(inputs)}, the file has {', '.join(arrays)}"
        )
    numbers: dict[str, object] = {}
    parts: dict[str, list[torch.Tensor]] = {}
    for name, example in inputs.items():
        tensor = _tensor(f"--data {source}: {name}", by_name[name], example)
        if tensor.dim():
            parts[name] = [part for part in tensor.split(len(example)) if len(part) == len(example)]
        else:  # the same in every batch
            numbers[name] = tensor if isinstance(example, torch.Tensor) else tensor.item()
    count = min(map(len, parts.values()), default=1)
    return [numbers | {name: own[number] for name, own in parts.items()} for number in range(count)]


def _tensor(where: str, array: NDArray[Any], example: object) -> torch.Tensor:
    """All samples of an input, in this machine's order of bytes; where the example is a number, a number."""
    if not isinstance(example, torch.Tensor | int | float):
        raise ArgumentError(
            None, f"{where} is a {type(example).__name__}, which a .npz does not hold: write DATA.py:function"
        )
    shape = np.shape(example)
    if bool(array.ndim) != bool(shape):
        raise ArgumentError(None, f"{where} has {array.ndim} dims, the model's example has {len(shape)}")
    if array.ndim and len(array) < shape[0]:
        raise ArgumentError(None, f"{where} has fewer samples than the {shape[0]} of the model's example")
    try:
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
    except TypeError as error:
        raise ArgumentError(None, f"{where} is of NumPy's {array.dtype}, of which torch has no tensors") from error
