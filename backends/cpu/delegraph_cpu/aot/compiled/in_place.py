"""ONNX graph -> the inputs that a node changes in place: input's name -> the output that may share its memory.

    keys ──> ScatterND ──> new:0        {"keys": "new:0"}, unless another node, or a branch, reads `keys` too

In shared memory such an input and output need no copy of the unchanged part: each of these kernels of onnxruntime
copies its input to its output first, unless both have one address (its `scatter_nd.cc`, `scatter.cc`,
`gqa_attention_base.h`). Another reader of the input would read it before or after the change, as it happens.
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
    """Input -> output, for inputs of the graph that only one node reads, which can write into them."""
    changed = {}
    for node in graph:
        for taken, written in KERNELS.get(node.op_type, {}).items():
            source = node.inputs[taken] if taken < len(node.inputs) else None
            if source is not None and written < len(node.outputs):
                alone = len(source.uses()) == 1 and not source.is_graph_output()
                if alone and node.outputs[written].is_graph_output():
                    changed[source] = str(node.outputs[written].name)
                assert node.op_type != ATTENTION or source in changed, f"{source}: undefined unless in place"
    return {str(value.name): changed[value] for value in graph.inputs if value in changed}
