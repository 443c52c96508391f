"""A recorded call -> the same call as a delegate of a backend, run by its engine."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from tests.kernels.opinfo.backends import Backend
from tests.kernels.opinfo.entries import Declined, EntryResult, run_entry
from tests.kernels.opinfo.record import Call
from tests.kernels.oracle import Oracle, to_numpy, to_torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from delegraph_onnx.convert import CallConverter, ConvertedModel, PartitionConverter
from delegraph_onnx.graph_builder import GraphBuilder

__all__ = ["DelegateOracle", "run_entry_on_delegates"]


def run_entry_on_delegates(name: str, backend: Backend) -> EntryResult:
    """Run the entry `name` of the database, each call as a delegate; what the backend keeps whole is a call as well."""
    return run_entry(name, ("run",), partial(DelegateOracle, backend), backend.whole)


class DelegateOracle(Oracle):
    """Runs one call as a delegate of one node. Raises `Declined` where the backend leaves the node to kernels."""

    def __init__(self, backend: Backend, call: Call) -> None:
        self.backend = backend
        self.call = call

    def results(
        self, op: str, args: Sequence[Any], kwargs: dict[str, Any], expected: Sequence[Any], mode: str
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Each result beside that of `expected`: all of them, or the first alone if only that is taken."""
        if self.call.result is None:
            raise Declined("in place: lowering makes it functional")
        wanted = pytree.tree_leaves(list(expected))
        if not wanted:
            raise Declined("it gives no tensors")
        for used in dict.fromkeys([len(wanted), 1]):
            graph, inputs, outputs = _graph(self.call, wanted, used)
            reason = self.backend.table.support(outputs[0])
            if reason is None:
                builder = self.backend.builder()
                model = _model(builder, graph, inputs, outputs)
                arrays = [to_numpy(node.meta["val"]).copy("C") for node in inputs]
                results = self.backend.run(builder, model, arrays)
                return [(to_torch(a), w) for a, w in zip(results, wanted[:used], strict=True)]
        raise Declined(reason or "")


def _graph(call: Call, wanted: list[torch.Tensor], used: int) -> tuple[Graph, list[Node], list[Node]]:
    """The call, its tensors as inputs, and its first `used` results."""
    graph = Graph()
    inputs: list[Node] = []

    def placeholder(tensor: torch.Tensor) -> Node:
        node = graph.placeholder(f"input_{len(inputs)}")
        node.meta["val"] = tensor
        inputs.append(node)
        return node

    args, kwargs = pytree.tree_map_only(torch.Tensor, placeholder, (tuple(call.args), call.kwargs))
    node = graph.call_function(call.function, args, kwargs)
    node.meta["val"] = call.result
    outputs = [node]
    if isinstance(call.result, tuple | list):
        node.meta["val"] = pytree.tree_leaves(call.result)
        outputs = [graph.call_function(operator.getitem, (node, i)) for i in range(used)]
        for pick, value in zip(outputs, wanted, strict=False):
            pick.meta["val"] = value
    graph.output(tuple(outputs))
    return graph, inputs, outputs


def _model(builder: GraphBuilder, graph: Graph, inputs: list[Node], outputs: list[Node]) -> ConvertedModel:
    made = PartitionConverter(builder)
    made.values.update({node: made.input(node) for node in inputs})
    CallConverter.convert_calls(made, graph)  # a call by itself: nothing to fuse
    results = [made.output(node, index) for index, node in enumerate(outputs)]
    model = made.builder.model(made.inputs, results)
    return ConvertedModel(model, tuple(made.input_infos), tuple(made.output_infos))
