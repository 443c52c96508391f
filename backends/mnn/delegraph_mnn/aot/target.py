"""The capabilities of MNN, for converters to ONNX; and the table that the partitioner asks."""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import Node

from delegraph.aot.authoring import ConverterTable, operator_name, tensors_of
from delegraph_mnn.blob import BACKEND_ID
from delegraph_onnx.converters import TargetTable
from delegraph_onnx.target import ANY, QuantizedAs, Target

__all__ = ["MNN", "TABLE"]


def _declined(node: Node) -> str | None:
    return None


MNN: Final = Target(
    BACKEND_ID,
    producer="delegraph-mnn",
    opset=20,
    dtypes=frozenset({torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.bool}),
    lacks=dict.fromkeys(("Attention", "RotaryEmbedding", "SimplifiedLayerNormalization"), ANY),
    slow_subnormals=False,
    exact_max_pool=True,
    recurrent_nan=True,
    refuses_places=False,  # the runtime half looks at them
    negative_places=frozenset(),
    partial_gather=False,
    pad_modes=frozenset({"constant", "reflect", "edge"}),
    loops=False,
    external_weights=True,
    declines=_declined,
)

TABLE: Final[ConverterTable] = TargetTable(MNN)
