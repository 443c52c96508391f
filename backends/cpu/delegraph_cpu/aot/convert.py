"""Edge program -> ONNX model: its inputs, weights, states and outputs, and its calls as `nodes.py` converts them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from delegraph.aot import ResolvedSignature, WriteBack, external_tag, layout_of
from delegraph.errors import UnsupportedOperator
from delegraph_cpu.aot.dtypes import COMPLEX, HALVES, ONNX_TYPES, onnx_type
from delegraph_cpu.aot.fusions import fusions
from delegraph_cpu.aot.graph_builder import GraphBuilder, dtype_of, inner_shape_of, outer_dtype_of
from delegraph_cpu.aot.nodes import convert_calls, support
from delegraph_cpu.blob import TensorInfo

__all__ = ["ConvertedModel", "ExternalWeight", "convert", "convert_graph", "support"]


@dataclass(frozen=True, slots=True)
class ExternalWeight:
    """A weight that is in the file `<tag>.ptd` under `key`, and an input of the ONNX model as `info` says."""

    info: TensorInfo
    key: str
    tag: str
    tensor: torch.Tensor


@dataclass(frozen=True, slots=True)
class State:
    """A buffer that the delegate changes: `input` is what it holds, `output` what it holds next, at first `tensor`."""

    buffer: str
    input: TensorInfo
    output: TensorInfo
    tensor: torch.Tensor


@dataclass(frozen=True, slots=True)
class ConvertedModel:
    """The ONNX model of a partition, with the inputs and outputs of its delegate call in order; `states` are inputs and
    outputs of the model behind these, `external` weights further inputs. `debug_handles` are, by the names of values,
    those of the calls whose conversion made them."""

    model: ir.Model
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    states: tuple[State, ...] = ()
    external: tuple[ExternalWeight, ...] = ()
    debug_handles: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def convert(program: ExportedProgram, *, int8_inputs: bool = False) -> ConvertedModel:
    """The ONNX model of `program`. Raises `UnsupportedOperator` for a node that `support` declines.

    `int8_inputs`: see `cpu_partitioner`.
    """
    builder = GraphBuilder(int8_inputs=int8_inputs)
    signature = ResolvedSignature.of(program)
    external = tuple(_add_weights(builder, signature))
    inputs = [_input(builder, node) for node in signature.inputs]
    held = [_input(builder, node) for node in signature.states]
    convert_calls(builder, program.graph, fusions(program.graph, signature))
    outputs = [_output(builder, node, index) for index, node in enumerate(signature.outputs)]
    results = {w.target: _new_state(builder, w, index) for index, w in enumerate(signature.write_backs)}
    states = [
        State(state.name, info, results[node][1], state.tensor)
        for (node, state), (_, info) in zip(signature.states.items(), held, strict=True)
    ]
    return ConvertedModel(
        builder.model(
            [value for value, _ in (*inputs, *held) if value is not None],
            [value for value, _ in (*outputs, *results.values())],
        ),
        tuple(info for _, info in inputs),
        tuple(info for _, info in outputs),
        tuple(states),
        external,
        {str(value.name): handles for value, handles in builder.debug_handles.items()},
    )


def convert_graph(graph: Graph, inputs: Sequence[Node], outputs: Sequence[Node]) -> ConvertedModel:
    """The ONNX model of a graph that has neither weights nor states. Raises as `convert`."""
    builder = GraphBuilder()
    given = [_input(builder, node) for node in inputs]
    convert_calls(builder, graph)
    results = [_output(builder, node, index) for index, node in enumerate(outputs)]
    model = builder.model([value for value, _ in given if value is not None], [value for value, _ in results])
    return ConvertedModel(model, tuple(info for _, info in given), tuple(info for _, info in results))


def _add_weights(builder: GraphBuilder, signature: ResolvedSignature) -> Iterator[ExternalWeight]:
    """Weights and constants become initialisers; those that are external inputs, which are returned."""
    for node, spec in signature.others.items():
        raise UnsupportedOperator(f"CpuBackend has no inputs of kind {spec.kind.name}", node=node.name)
    for node, held in signature.constants.items():
        tag = external_tag(node)
        if tag is None or not held.tensor.numel():
            builder.add_parameter(node, held.tensor)
        else:
            yield ExternalWeight(builder.add_external(node, layout_of(held.tensor)), held.name, tag, held.tensor)


def _input(builder: GraphBuilder, node: Node) -> tuple[ir.Value | None, TensorInfo]:
    """The graph's input for a user input; None for a constant argument, which nothing in the graph refers to."""
    if not isinstance(node.meta.get("val"), torch.Tensor | torch.SymInt | torch.SymBool | torch.SymFloat | int | float):
        return None, TensorInfo(node.name, "", (), scalar=True)
    info = _tensor_info(node, node.name)
    value = _declared(ir.Value(), info, node)
    inner = builder.cast(value, dtype_of(node)) if outer_dtype_of(node) in HALVES else value
    builder.values[node] = builder.record(inner, inner_shape_of(node))
    return value, info


def _output(builder: GraphBuilder, node: object, index: int) -> tuple[ir.Value, TensorInfo]:
    if not isinstance(node, Node) or not isinstance(node.meta["val"], torch.Tensor):
        raise UnsupportedOperator(
            f"output {index} of a CpuBackend partition is {node}, not a tensor; sizes are to be computed outside",
            node=getattr(node, "name", None),
        )
    info = _tensor_info(node, f"output_{index}")
    # An output of its own, never an input, a weight or another output, whose names are taken.
    inner, outer = builder.value(node), outer_dtype_of(node)
    result = builder.cast(inner, outer) if outer in HALVES else builder.op("Identity", inner)
    return _declared(result, info, node), info


def _new_state(builder: GraphBuilder, write_back: WriteBack, index: int) -> tuple[ir.Value, TensorInfo]:
    """The output for a state's new value: an operator's own result where it can be, so that it may write in place."""
    node = write_back.source
    info = _tensor_info(node, f"{_NEW}{index}")
    value = builder.value(node)
    if outer_dtype_of(node) in HALVES:
        value = builder.cast(value, outer_dtype_of(node))
    elif value.producer() is None or str(value.name).startswith(_NEW):
        value = builder.op("Identity", value)
    return _declared(value, info, node), info


_NEW = "new:"
"""How the names of states' new values begin; no node of a graph has such a name."""


def _declared(value: ir.Value, info: TensorInfo, node: Node) -> ir.Value:
    dtype = outer_dtype_of(node)
    value.name = info.name
    value.shape = ir.Shape((*info.shape, 2) if dtype in COMPLEX else info.shape)
    value.type = ir.TensorType(onnx_type(COMPLEX.get(dtype, dtype)))
    return value


def _tensor_info(node: Node, name: str) -> TensorInfo:
    dtype = outer_dtype_of(node)
    if dtype not in ONNX_TYPES and dtype not in COMPLEX:
        raise UnsupportedOperator(f"CpuBackend has no tensors of {dtype}", node=node.name)
    value = node.meta["val"]
    text = str(dtype).removeprefix("torch.")
    if not isinstance(value, torch.Tensor):
        return TensorInfo(name, text, (), scalar=True)
    return TensorInfo(name, text, tuple(dim if isinstance(dim, int) else str(dim) for dim in value.shape))
