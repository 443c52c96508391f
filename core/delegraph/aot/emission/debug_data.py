"""Emitted methods with compiled delegates -> the debug data that their program carries (`program/debug_data.py`)."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot.delegation.lowered_module import LoweredBackendModule, is_delegate_call
from delegraph.aot.delegation.report import Asked, leftover_nodes, reasons_for_leaving
from delegraph.aot.emission.method import EmittedMethod
from delegraph.aot.graph.bodies import all_nodes, graph_modules
from delegraph.aot.graph.debug_handles import DEBUG_HANDLE
from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.graph.signature import HeldTensor, ResolvedSignature
from delegraph.aot.graph.source_location import short_location
from delegraph.aot.module_stack import module_path
from delegraph.aot.passes.constant_folding import MADE_OF
from delegraph.program.debug_data import DebugData, SourceNode, SourceWeight

__all__ = ["debug_data"]


def debug_data(method: EmittedMethod, delegates: Sequence[LoweredBackendModule], seen: Asked) -> DebugData:
    """The origins of the instructions of `method`, and of what is in its `delegates`, which are in the plan's order;
    `seen` are the answers of the partitioners that were asked."""
    nodes: dict[int, SourceNode] = {}
    weights: dict[str, SourceWeight] = {}
    programs = [_Source.of(method.program), *(_Source.of(lowered.original_module) for lowered in delegates)]
    for source in programs:
        weights.update(source.weights())
        for handle, node in source.nodes():
            nodes[handle] = _merged(nodes[handle], node) if handle in nodes else node
    places = method.node_values
    constants = ((places.get((node, 0)), names) for node, names in programs[0].names.items())
    return DebugData(
        nodes=nodes,
        instructions={index: _handles(said) for index, said in method.builder.debug_handles().items()},
        delegates=tuple(_steps(lowered.debug_handle_map) for lowered in delegates),
        constants={index: names for index, names in constants if index is not None},
        weights=weights,
        left=dict(_left(method.program, seen)),
    )


def _left(program: ExportedProgram, seen: Asked) -> Iterator[tuple[int, str]]:
    """The reason why a call was left, for each of its handles."""
    for _, module in graph_modules(program.graph_module):
        for node in leftover_nodes(module):
            told = "; ".join(f"{who}: {why}" for who, why in reasons_for_leaving(node, seen).items())
            yield from ((handle, told) for handle in _handles(node.meta.get(DEBUG_HANDLE)) if told)


def _steps(
    debug_handle_map: Mapping[int, Sequence[int]] | Mapping[str, Sequence[int]],
) -> dict[int | str, tuple[int, ...]]:
    return {step: _handles(handles) for step, handles in debug_handle_map.items()}


@dataclass(frozen=True, slots=True)
class _Source:
    """A method's program, or a delegate's; the tensors that it brings with it, and the qualified names of these, by
    node: of a folded one those of what it was folded from."""

    program: ExportedProgram
    stored: Mapping[Node, HeldTensor]
    names: Mapping[Node, tuple[str, ...]]

    @classmethod
    def of(cls, program: ExportedProgram) -> _Source:
        signature = ResolvedSignature.of(program)
        stored = {**signature.constants, **signature.states}
        names = {node: (tensor.name,) for node, tensor in stored.items()}
        folded = (node for node in program.graph.find_nodes(op="get_attr") if MADE_OF in node.meta)
        return cls(program, stored, names | {node: node.meta[MADE_OF] for node in folded})

    def weights(self) -> Iterator[tuple[str, SourceWeight]]:
        """The tensors by their qualified names."""
        for stored in self.stored.values():
            shape = tuple(int(dim) for dim in stored.tensor.shape)
            yield stored.name, SourceWeight(str(stored.tensor.dtype).removeprefix("torch."), shape)

    def nodes(self) -> Iterator[tuple[int, SourceNode]]:
        """The calls that have a handle, as they come. What is computed from weights alone, as a dequantized one, counts
        as these where it is read."""
        weights = dict(self.names)
        for node in all_nodes(self.program.graph_module):
            if node.op != "call_function" or node.target is operator.getitem or is_delegate_call(node):
                continue
            sources = node.all_input_nodes
            read = _each_once(name for source in sources for name in weights.get(source, ()))
            if read and all(source in weights for source in sources):
                weights[node] = read
            origin = SourceNode(
                (operator_name(node),), module_path(node), short_location(node), read, tuple(_results(node))
            )
            for handle in _handles(node.meta.get(DEBUG_HANDLE)):
                yield handle, origin


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
    if isinstance(said, int):
        return (said,)
    return tuple(handle for handle in said if isinstance(handle, int)) if isinstance(said, Iterable) else ()
