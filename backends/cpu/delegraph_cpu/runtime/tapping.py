"""A session whose runs tell a tracer the value of each node of the blob's graph, by the node's name.

    x ── Conv ── Relu ── y        outputs: y, and Conv's

onnxruntime fuses no node whose value is a result: these are the values of the blob's graph, not of what is made of it
at load.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from delegraph.interfaces import Buffer
from delegraph_cpu.blob import Blob
from delegraph_cpu.graphs.checks import checked_graph, operator_of_any
from delegraph_cpu.graphs.messages import Message
from delegraph_cpu.graphs.wire import encoded
from delegraph_cpu.runtime.open_session import TracedSession
from delegraph_cpu.runtime.ort_values import as_array

if TYPE_CHECKING:
    import onnxruntime

    from delegraph.interfaces import EventTracer

__all__ = ["TappedSession", "tapped", "values_of_nodes", "with_outputs"]


class TappedSession(TracedSession):
    """In the place of an `InferenceSession`, whose graph gives `results`, and behind them `values`: names of values,
    with the names of the nodes that give them."""

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        results: Sequence[str],
        values: Mapping[str, str],
        tracer: EventTracer,
    ) -> None:
        self.session = session
        self._behind = [name for name in values if name not in results]
        self._names = [*results, *self._behind]
        self._values = values
        self._tracer = tracer

    def io_binding(self) -> onnxruntime.IOBinding:
        """A binding for one run."""
        return self.session.io_binding()

    def run_with_iobinding(self, binding: onnxruntime.IOBinding, options: onnxruntime.RunOptions) -> None:
        """Run what is bound, and log the value of each node."""
        for name in self._behind:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding, options)
        outputs = dict(zip(self._names, binding.get_outputs(), strict=True))
        for name, node in self._values.items():
            self._tracer.log_value(node, as_array(outputs[name]), delegate_debug_id=node)


def tapped(blob: Blob, make: Callable[[bytes], onnxruntime.InferenceSession], tracer: EventTracer) -> TappedSession:
    """A session of the blob, whose runs tell `tracer` the values; `make` gives one of the bytes of a graph."""
    values = values_of_nodes(blob.graph)
    results = [info.name for info in blob.outputs] + [state.output for state in blob.states]
    return TappedSession(make(with_outputs(blob.graph, values)), results, values, tracer)


def values_of_nodes(graph: Buffer) -> dict[str, str]:
    """Of the values of a graph, bodies apart, the names, with the names of the nodes that give them."""
    nodes = checked_graph(graph, operator_of_any)["graph"].get("node", ())
    return {value: node.get("name") or node["output"][0] for node in nodes for value in node["output"] if value}


def with_outputs(graph: Buffer, names: Collection[str]) -> bytes:
    """The bytes of a graph that gives these values, too."""
    model = checked_graph(graph, operator_of_any)
    results = model["graph"]["output"]
    known = {result["name"] for result in results}
    more: list[Message] = [{"name": name} for name in names if name not in known]
    return b"".join(encoded(model | {"graph": model["graph"] | {"output": [*results, *more]}}))
