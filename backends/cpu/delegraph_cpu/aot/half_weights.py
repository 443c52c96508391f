"""An optimised graph's float32 weights that are halves -> weights of half the size, widened when a session is made.

A delegate computes in float32 what a program has in float16 or bfloat16; its weights need not lie in the file so.

    w float32 ── MatMul          w.half bfloat16 ── Cast ── w ── MatMul
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram

from delegraph_onnx.dtypes import HALVES

__all__ = ["has_halves", "store_halves"]


def has_halves(program: ExportedProgram) -> bool:
    """Whether a weight of `program` is a half."""
    held = (*program.state_dict.values(), *program.constants.values())
    return any(isinstance(tensor, torch.Tensor) and tensor.dtype in HALVES for tensor in held)


def store_halves(model: onnx.ModelProto, weights: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Edit the graph of `model`, and return its weights, with those that a half can hold exactly in that half.
    onnxruntime widens them once, when it folds constants at load."""
    halved = {name: half for name, array in weights.items() if (half := _as_half(array)) is not None}
    rest = dict(weights)
    casts = []
    for tensor in model.graph.initializer:
        name, half = tensor.name, halved.get(tensor.name)
        if half is not None:
            rest[f"{name}.half"] = half
            del rest[name]
            tensor.name = f"{name}.half"
            tensor.data_type = onnx.helper.np_dtype_to_tensor_dtype(half.dtype)
            for entry in tensor.external_data:
                entry.value = str(half.nbytes) if entry.key == "length" else entry.value
            casts.append(onnx.helper.make_node("Cast", [tensor.name], [name], f"{name}.widened", to=_FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return rest


_FLOAT = onnx.TensorProto.FLOAT


def _as_half(array: NDArray[Any]) -> NDArray[Any] | None:
    """`array` as bfloat16 or float16 if that loses nothing, and it is float32."""
    if array.dtype != np.float32:
        return None
    if not (array.view(np.uint32) & 0xFFFF).any():
        return array.astype(ml_dtypes.bfloat16)
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    return half if np.array_equal(half, array) else None
