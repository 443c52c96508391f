"""An optimised graph with constants in its bodies (of If, Loop, Scan) -> the same, with large ones outside of them.

    If { c = folded constant; y = x + c }            c;  If { y = x + c }

Weights of a blob are those of its main graph. A constant that cannot be among them, because something else has its name
or the body gives it as it is, goes into the body itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from delegraph_onnx.bodies import graphs_within

__all__ = ["bring_out_constants", "external_content"]


def bring_out_constants(graph: onnx.GraphProto, file: NDArray[np.uint8]) -> None:
    """Edit `graph`, whose external tensors lie in `file`, so that only itself has external tensors."""
    _, *bodies = graphs = list(graphs_within(graph))
    names = Counter(name for each in graphs for name in _defined(each))
    for body in bodies:
        given = {value.name for value in body.output}
        kept = []
        for tensor in body.initializer:
            if not tensor.external_data:
                kept.append(tensor)
            elif names[tensor.name] == 1 and tensor.name not in given:
                graph.initializer.append(tensor)
            else:
                kept.append(onnx.numpy_helper.from_array(external_content(tensor, file), tensor.name))
        del body.initializer[:]
        body.initializer.extend(kept)


def external_content(tensor: onnx.TensorProto, file: NDArray[np.uint8]) -> NDArray[Any]:
    """What `tensor` has in `file`, where it lies."""
    place = {entry.key: entry.value for entry in tensor.external_data}
    offset, length = int(place["offset"]), int(place["length"])
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return file[offset : offset + length].view(dtype).reshape(tuple(tensor.dims))


def _defined(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    for node in graph.node:
        yield from node.output
