"""ONNX graph -> which of its inputs are changed where they lie: input's name -> the output that may be its memory.

    keys ──> ScatterND ──> new:0        {"keys": "new:0"}, unless another node, or a branch, reads `keys` too

Bound to one memory, such an input and output cost no copy of what is not changed: each of these kernels of onnxruntime
copies its input to its output first, unless both have one address (its `scatter_nd.cc`, `scatter.cc`,
`gqa_attention_base.h`). Whoever else read the input would read it before or after, as it happens.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

__all__ = ["changed_in_place"]

ATTENTION: Final = "GroupQueryAttention"

KERNELS: Final[dict[str, dict[int, int]]] = {
    "ScatterND": {0: 0},
    "ScatterElements": {0: 0},
    ATTENTION: {3: 1, 4: 2},
}
"""Operators that can write into an input: its position -> that of the output in the same memory."""


def changed_in_place(graph: ir.Graph) -> dict[str, str]:
    """Input -> output, for inputs of the graph that one node alone reads, which can write them in place."""
    found = {}
    for node in graph:
        for taken, given in KERNELS.get(node.op_type, {}).items():
            source = node.inputs[taken] if taken < len(node.inputs) else None
            if source is not None and given < len(node.outputs):
                alone = len(source.uses()) == 1 and not source.is_graph_output()
                if alone and node.outputs[given].is_graph_output():
                    found[source] = str(node.outputs[given].name)
                assert node.op_type != ATTENTION or source in found, f"{source}: what is not in place is undefined"
    return {str(value.name): found[value] for value in graph.inputs if value in found}
