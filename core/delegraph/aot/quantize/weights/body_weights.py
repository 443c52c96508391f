"""Weights that the bodies of control flow are given -> attributes of the bodies, as a model's own graph has them; and
back.

    cond(p, yes, no, [x, w])                  cond(p, yes, no, [x])
        yes(x, w): linear(x, w)     <──>          yes(x): linear(x, self.w)

So what is done to a graph and its weights can be done to each body by itself. From then on a body's calls have names
that no other graph has, and stand in the modules that their operator stands in and that have what they read.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final, TypeGuard

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import Argument, Target

from delegraph.aot.graph.bodies import bodies, referenced
from delegraph.aot.quantize.annotations import is_written
from delegraph.aot.quantize.weights.names import add_constant, owner_of, parameter_name, register

__all__ = ["CONTROL_FLOW", "weights_into_bodies", "weights_out_of_bodies"]

CONTROL_FLOW: Final[Mapping[Target, int]] = {
    torch.ops.higher_order.cond: 3,
    torch.ops.higher_order.map_impl: 2,
    torch.ops.higher_order.scan: 3,
    torch.ops.higher_order.while_loop: 3,
}
"""Which argument has the operands: what all bodies of a call are given, in each round the same, behind all else."""


def weights_into_bodies(module: GraphModule, path: str = "") -> None:
    """Edit `module`, which stands at `path`: its bodies have the parameters, and the buffers that no run writes."""
    _part_bodies(module)
    for call in _calls(module.graph):
        entered = _entered(module, call)
        _give(module, call, list(entered.values()))
        for name, body in entered.items():
            place = f"{path}.{name}" if path else name
            _name_calls(body, place.replace(".", "_"), call)
            weights_into_bodies(body, place)
    module.graph.eliminate_dead_code()
    module.recompile()


def weights_out_of_bodies(module: GraphModule) -> None:
    """Edit `module`: the tensors that its bodies have become operands of their calls."""
    for call in _calls(module.graph):
        entered = list(_entered(module, call).values())
        for body in entered:
            weights_out_of_bodies(body)  # first: what its own bodies had are its tensors then
        _take(module, call, entered)
    module.recompile()


def _calls(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "call_function" and node.target in CONTROL_FLOW]


def _entered(module: GraphModule, call: Node) -> dict[str, GraphModule]:
    """The bodies of a call, by name."""
    by_name = bodies(module)
    targets = [str(arg.target) for arg in call.args if isinstance(arg, Node) and arg.op == "get_attr"]
    return {target: by_name[target] for target in targets if target in by_name}


def _operands(call: Node) -> Sequence[Argument]:
    """Values, and numbers."""
    operands = (*call.args, ())[CONTROL_FLOW[call.target]]
    assert isinstance(operands, list | tuple)
    return operands


def _set_operands(call: Node, operands: Sequence[Argument]) -> None:
    """As torch wants them: a list for a list, a tuple for a tuple."""
    place = CONTROL_FLOW[call.target]
    kind = list if isinstance(_operands(call), list) else tuple
    call.args = (*call.args[:place], kind(operands), *call.args[place + 1 :])


def _behind_placeholders(graph: Graph) -> Node:
    """The first node behind all placeholders, which are moved to the front: torchao rounds them where they stand."""
    first: Node = next(node for node in graph.nodes if node.op != "placeholder")
    for placeholder in graph.find_nodes(op="placeholder"):
        first.prepend(placeholder)
    return first


# ---- into bodies ------------------------------------------------------------------------------------


def _part_bodies(module: GraphModule) -> None:
    """Let each call have bodies of its own, for what each is given."""
    seen: set[str] = set()
    for call in _calls(module.graph):
        for position, reference in enumerate(call.args):
            name = str(reference.target) if isinstance(reference, Node) else ""
            if name in seen:  # two calls of one body may be given other weights
                copied = f"{name}_{len(seen)}"
                module.add_module(copied, copy.deepcopy(module.get_submodule(name)))
                with module.graph.inserting_before(call):
                    call.update_arg(position, module.graph.get_attr(copied))
                name = copied
            if name in bodies(module):
                seen.add(name)


def _give(module: GraphModule, call: Node, entered: Sequence[GraphModule]) -> None:
    operands = _operands(call)
    for body in entered:
        placeholders = body.graph.find_nodes(op="placeholder")
        # what a loop carries, or a scan takes row by row, stands in front of the operands
        for operand, placeholder in zip(operands, placeholders[len(placeholders) - len(operands) :], strict=True):
            if _is_weight(operand):
                if placeholder.users:  # a branch that does not read the weight needs none
                    _hold(body, placeholder, str(operand.target), referenced(module, operand))
                body.graph.erase_node(placeholder)
        body.recompile()
    _set_operands(call, [operand for operand in operands if not _is_weight(operand)])


def _is_weight(operand: Argument) -> TypeGuard[Node]:
    """Whether it is the model's own, and no run writes it."""
    return isinstance(operand, Node) and operand.op == "get_attr" and not is_written(operand)


