"""Edge program -> ONNX model: its inputs, weights, states and outputs, and its calls, each by its converter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from delegraph.aot import HeldTensor, ResolvedSignature, external_tag, layout_of
from delegraph.aot.authoring import GraphConverter, symbolic_shape
from delegraph.errors import UnsupportedOperator
from delegraph.interfaces import BlobTensor
from delegraph_onnx.converters import TargetTable
from delegraph_onnx.dtypes import COMPLEX, HALVES, ONNX_TYPES
from delegraph_onnx.graph_builder import Converted, Fusion, GraphBuilder
from delegraph_onnx.node_facts import Dim, common_sizes, dtype_of, inner_shape_of, outer_dtype_of
from delegraph_onnx.target import Target

__all__ = ["CallConverter", "ConvertedModel", "ExternalWeight", "State", "convert"]


@dataclass(frozen=True, slots=True)
class ExternalWeight:
    """A weight that is in the file `<tag>.ptd` under `key`, and an input of the ONNX model as `info` says."""

    info: BlobTensor
    key: str
    tag: str
    tensor: torch.Tensor


@dataclass(frozen=True, slots=True)
class State:
    """A buffer that the delegate changes: `input` is its value before a run, `output` after it, `tensor` at first."""

    buffer: str
    input: BlobTensor
    output: BlobTensor
    tensor: torch.Tensor


@dataclass(frozen=True, slots=True)
class ConvertedModel:
    """The ONNX model of a partition, with the inputs and outputs of its delegate call in order; `states` are inputs and
    outputs of the model behind these, `external` weights further inputs. `debug_handles` maps the name of a value to
    the handles of the calls that were converted to it."""

    model: ir.Model
    inputs: tuple[BlobTensor, ...]
    outputs: tuple[BlobTensor, ...]
    states: tuple[State, ...] = ()
    external: tuple[ExternalWeight, ...] = ()
    debug_handles: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def convert(program: ExportedProgram, builder: GraphBuilder) -> ConvertedModel:
    """The ONNX model of `program` for the target of `builder`, which is empty so far.

    Raises `UnsupportedOperator` for a node that the target's table declines.
    """
    builder.ranges = program.range_constraints
    partition = PartitionConverter(builder)
    outputs = partition.convert_program(program)
    states = [partition.states[node] for node in partition.signature.states]
    copies = [replace(partition.externals[node], info=info) for node, info in builder.copies]
    return ConvertedModel(
        builder.model([*partition.inputs, *partition.held], [*outputs, *partition.new_values]),
        tuple(partition.input_infos),
        tuple(partition.output_infos),
        tuple(states),
        (*partition.externals.values(), *copies),
        {str(value.name): handles for value, handles in builder.debug_handles.items()},
    )


class CallConverter(GraphConverter[ir.Value]):
    """Adds the calls of a graph to the graph of `builder`: those of a fusion together, every other by itself."""

    def __init__(self, builder: GraphBuilder) -> None:
        super().__init__()
        self.table = TargetTable(builder.target)  # type: ignore[misc]  # a table for each target
        self.builder = builder
        self.values = builder.values
        self._fused: Mapping[Node, Fusion] = MappingProxyType({})
        self._replaced: frozenset[Node] = frozenset()

    def fuse(self, fused: Mapping[Node, Fusion]) -> None:
        """Let the calls of each fusion be converted together, in the place of its root."""
        self._fused = fused
        self._replaced = frozenset(node for fusion in fused.values() for node in fusion.replaced)

    def convert_calls(self, graph: Graph) -> None:
        self.builder.prepare(graph)
        super().convert_calls(graph)

    def convert_call(self, node: Node) -> None:
        if node in self._fused:
            with self.builder.on_behalf_of(node, *self._fused[node].replaced):
                self._fused[node].convert(self.builder)
        elif node not in self._replaced:
            with self.builder.on_behalf_of(node):
                super().convert_call(node)

    def call(self, node: Node) -> Converted:
        convert = self.table.required(node)
        value = self.builder.own(node)
        if value is None:
            value = convert(self.builder, node)
        if isinstance(value, ir.Value) and isinstance(node.meta["val"], torch.Tensor):
            self.builder.record(value, inner_shape_of(node))
        return value

    def element(self, node: Node) -> ir.Value:
        source, index = node.args
        integers = self.builder.integers.get(source)  # type: ignore[arg-type]
        if isinstance(integers, Sequence):
            self.builder.integers[node] = integers[index]  # type: ignore[index]
        return super().element(node)


class PartitionConverter(CallConverter):
    """Adds a partition to a graph: inputs, states and outputs in the order of the delegate's call."""

    def __init__(self, builder: GraphBuilder) -> None:
        super().__init__(builder)
        self.inputs: list[ir.Value] = []
        self.input_infos: list[BlobTensor] = []
        self.output_infos: list[BlobTensor] = []
        self.externals: dict[Node, ExternalWeight] = {}
        self.held: list[ir.Value] = []
        self.held_infos: dict[Node, BlobTensor] = {}
        self.new_values: list[ir.Value] = []
        self.states: dict[Node, State] = {}

    def convert_weights(self, signature: ResolvedSignature) -> None:
        """Weights and constants become initialisers; external ones become inputs."""
        for node, weight in signature.constants.items():
            tag = external_tag(node)
            if tag is not None and not self.builder.target.external_weights:
                self.external(node, weight, tag)
            if tag is None or not weight.tensor.numel():
                self.builder.add_parameter(node, weight.tensor)
            else:
                info = self.builder.add_external(node, layout_of(weight.tensor))
                self.externals[node] = ExternalWeight(info, weight.name, tag, weight.tensor)

    def input(self, node: Node) -> ir.Value | None:  # type: ignore[override]  # nothing refers to a constant argument
        """The graph's input for a user input; None for a constant argument."""
        if not isinstance(node.meta.get("val"), _TENSOR_OR_NUMBER):
            self.input_infos.append(BlobTensor(node.name, "", (), scalar=True))
            return None
        outer, inner, info = _input(self.builder, node)
        self.inputs.append(outer)
        self.input_infos.append(info)
        return inner

    def convert_calls(self, graph: Graph) -> None:
        self.builder.without_run = self._without_run()
        self.fuse(self.builder.fusions(graph, self.signature))
        super().convert_calls(graph)

    def _without_run(self) -> frozenset[str]:
        """The sizes for which 0 means that the backend runs nothing: all outputs of the delegate are empty then."""
        input_sizes = {str(size) for node in self.signature.inputs for size in _sizes(node)}
        sizes = [_sizes(node) for node in self.signature.outputs]
        known = all(str(size) in input_sizes or isinstance(size, int) for shape in sizes for size in shape)
        if self.signature.states or not sizes or not known:
            return frozenset()
        return frozenset(map(str, common_sizes(sizes)))

    def state(self, node: Node, buffer: HeldTensor) -> ir.Value:
        if not self.builder.target.states:
            return super().state(node, buffer)
        outer, inner, self.held_infos[node] = _input(self.builder, node)
        self.held.append(outer)
        return inner

    def output(self, node: Node, index: int) -> ir.Value:
        """An output of its own, never an input, a weight or another output, whose names are taken."""
        info = _tensor_info(self.builder.target, node, f"output_{index}")
        self.output_infos.append(info)
        inner, outer = self.builder.value(node), outer_dtype_of(node)
        with self.builder.on_behalf_of(node):
            result = self.builder.cast(inner, outer) if outer in HALVES else self.builder.op("Identity", inner)
        return _declared(result, info, node)

    def write_back(self, state: Node, buffer: HeldTensor, source: Node) -> None:
        """An output for the new value: an operator's own result where it can be, so that it may write in place."""
        info = _tensor_info(self.builder.target, source, f"{_NEW}{len(self.states)}")
        value = self.builder.value(source)
        if outer_dtype_of(source) in HALVES:
            value = self.builder.cast(value, outer_dtype_of(source))
        elif value.producer() is None or str(value.name).startswith(_NEW):
            value = self.builder.op("Identity", value)
        self.new_values.append(_declared(value, info, source))
        self.states[state] = State(buffer.name, self.held_infos[state], info, buffer.tensor)


