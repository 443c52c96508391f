"""Casts: to the same dtype they move nothing; and weights of bytes that are cast to floats and scaled behind the
product are the same as dequantized with a scale of 1.

linear(x, cast(w int8)) * scales            as gpt-fast has it, and ExecuTorch's Llama with `-qmode int8`
"""

from __future__ import annotations

import numpy as np
from torch.fx import Node

from delegraph_cpu.aot.quantized.moves import moved
from delegraph_cpu.aot.quantized.table import OnIntegers, integers_for_targets
from delegraph_onnx.converters.table import aten
from delegraph_onnx.copies import CASTS
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.integers import Integers
from delegraph_onnx.node_facts import outer_dtype_of


@integers_for_targets(CASTS)
def cast(g: GraphBuilder, node: Node, self: Node, *_: object) -> OnIntegers:
    """Of weights the bytes, where linear layers alone read them; whatever else does takes floats, folded at load."""
    if outer_dtype_of(self) == outer_dtype_of(node):
        return moved(g, node)
    content = g.parameter(self)
    if content is None or content.dtype != np.int8 or not all(_is_weight_of(user, node) for user in node.users):
        return None
    one, zero = np.array(1, np.float32), np.array(0, np.int8)
    return Integers(g.value(self), one, zero, content=content, low=-128, high=127)


def _is_weight_of(user: Node, node: Node) -> bool:
    return user.target == aten("linear") and user.args[1] is node and user.args[0] is not node
