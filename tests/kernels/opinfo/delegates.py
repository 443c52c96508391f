"""A recorded call -> the same call as a delegate of the CPU backend, run by onnxruntime."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import onnxruntime
import torch
from tests.kernels.opinfo.entries import Declined, EntryResult, run_entry
from tests.kernels.opinfo.record import Call
from tests.kernels.opinfo.results import FOLDER
from tests.kernels.oracle import Oracle, to_numpy, to_torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from delegraph_cpu.aot.convert import FusingGraph
from delegraph_cpu.aot.graph import TABLE
from delegraph_cpu.runtime.ort_values import as_array, ort_value
from delegraph_cpu.sessions import create_session
from delegraph_onnx.convert import ConvertedModel, PartitionConverter
from delegraph_onnx.nodes import CallConverter

__all__ = ["DELEGATES", "DelegateOracle", "run_entry_on_delegates"]

DELEGATES = FOLDER.with_name("opinfo-cpu")
"""Where a run leaves its results, one file an entry."""


def run_entry_on_delegates(name: str) -> EntryResult:
    """Run the entry `name` of the database, each call as a delegate; what the backend keeps whole is a call as well."""
    return run_entry(name, ("run",), DelegateOracle, frozenset(TABLE.kept_whole))


class DelegateOracle(Oracle):
    """Runs one call as a delegate of one node. Raises `Declined` where the backend leaves the node to kernels."""

    def __init__(self, call: Call) -> None:
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
            reason = TABLE.support(outputs[0])
            if reason is None:
                model = _model(graph, inputs, outputs)
                return [(to_torch(a), w) for a, w in zip(_run(model, inputs), wanted[:used], strict=True)]
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


def _model(graph: Graph, inputs: list[Node], outputs: list[Node]) -> ConvertedModel:
    made = PartitionConverter(FusingGraph())
    made.values.update({node: made.input(node) for node in inputs})
    CallConverter.convert_calls(made, graph)  # a call by itself: nothing to fuse
    results = [made.output(node, index) for index, node in enumerate(outputs)]
    model = made.builder.model(made.inputs, results)
    return ConvertedModel(model, tuple(made.input_infos), tuple(made.output_infos))


def _run(model: ConvertedModel, inputs: list[Node]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = create_session(ir.to_proto(model.model).SerializeToString(), options)
    binding = session.io_binding()
    arrays = [to_numpy(node.meta["val"]).copy("C") for node in inputs]
    for info, array in zip(model.inputs, arrays, strict=True):
        binding.bind_ortvalue_input(info.name, ort_value(array))
    for info in model.outputs:
        binding.bind_output(info.name)
    session.run_with_iobinding(binding)
    results = zip(binding.get_outputs(), model.outputs, strict=True)
    return [as_array(value, info.dtype).copy() for value, info in results]
