"""An optimised graph's float32 weights that are halves -> weights of half the size, widened when a session is made.

A delegate computes in float32 what a program has in float16 or bfloat16; its weights need not lie in the file so.

    w float32 ── MatMul          w.half bfloat16 ── Cast ── w ── MatMul
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram

from delegraph_cpu.aot.beside import lay_beside, lies_beside
from delegraph_onnx.dtypes import HALVES
from delegraph_onnx.graph_builder import initializer
from delegraph_onnx.ir_values import content_of

__all__ = ["has_halves", "store_halves"]


def has_halves(program: ExportedProgram) -> bool:
    """Whether a weight of `program` is a half."""
    held = (*program.state_dict.values(), *program.constants.values())
    return any(isinstance(tensor, torch.Tensor) and tensor.dtype in HALVES for tensor in held)


def store_halves(graph: ir.Graph) -> None:
    """Store those of the weights beside `graph` that a half can hold exactly in that half. onnxruntime widens them
    once, when it folds constants at load."""
    casts = []
    for name, value in list(graph.initializers.items()):
        half = _as_half(content_of(value)) if lies_beside(value) else None
        if half is not None:
            del graph.initializers[name]
            stored = graph.initializers[f"{name}.half"] = initializer(f"{name}.half", half)
            lay_beside(stored)
            cast = ir.node("Cast", [stored], {"to": ir.DataType.FLOAT}, name=f"{name}.widened")
            cast.outputs[0].name = name
            value.replace_all_uses_with(cast.outputs[0])
            casts.append(cast)
    if casts:
        graph.insert_before(graph[0], casts)


def _as_half(array: NDArray[Any]) -> NDArray[Any] | None:
    """`array` as bfloat16 or float16 if that loses nothing, and it is float32."""
    if array.dtype != np.float32:
        return None
    if not (array.view(np.uint32) & 0xFFFF).any():
        return array.astype(ml_dtypes.bfloat16)
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    return half if np.array_equal(half, array) else None
