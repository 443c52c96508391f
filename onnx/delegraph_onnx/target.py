"""The capabilities of an engine that reads ONNX, as data: converters ask them, and never which engine it is.

SOMEONES = Target("SomeonesEngine", lacks={"Attention": ANY, "Max": frozenset({torch.int64})})
CapabilityBasedPartitioner(SOMEONES.name, TargetTable(SOMEONES).support, …)
convert(program, GraphBuilder(SOMEONES))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import torch
from torch.fx import Node

from delegraph_onnx.dtypes import COMPLEX, ONNX_TYPES

__all__ = ["ANY", "QuantizedAs", "Target"]

ANY: Final = frozenset(ONNX_TYPES)
"""Every element type, for `Target.lacks`."""


_BY_PLACES: Final = frozenset({"Gather", "GatherND", "ScatterND", "GatherElements", "ScatterElements"})


class QuantizedAs(Enum):
    """How an engine gets to know that values are on a grid of integers."""

    ARITHMETIC = "arithmetic"
    """Not at all: they are divided, rounded, limited and cast by operators on floats."""
    QDQ = "q/dq"
    """QuantizeLinear and DequantizeLinear, where the program has them."""
    KERNELS = "kernels"
    """Integer operators of the engine, which its `GraphBuilder` writes (`own`); where none applies, as Q/DQ."""


@dataclass(frozen=True, slots=True)
class Target:
    """An engine as converters see it.

    name: the backend's id, which stands in reasons and errors; producer: the distribution that models say made them.
    opset, ir_version: of the ONNX that it is given; what needs a later opset (`Attention`, `RotaryEmbedding`) raises
        that of its graph alone.
    dtypes: the element types of tensors that it takes; complex ones are pairs of floats. float16 and bfloat16 are
        float32 within a delegate, and rounded where they leave it.
    lacks: ONNX operator -> the element types in which the engine has no kernel for it, or one that gives other results
        than torch; such an operator is then written by others.
    quantized_as: how quantized values are told; domain_of_16_bits: where QuantizeLinear and DequantizeLinear have 16
        bits (ONNX's own have them from opset 21 on).
    unsigned: the dtypes of integers with a sign that values of the program have, and the engine's do not.
    dynamic: whether sizes may be known in the run alone; where not, nodes with such sizes are declined.
    linear_by_rows: whether a linear layer of more than two dims is Gemm of its rows, and not MatMul and Add.
    attention_from: the number of rows from which Attention is faster than its parts; causal ones are whole anyway.
    slow_subnormals: whether products with subnormal numbers take longer than others.
    exact_max_pool: whether the values of MaxPool are NaN where a window has one, and -inf where it has nothing else.
    recurrent_nan: whether LSTM and GRU give NaN wherever one of the input or of a state reaches.
    refuses_places: whether Gather, Scatter and their like refuse places that a tensor has not; negative_places: those
        of them that count places below 0 from the end, as ONNX says. partial_gather: whether GatherElements takes fewer
        elements than there are along other dims than its own.
    pad_modes: those of ONNX's Pad. loops: whether it has Loop and Scan.
    external_weights: whether weights of a `.ptd` may be inputs of the graph; states: whether mutable buffers may.
    declines: a further reason against a node, which depends on more than its types.
    """

    name: str
    producer: str = "delegraph-onnx"
    opset: int = 20
    ir_version: int = 10
    dtypes: frozenset[torch.dtype] = frozenset(ONNX_TYPES) | frozenset(COMPLEX)
    lacks: Mapping[str, frozenset[torch.dtype]] = field(default_factory=dict)
    quantized_as: QuantizedAs = QuantizedAs.QDQ
    domain_of_16_bits: str = ""
    unsigned: frozenset[torch.dtype] = frozenset({torch.int8})
    dynamic: bool = True
    linear_by_rows: bool = False
    attention_from: int = 0
    slow_subnormals: bool = True
    exact_max_pool: bool = False
    recurrent_nan: bool = False
    refuses_places: bool = True
    negative_places: frozenset[str] = _BY_PLACES
    partial_gather: bool = True
    pad_modes: frozenset[str] = frozenset({"constant", "reflect", "edge", "wrap"})
    loops: bool = True
    external_weights: bool = False
    states: bool = False
    declines: Callable[[Node], str | None] = lambda node: None

    def has(self, op_type: str, dtype: torch.dtype) -> bool:
        """Whether the engine computes the ONNX operator `op_type` of `dtype` as torch does."""
        return dtype not in self.lacks.get(op_type, ())
