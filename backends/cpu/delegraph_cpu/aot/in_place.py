"""ONNX graph -> which of its inputs are changed where they lie: input's name -> the output that may be its memory.

    keys ──> ScatterND ──> new:0        {"keys": "new:0"}, unless another node, or a branch, reads `keys` too

Bound to one memory, such an input and output cost no copy of what is not changed: each of these kernels of onnxruntime
copies its input to its output first, unless both have one address (its `scatter_nd.cc`, `scatter.cc`,
`gqa_attention_base.h`). Whoever else read the input would read it before or after, as it happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import onnx

from delegraph_onnx.bodies import graphs_within

__all__ = ["changed_in_place"]

ATTENTION: Final = "GroupQueryAttention"

KERNELS: Final[dict[str, dict[int, int]]] = {
    "ScatterND": {0: 0},
    "ScatterElements": {0: 0},
    ATTENTION: {3: 1, 4: 2},
}
"""Operators that can write into an input: its position -> that of the output in the same memory."""


def changed_in_place(graph: onnx.GraphProto) -> dict[str, str]:
    """Input -> output, for inputs of the graph that one node alone reads, which can write them in place."""
    reads = Counter(_read(graph))
    outputs = {value.name for value in graph.output}
    found = {}
    for node in graph.node:
        for taken, given in KERNELS.get(node.op_type, {}).items():
            if taken < len(node.input) and given < len(node.output):
                source, result = node.input[taken], node.output[given]
                if reads[source] == 1 and result in outputs:
                    found[source] = result
                assert node.op_type != ATTENTION or source in found, f"{source}: what is not in place is undefined"
    return {value.name: found[value.name] for value in graph.input if value.name in found}


def _read(graph: onnx.GraphProto) -> Iterator[str]:
    """What nodes read, those of branches included, and what is an output as it is: each as often as that happens."""
    for each in graphs_within(graph):
        produced = {name for node in each.node for name in node.output}
        yield from (value.name for value in each.output if value.name not in produced)
        for node in each.node:
            yield from node.input
