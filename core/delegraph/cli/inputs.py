"""Inputs of `delegraph run`, made up or read from files, and its outputs, written to files."""

from __future__ import annotations

import os
from argparse import ArgumentError
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegraph.cli.arrays import arrays_in
from delegraph.devtools.made_inputs import made_inputs
from delegraph.program.dtypes import is_extended, numpy_dtype, storable
from delegraph.program.schema import Tensor, TensorShapeDynamism, Value
from delegraph.runtime.method_meta import MethodMeta

__all__ = ["make_inputs", "save_outputs", "save_outputs_apart"]


def make_inputs(meta: MethodMeta, source: str, seed: int, shapes: Sequence[str]) -> list[object]:
    """The inputs of a method: "random", "zeros", or from the files that `source` names.

    `shapes` are "SIZES" or "INDEX=SIZES" for dynamic inputs. Whatever is no tensor has the value that it was exported
    with. Raises `argparse.ArgumentError`.
    """
    values = [meta.input_value(index) for index in range(meta.num_inputs())]
    if source not in ("random", "zeros"):
        if shapes:
            raise ArgumentError(None, "--shape goes with made inputs; those from files have their own sizes")
        return _read(source, values)
    return made_inputs(meta, seed if source == "random" else None, _sizes(values, shapes))


def save_outputs(path: str, outputs: Sequence[object]) -> None:
    """Write `output_0`, … to an .npz; an output that is None is left out.

    Dtypes that NumPy's format does not know, bfloat16 and float8, are written as float32.
    """
    np.savez(path, allow_pickle=False, **_named_arrays(outputs))


def save_outputs_apart(folder: str, outputs: Sequence[object]) -> None:
    """The same, each into an .npy of its own; `folder` is made where there is none."""
    os.makedirs(folder, exist_ok=True)
    for name, array in _named_arrays(outputs).items():
        np.save(os.path.join(folder, f"{name}.npy"), array, allow_pickle=False)


def _named_arrays(outputs: Sequence[object]) -> dict[str, NDArray[Any]]:
    arrays = {f"output_{index}": np.asarray(value) for index, value in enumerate(outputs) if value is not None}
    return {name: storable(array) for name, array in arrays.items()}


# ---- made inputs -----------------------------------------------------------------------------------


def _sizes(values: Sequence[Value], shapes: Sequence[str]) -> dict[int, tuple[int, ...]]:
    """The sizes of every tensor input. Raises `ArgumentError` for sizes that an input cannot have."""
    bounds = {index: value.sizes for index, value in enumerate(values) if isinstance(value, Tensor)}
    dynamic = [index for index in bounds if _is_dynamic(values[index])]
    chosen: dict[int, tuple[int, ...]] = {}
    for text in shapes:
        where, _, sizes = text.rpartition("=")
        numbers = _numbers(sizes, text)
        targets = _numbers(where, text) if where else tuple(dynamic)
        for index in targets:
            if index not in dynamic:
                raise ArgumentError(None, f"--shape {text}: input {index} is not dynamic; dynamic are {dynamic}")
            if len(numbers) != len(bounds[index]) or any(n > m for n, m in zip(numbers, bounds[index], strict=True)):
                raise ArgumentError(None, f"--shape {text}: input {index} takes sizes up to {list(bounds[index])}")
            chosen[index] = numbers
    if shapes and not dynamic:
        raise ArgumentError(None, f"--shape {shapes[0]}: the method has no dynamic input")
    return bounds | chosen


def _is_dynamic(value: Value) -> bool:
    return isinstance(value, Tensor) and value.shape_dynamism is not TensorShapeDynamism.STATIC


def _numbers(text: str, whole: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise ArgumentError(None, f"--shape {whole}: write sizes as 1,16, or for one input as 0=1,16")
    return tuple(map(int, parts))


# ---- inputs from files -----------------------------------------------------------------------------


def _read(source: str, values: Sequence[Value]) -> list[object]:
    file_arrays = [array for path in source.split(",") for array in arrays_in(path, "--inputs").values()]
    tensors = [index for index, value in enumerate(values) if isinstance(value, Tensor)]
    if len(file_arrays) != len(tensors):
        raise ArgumentError(
            None, f"--inputs {source}: the method takes {len(tensors)} tensors, the files have {len(file_arrays)}"
        )
    arrays = dict(zip(tensors, file_arrays, strict=True))
    return [
        _as_taken(value, arrays[index]) if isinstance(value, Tensor) else getattr(value, "value", None)
        for index, value in enumerate(values)
    ]


def _as_taken(tensor: Tensor, array: NDArray[Any]) -> NDArray[Any]:
    """An array of a dtype that NumPy's format does not know is made of float32, as `storable` wrote it."""
    extended = is_extended(tensor.scalar_type) and array.dtype == np.float32
    return array.astype(numpy_dtype(tensor.scalar_type)) if extended else array
