"""The graph that is made for onnxruntime, and where onnxruntime differs from ONNX."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir
import torch

from delegraph_cpu.blob import BACKEND_ID
from delegraph_cpu.codes import Codes
from delegraph_onnx.converters import TargetTable
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.target import QuantizedAs, Target

__all__ = ["CONTRIB", "ONNXRUNTIME", "TABLE", "CpuGraph"]

CONTRIB: Final = "com.microsoft"
"""The domain of onnxruntime's own operators."""

ONNXRUNTIME: Final = Target(
    BACKEND_ID,
    producer="delegraph-cpu",
    quantized_as=QuantizedAs.KERNELS,
    domain_of_16_bits=CONTRIB,
    lacks=dict.fromkeys(  # wrong from 2^31 on (1.31)
        ("Max", "Min", "Clip", "Sign", "ReduceMax", "ReduceMin"), frozenset({torch.int64})
    ),
    external_weights=True,
    states=True,
)

TABLE: Final = TargetTable(ONNXRUNTIME)
"""The rows that the partitioner asks."""


class CpuGraph(GraphBuilder):
    """`int8_inputs` and `int8_products` are the partitioner's options. `codes` maps the names of int8 weights to the
    codes that they are stored as."""

    def __init__(self, *, int8_inputs: bool = False, int8_products: bool = False) -> None:
        super().__init__(ONNXRUNTIME)
        self.int8_inputs = int8_inputs or int8_products
        self.int8_products = int8_products
        self.codes: dict[str, Codes] = {}

    def attention_to_long_rows(
        self, query: ir.Value, key: ir.Value, value: ir.Value, heads: int, scale: float
    ) -> ir.Value:
        """MultiHeadAttention, which never stores all scores at once: 8 heads of 64 on 4096 rows, two threads, take 0.54
        s and 0.18 GB, and in ONNX's operator 0.72 and 1.2 (onnxruntime 1.31)."""
        return self.op("MultiHeadAttention", query, key, value, domain=CONTRIB, num_heads=heads, scale=scale)
