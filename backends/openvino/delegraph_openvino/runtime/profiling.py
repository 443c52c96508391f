"""A run's profile -> events of a tracer: a span for each node that OpenVINO ran, by the graph's node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino

    from delegraph.interfaces import EventTracer

__all__ = ["log_nodes"]


def log_nodes(request: openvino.InferRequest, tracer: EventTracer) -> Callable[[], None]:
    """Before a run of `request`: the call that logs its nodes, once it ran: one span behind the other, as they ran.

    OpenVINO names what it runs after an operation of the graph, and lowering those after the edge program's nodes:
    `aten_relu_default/0`. A fused node has the name of the first; an event's metadata is the kernel's kind.
    """
    start = tracer.now()
    return lambda: _log(request, tracer, start)


def _log(request: openvino.InferRequest, tracer: EventTracer, start: int) -> None:
    for node in request.profiling_info:
        elapsed = round(node.real_time.total_seconds() * 1e9)
        if node.status == node.Status.EXECUTED and elapsed:
            made_of, _, _ = node.node_name.partition("/")
            tracer.log_profiling(
                node.node_name, start, start + elapsed, delegate_debug_id=made_of, metadata=node.exec_type.encode()
            )
            start += elapsed