def _sizes(node: object) -> tuple[Dim, ...]:
    return (
        inner_shape_of(node) if isinstance(node, Node) and isinstance(node.meta.get("val"), _TENSOR_OR_NUMBER) else ()
    )


_TENSOR_OR_NUMBER: Final = (torch.Tensor, torch.SymInt, torch.SymBool, torch.SymFloat, int, float)

_NEW: Final = "new:"
"""The prefix of the names of states' new values; no node of a graph has such a name."""


def _input(builder: GraphBuilder, node: Node) -> tuple[ir.Value, ir.Value, BlobTensor]:
    """An input of the graph, its value within the graph, and its name, dtype and shape."""
    info = _tensor_info(builder.target, node, node.name)
    value = _declared(ir.Value(), info, node)
    inner = builder.cast(value, dtype_of(node)) if outer_dtype_of(node) in HALVES else value
    return value, builder.record(inner, inner_shape_of(node)), info


def _declared(value: ir.Value, info: BlobTensor, node: Node) -> ir.Value:
    dtype = outer_dtype_of(node)
    value.name = info.name
    value.shape = ir.Shape((*info.shape, 2) if dtype in COMPLEX else info.shape)
    value.type = ir.TensorType(ONNX_TYPES[COMPLEX.get(dtype, dtype)])
    return value


def _tensor_info(target: Target, node: Node, name: str) -> BlobTensor:
    dtype = outer_dtype_of(node)
    if dtype not in ONNX_TYPES and dtype not in COMPLEX:
        raise UnsupportedOperator(f"{target.name} has no tensors of {dtype}", node=node.name)
    value = node.meta["val"]
    text = str(dtype).removeprefix("torch.")
    if not isinstance(value, torch.Tensor):
        return BlobTensor(name, text, (), scalar=True)
    return BlobTensor(name, text, symbolic_shape(node))