def _hold(body: GraphModule, placeholder: Node, name: str, tensor: torch.Tensor) -> None:
    """Let `body` have `tensor` under the name that the model has it by, where it was given it."""
    path, _, attribute = name.rpartition(".")
    register(owner_of(body, path), attribute, tensor)
    with body.graph.inserting_before(_behind_placeholders(body.graph)):
        reference = body.graph.get_attr(name)
    reference.meta = dict(placeholder.meta)
    placeholder.replace_all_uses_with(reference)


def _name_calls(body: GraphModule, name: str, call: Node) -> None:
    """Let what `body` calls have names of its own, and stand in modules: torch says nothing of them."""
    of_weights: dict[Node, str] = {}
    for node in body.graph.nodes:
        known = [of_weights[source] for source in node.all_input_nodes if source in of_weights]
        if node.op == "get_attr":
            of_weights[node] = str(node.target)
        elif node.op == "call_function":
            node.name = f"{name}_{node.name}"
            node.meta["nn_module_stack"] = {**(call.meta.get("nn_module_stack") or {}), **_modules(known[:1])}
            if known and len(known) == len(node.all_input_nodes):  # a computed weight, of the same module
                of_weights[node] = known[0]
    body.recompile()


def _modules(weights: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The modules that a weight of this name is in, the innermost last; of which type these are is not known."""
    parts = [part for weight in weights for part in parameter_name(weight).split(".")]
    paths = [".".join(parts[:count]) for count in range(1, len(parts))]
    return {path: (path, "") for path in paths}


# ---- out of them ------------------------------------------------------------------------------------


def _take(module: GraphModule, call: Node, entered: Sequence[GraphModule]) -> None:
    operands: dict[int, Node] = {}  # by the tensor's identity: what two bodies share is one operand
    for body in entered:
        for node in body.graph.find_nodes(op="get_attr"):
            tensor = referenced(body, node)
            if isinstance(tensor, torch.Tensor) and id(tensor) not in operands:
                with module.graph.inserting_before(call):
                    operands[id(tensor)] = module.graph.get_attr(_name_of(module, str(node.target), tensor))
                operands[id(tensor)].meta = dict(node.meta)
    _set_operands(call, [*_operands(call), *operands.values()])
    for body in entered:
        _let_go(body, operands)


def _let_go(body: GraphModule, operands: Mapping[int, Node]) -> None:
    """Let `body` be given these, by `id`, in this order, and read no tensors of its own."""
    graph = body.graph
    placeholders: dict[int, Node] = {}
    with graph.inserting_before(_behind_placeholders(graph)):
        for key, operand in operands.items():
            placeholders[key] = graph.placeholder(str(operand.target).replace(".", "_"))
            placeholders[key].target = placeholders[key].name  # which no other has
            placeholders[key].meta = dict(operand.meta)
    for node in graph.find_nodes(op="get_attr"):
        placeholder = placeholders.get(id(referenced(body, node)))
        if placeholder is not None:
            node.replace_all_uses_with(placeholder)
            graph.erase_node(node)
    body.recompile()


def _name_of(module: GraphModule, name: str, tensor: torch.Tensor) -> str:
    """Under which name `module` has `tensor`: one that is new gets one."""
    try:
        known = attrgetter(name)(module) is tensor
    except AttributeError:
        known = False
    return name if known else add_constant(module, name, tensor)
