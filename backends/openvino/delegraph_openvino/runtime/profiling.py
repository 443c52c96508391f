"""A run's profile -> events of a tracer: a span for each node that OpenVINO ran, by the graph's node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino

    from delegraph.interfaces import EventTracer

__all__ = ["NodeTimes", "log_nodes"]


class NodeTimes:
    """The nanoseconds of a compiled model's nodes in a run, as far as OpenVINO tells: it gives the average of all runs
    so far, in microseconds. Of these the first one is taken out, in which a node gets its kernel ready."""

    def __init__(self) -> None:
        self._runs = 0
        self._first: dict[str, float] = {}

    def read(self, request: openvino.InferRequest) -> Iterator[tuple[openvino.ProfilingInfo, int]]:
        """Behind a run of `request`: the nodes that ran, in order."""
        self._runs += 1
        for node in request.profiling_info:
            if node.status == node.Status.EXECUTED:
                average = node.real_time.total_seconds() * 1e9
                first, later = self._first.setdefault(node.node_name, average), self._runs - 1
                elapsed = round((average * self._runs - first) / later if later else average)
                if elapsed > 0:
                    yield node, elapsed


def log_nodes(request: openvino.InferRequest, tracer: EventTracer, times: NodeTimes) -> Callable[[], None]:
    """Before a run of `request`: the call that logs its nodes, once it ran: one span behind the other, as they ran.

    OpenVINO names what it runs after an operation of the graph, and lowering those after the edge program's nodes:
    `aten_relu_default/0`. A fused node has the name of the first; an event's metadata is the kernel's kind.
    """
    start = tracer.now()
    return lambda: _log(request, tracer, times, start)


def _log(request: openvino.InferRequest, tracer: EventTracer, times: NodeTimes, start: int) -> None:
    for node, elapsed in times.read(request):
        made_of, _, _ = node.node_name.partition("/")
        tracer.log_profiling(
            node.node_name, start, start + elapsed, delegate_debug_id=made_of, metadata=node.exec_type.encode()
        )
        start += elapsed
