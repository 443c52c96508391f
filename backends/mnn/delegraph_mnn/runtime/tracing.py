"""A session of MNN's -> what a tracer is told of its runs: the time of each operation, or the value of each node.

MNN names an operation after a value of the ONNX graph, `Add_7_0`, and those that it adds after that one:
`Add_7_0__matmul_converted`, `Softmax_15_0_raster_0`. One that is fused with those behind it has the name of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from delegraph.interfaces import Buffer
from delegraph.lazy_dataclass import dataclass
from delegraph_cpu.blob import Blob
from delegraph_cpu.graphs.checks import checked_graph, operator_of_any
from delegraph_cpu.graphs.messages import Message
from delegraph_cpu.graphs.wire import encoded
from delegraph_cpu.runtime.tapping import values_of_nodes
from delegraph_mnn.engine import mnn

if TYPE_CHECKING:
    from delegraph.interfaces import EventTracer

__all__ = ["Place", "Run", "node_of", "run_of", "with_negated"]

Run: TypeAlias = "Callable[[Any, Any], int]"
"""(interpreter, session) -> MNN's code, 0 where it did not fail (`MNN/ErrorCode.hpp`)."""


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor of a session, and a tensor in the host's memory that is copied there or from there: the session's may
    have its channels in groups of four. NumPy's view of the host's does not keep that alive."""

    tensor: Any
    host: Any
    array: NDArray[Any]

    @classmethod
    def of(cls, tensor: Any, shape: tuple[int, ...]) -> Place:
        """A place for a tensor that has this shape."""
        is_float = tensor.getDataType() == mnn().Halide_Type_Float
        kind, dtype = (mnn().Halide_Type_Float, np.float32) if is_float else (mnn().Halide_Type_Int, np.int32)
        host = mnn().Tensor(shape, kind, np.zeros(shape, dtype), mnn().Tensor_DimensionType_Caffe)
        return cls(tensor, host, host.getNumpyData().reshape(shape))


def with_negated(graph: Buffer) -> bytes:
    """The bytes of a graph that gives the value of each node, too, with its sign changed: a result as it is MNN would
    fuse with what is behind it, and give in another shape."""
    model = checked_graph(graph, operator_of_any)
    inner = model["graph"]
    values = _values(graph)
    added: list[Message] = [{"input": [value], "output": [value + _NEGATED], "op_type": "Neg"} for value in values]
    results: list[Message] = [{"name": value + _NEGATED} for value in values]
    changed = inner | {"node": [*inner["node"], *added], "output": [*inner["output"], *results]}
    return b"".join(encoded(model | {"graph": changed}))


_NEGATED: Final = ":negated"


def _values(graph: Buffer) -> dict[str, str]:
    """Of the values of a graph the names, with those of their nodes; weights that are dequantized are no values."""
    nodes = checked_graph(graph, operator_of_any)["graph"].get("node", ())
    weights = {node["output"][0] for node in nodes if node["op_type"] == "DequantizeLinear"}
    return {value: node for value, node in values_of_nodes(graph).items() if value not in weights}


def run_of(blob: Blob, tracer: EventTracer | None, values: bool) -> Run:
    """The function that runs a session of the blob's graph, and tells `tracer` the value of each node, or its time."""
    if tracer is None:
        return run_plain
    if values:
        return partial(run_logged, tracer, _values(blob.graph))
    from delegraph_cpu.runtime.describing import node_names

    return partial(run_timed, tracer, node_names(blob))


def run_plain(interpreter: Any, session: Any) -> int:
    """Run once."""
    code: int = interpreter.runSession(session)
    return code


def run_timed(tracer: EventTracer, names: Collection[str], interpreter: Any, session: Any) -> int:
    """Run once, and log each operation by the one of `names` that it is for."""
    began = 0

    def begin(_tensors: object, _operation: object) -> bool:
        nonlocal began
        began = tracer.now()
        return True

    def end(_tensors: object, operation: Any) -> bool:
        ended = tracer.now()
        node = node_of(operation.getName(), names)
        tracer.log_profiling(operation.getType(), began, ended, delegate_debug_id=node)
        return True

    code: int = interpreter.runSessionWithCallBackInfo(session, begin, end)
    return code


def node_of(operation: str, names: Collection[str]) -> str:
    """The one of `names` that MNN named an operation after; its own name if there is none."""
    parts = operation.split("_")
    beginnings = ("_".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in beginnings if name in names), operation)


def run_logged(tracer: EventTracer, values: Mapping[str, str], interpreter: Any, session: Any) -> int:
    """Run once, and log each of `values`, which the graph gives negated, by the name of its node."""
    code = run_plain(interpreter, session)
    there = interpreter.getSessionOutputAll(session)
    for name, node in values.items():
        tensor = there[name + _NEGATED]
        place = Place.of(tensor, tuple(map(int, tensor.getShape())))
        if tensor.copyToHostTensor(place.host):
            tracer.log_value(node, -place.array, delegate_debug_id=node)
    return code
