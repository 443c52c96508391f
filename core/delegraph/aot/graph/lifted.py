"""Fresh program and its model -> the program without second copies of the model's parameters and buffers, and without
states that nothing reads.

torch.export lifts a tensor that the model reaches through a plain object as a constant, though it is a registered
buffer: the cache of a wrapper, say. Such a constant is told by its memory, and the buffer takes its place; a constant
that is a part of a buffer becomes a view of it, so that what is written into either is seen in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node

from delegraph.aot.graph.bodies import attributes
from delegraph.aot.graph.edit import with_graph
from delegraph.aot.graph.stored_tensor import memory_of

__all__ = ["with_own_tensors", "without_unread"]


def with_own_tensors(program: ExportedProgram, model: torch.nn.Module) -> ExportedProgram:
    """`program`, which `model` has just become, with its buffers and parameters where it has them as constants too.

    The graph is edited in place; a program without such a constant is given back as it is.
    """
    placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    inputs = program.graph_signature.input_specs
    registered = _Registered()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        registered.add(tensor, placeholders, [spec.arg.name for spec in inputs if spec.target == name])
    if not _writes(program):
        registered.views.clear()
    replaced = []
    for spec in inputs:
        constant = program.constants.get(str(spec.target))
        if spec.kind is InputKind.CONSTANT_TENSOR and isinstance(constant, torch.Tensor):
            make = registered.stand_in(constant)
            if make is not None:
                replaced.append((placeholders[spec.arg.name], str(spec.target), make))
    return _without(program, replaced) if replaced else program


def without_unread(program: ExportedProgram) -> ExportedProgram:
    """`program` without the constants that it only overwrites: what `forward` assigns in each call, and nothing reads.

    The graph is edited in place.
    """
    placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    unread = {
        str(spec.target): placeholders[spec.arg.name]
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.CONSTANT_TENSOR and _is_unread(placeholders[spec.arg.name])
    }
    if not unread:
        return program
    for constant in unread.values():
        for user in list(constant.users):
            program.graph.erase_node(user)
        program.graph.erase_node(constant)
    program.graph.eliminate_dead_code()
    new = with_graph(program, attributes(program.graph_module), program.graph)
    for target in unread:
        del new.constants[target]
    return new


def _is_unread(constant: Node) -> bool:
    """Whether all that happens to it is that values are copied into it."""
    copies = [user for user in constant.users if user.target is torch.ops.aten.copy_.default]
    return len(copies) == len(constant.users) > 0 and not any(
        copied.users or copied.args[1] is constant for copied in copies
    )


def _without(program: ExportedProgram, replaced: list[tuple[Node, str, Callable[[], Node]]]) -> ExportedProgram:
    graph = program.graph
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        for constant, _, make in replaced:
            constant.replace_all_uses_with(make())
    for constant, _, _ in replaced:
        graph.erase_node(constant)
    new = with_graph(program, attributes(program.graph_module), graph)
    for _, target, _ in replaced:
        del new.constants[target]
    return new


@dataclass(frozen=True, slots=True)
class _Registered:
    """The placeholders of parameters and buffers, by the memory of their tensors."""

    whole: dict[object, Node] = field(default_factory=dict)
    views: dict[object, Node] = field(default_factory=dict)

    def add(self, tensor: torch.Tensor, placeholders: dict[str, Node], names: list[str]) -> None:
        if len(names) != 1 or memory_of(tensor) is None:
            return
        node = placeholders[names[0]]
        self.whole.setdefault(memory_of(tensor), node)
        if not isinstance(tensor, torch.nn.Parameter) and tensor.is_contiguous() and not tensor.storage_offset():
            self.views.setdefault(_storage(tensor), node)

    def stand_in(self, constant: torch.Tensor) -> Callable[[], Node] | None:
        """Makes the node in whose memory `constant` lies; None where that is no registered tensor's."""
        memory = memory_of(constant)
        if memory is None:
            return None
        if (node := self.whole.get(memory)) is not None:
            return lambda: node
        if (base := self.views.get(_storage(constant))) is not None:
            return lambda: _view(base, constant)
        return None


def _storage(tensor: torch.Tensor) -> object:
    return tensor.untyped_storage().data_ptr(), tensor.device, tensor.dtype


def _view(base: Node, constant: torch.Tensor) -> Node:
    place = (list(constant.shape), list(constant.stride()), constant.storage_offset())
    view = base.graph.call_function(torch.ops.aten.as_strided.default, (base, *place))
    view.meta["val"] = base.meta["val"].as_strided(*place)
    return view


def _writes(program: ExportedProgram) -> bool:
    """Whether anything is written, in bodies of control flow too: then a part of a buffer is no constant."""
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, GraphModule)]
    calls = (node for graph in graphs for node in graph.nodes if node.op == "call_function")
    return any(getattr(getattr(node.target, "_schema", None), "is_mutable", False) for node in calls)
