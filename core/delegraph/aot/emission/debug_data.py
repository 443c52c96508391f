"""Emitted methods with compiled delegates -> the debug data that their program carries (`program/debug_data.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot.delegation.lowered_module import LoweredBackendModule, is_delegate_call
from delegraph.aot.emission.method import EmittedMethod
from delegraph.aot.graph.bodies import all_nodes
from delegraph.aot.graph.debug_handles import DEBUG_HANDLE
from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.graph.signature import HeldTensor, ResolvedSignature
from delegraph.aot.graph.source_location import module_path, short_location
from delegraph.aot.passes.constant_folding import MADE_OF
from delegraph.program.debug_data import DebugData, SourceNode, SourceWeight

__all__ = ["debug_data"]


def debug_data(method: EmittedMethod, delegates: Sequence[LoweredBackendModule]) -> DebugData:
    """The origins of the instructions of `method`, and of what is in its `delegates`, which are in the plan's order."""
    nodes: dict[int, SourceNode] = {}
    programs = [method.program, *(lowered.original_module for lowered in delegates)]
    for program in programs:
        for handle, node in _sources(program):
            nodes[handle] = _merged(nodes[handle], node) if handle in nodes else node
    return DebugData(
        nodes=nodes,
        instructions={index: _handles(said) for index, said in method.builder.debug_handles().items()},
        delegates=tuple(_steps(lowered.debug_handle_map) for lowered in delegates),
        constants=_constants(method),
        weights={name: weight for program in programs for name, weight in _weights(program)},
    )


def _steps(
    debug_handle_map: Mapping[int, Sequence[int]] | Mapping[str, Sequence[int]],
) -> dict[int | str, tuple[int, ...]]:
    return {step: _handles(handles) for step, handles in debug_handle_map.items()}


def _sources(program: ExportedProgram) -> Iterator[tuple[int, SourceNode]]:
    """The calls that have a handle, as they come. What is computed from weights alone, as a dequantized one, counts as
    these where it is read."""
    weights = _weight_names(program)
    for node in all_nodes(program.graph_module):
        name = operator_name(node) if node.op == "call_function" and not is_delegate_call(node) else "getitem"
        if name != "getitem":
            read = _each_once(name for source in node.all_input_nodes for name in weights.get(source, ()))
            if read and all(source in weights for source in node.all_input_nodes):
                weights[node] = read
            for handle in _handles(node.meta.get(DEBUG_HANDLE)):
                yield handle, SourceNode((name,), module_path(node), short_location(node), read, tuple(_results(node)))


def _merged(known: SourceNode, other: SourceNode) -> SourceNode:
    """Two nodes with one handle as one: they are made of one call."""
    return SourceNode(
        _each_once((*known.operators, *other.operators)),
        known.module or other.module,
        known.line or other.line,
        _each_once((*known.weights, *other.weights)),
        other.results,
    )


def _results(node: Node) -> Iterator[str]:
    """`float32 [1, 16]` for each tensor that the call gives."""
    value = node.meta.get("val")
    for tensor in value if isinstance(value, tuple | list) else (value,):
        if isinstance(tensor, torch.Tensor):
            yield f"{str(tensor.dtype).removeprefix('torch.')} [{', '.join(map(str, tensor.shape))}]"


def _each_once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _handles(said: object) -> tuple[int, ...]:
    """A debug handle, or several, or none."""
    several = said if isinstance(said, Iterable) else (said,)
    return tuple(handle for handle in several if isinstance(handle, int))


def _weights(program: ExportedProgram) -> Iterator[tuple[str, SourceWeight]]:
    """The tensors that the program brings with it."""
    for stored in _held(program).values():
        shape = tuple(int(dim) for dim in stored.tensor.shape)
        yield stored.name, SourceWeight(str(stored.tensor.dtype).removeprefix("torch."), shape)


def _held(program: ExportedProgram) -> dict[Node, HeldTensor]:
    signature = ResolvedSignature.of(program)
    return {**signature.constants, **signature.states}


def _weight_names(program: ExportedProgram) -> dict[Node, tuple[str, ...]]:
    """The qualified names of the tensors that the program brings with it, by node; of a folded one, its sources'."""
    names = {node: (stored.name,) for node, stored in _held(program).items()}
    return names | {
        node: node.meta[MADE_OF] for node in program.graph.find_nodes(op="get_attr") if MADE_OF in node.meta
    }


def _constants(method: EmittedMethod) -> dict[int, tuple[str, ...]]:
    places = method.node_values
    named = ((places.get((node, 0)), names) for node, names in _weight_names(method.program).items())
    return {index: names for index, names in named if index is not None}
