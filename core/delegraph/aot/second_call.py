"""Program of a model whose `forward` assigns what a program cannot keep -> nothing, if no later call reads it.

    self.attention = weights            nobody reads it                goes on
    if self.mask is None:
        self.mask = torch.ones(…)       the same in every call         goes on
    self.steps += 1                     the next call multiplies by it refused

A copy of the model is called, exported again, and called again. The second program must do what the first does, and
read nothing that each call assigns anew.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from delegraph.aot.export_dims import Examples
from delegraph.aot.export_state import Assignment, has_form_of
from delegraph.aot.graph.bodies import graph_modules, referenced
from delegraph.aot.graph.model_contents import contents_of, tensors_of
from delegraph.aot.graph.schema_binding import schema_arguments
from delegraph.errors import LoweringError

__all__ = ["check_second_call"]


def check_second_call(
    method: str,
    model: torch.nn.Module,
    examples: Examples,
    program: ExportedProgram,
    assigned: Sequence[Assignment],
    export: Callable[[torch.nn.Module], ExportedProgram],
) -> None:
    """Raise `LoweringError` where a second call of `model` depends on what the first has `assigned`, for `program` does
    not keep that. Warns of numbers that change without an effect seen, and where no second call could be tried."""
    names = ", ".join(each.path for each in assigned)
    try:
        second = _second_call(model, examples, assigned, export)
    except Exception as error:  # whatever the user's code and torch raise
        warnings.warn(
            f"method {method!r}: forward assigns {names}, which the program does not keep, and whether the next call"
            f" depends on it could not be tried ({type(error).__name__}: {error})",
            stacklevel=2,
        )
        return
    read = [each for each in assigned if any(_is_below(place, each) for place in second.read)]
    counted = [each for each in assigned if any(_is_below(place, each) for place in second.counted)]
    if read or not _is_alike(program, second.program):
        lost = (read or counted or list(assigned))[0]
        raise LoweringError(
            f"method {method!r}: forward assigns {lost.path}, and its next call depends on that; a program keeps the"
            f" tensors that the model has before it is called, in their shapes and dtypes, and nothing else."
            f" {_remedy(lost)}",
            location=lost.location,
        )
    if counted:
        warnings.warn(
            f"method {method!r}: forward counts in {', '.join(each.path for each in counted)}, which the program does"
            " not keep; the first two calls do the same all the same. What later calls do with it belongs in a buffer",
            stacklevel=2,
        )


def _remedy(lost: Assignment) -> str:
    name = lost.path.partition("[")[0].rpartition(".")[2]
    if isinstance(lost.before, torch.Tensor) and lost.before.requires_grad:
        return "What is trained stays what it is: make it a buffer"
    if (
        isinstance(lost.before, torch.Tensor)
        and isinstance(lost.after, torch.Tensor)
        and has_form_of(lost.before, lost.after)
    ):
        return "Another name shows the memory that it had: register that under one name, or write into it in place"
    if isinstance(lost.before, torch.Tensor):
        return "Give it one form: a buffer of the largest shape that it takes, in which forward writes a part"
    if isinstance(lost.after, (bool, int, float)):
        return (
            f"Keep a number in a buffer, self.register_buffer({name!r}, torch.tensor({lost.before!r})), and compute"
            " with tensors"
        )
    return f"Make it in __init__, self.register_buffer({name!r}, torch.zeros(…)); forward may assign it then"


# ---- the second call -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Second:
    """The program of the second call; the places whose tensors it reads and each call makes anew, and those whose
    numbers each call changes."""

    program: ExportedProgram
    read: frozenset[str]
    counted: frozenset[str]


def _second_call(
    model: torch.nn.Module,
    examples: Examples,
    assigned: Sequence[Assignment],
    export: Callable[[torch.nn.Module], ExportedProgram],
) -> _Second:
    later = _copied(model)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        _call(later, examples)
        tensors, numbers = _assigned_values(later, assigned)
        versions = {place: tensor._version for place, tensor in tensors.items()}
        program = export(later)
        _call(later, examples)
        tensors_after, numbers_after = _assigned_values(later, assigned)
    moving = {
        place: tensor
        for place, tensor in tensors.items()
        if tensors_after.get(place) is not tensor or tensor._version != versions[place]
    }
    counted = frozenset(place for place, number in numbers.items() if numbers_after.get(place) != number)
    return _Second(program, _read(program, moving), counted)


def _copied(model: torch.nn.Module) -> torch.nn.Module:
    """A copy with the same parameters; tensors that autograd has made cannot be copied otherwise."""
    memo: dict[int, object] = {id(parameter): parameter for parameter in model.parameters()}
    for _, tensor in tensors_of(contents_of(model)):
        if not tensor.is_leaf:
            memo[id(tensor)] = tensor.detach().clone()
    return copy.deepcopy(model, memo)


def _call(model: torch.nn.Module, examples: Examples) -> None:
    args, kwargs = pytree.tree_map(
        lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf,
        (examples.args, dict(examples.kwargs)),
    )
    model(*args, **kwargs)


def _assigned_values(
    model: torch.nn.Module, assigned: Sequence[Assignment]
) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
    """The tensors and the numbers that stand where something was assigned, by place."""
    contents = contents_of(model)
    tensors = {place: tensor for place, tensor in tensors_of(contents) if any(_is_below(place, a) for a in assigned)}
    items = ((each.place(key), item) for each in contents for key, item in each.items.items())
    numbers = {place: item for place, item in items if isinstance(item, (bool, int, float))}
    return tensors, {place: item for place, item in numbers.items() if any(_is_below(place, a) for a in assigned)}


def _is_below(place: str, assignment: Assignment) -> bool:
    rest = place.removeprefix(assignment.path)
    return rest == "" or (rest != place and rest[0] in ".[")


def _read(program: ExportedProgram, tensors: Mapping[str, torch.Tensor]) -> frozenset[str]:
    """The places of those tensors that `program` has, and uses."""
    used = {node.name for node in program.graph.find_nodes(op="placeholder") if node.users}
    stored = {**program.state_dict, **program.constants}
    memory = {
        tensor.data_ptr()
        for spec in program.graph_signature.input_specs
        if spec.arg.name in used and isinstance(tensor := stored.get(str(spec.target)), torch.Tensor)
    }
    return frozenset(place for place, tensor in tensors.items() if tensor.numel() and tensor.data_ptr() in memory)


# ---- two programs ----------------------------------------------------------------------------------


def _is_alike(first: ExportedProgram, second: ExportedProgram) -> bool:
    """Whether both do the same with their inputs, though the second may have for a constant what the first computes."""
    pair = _Pair(first.graph_module, second.graph_module, _varying(first), _varying(second))
    mine, others = ([node for node in own if node.op == "call_function"] for own in (pair.varying, pair.others))
    outputs = first.graph.output_node().args, second.graph.output_node().args
    calls = zip(mine, others, strict=False)
    return len(mine) == len(others) and pair.is_same(*outputs) and all(pair.is_same_call(*both) for both in calls)


def _varying(program: ExportedProgram) -> dict[Node, object]:
    """Inputs, states and the calls that depend on them, each with what it has in common with that of another program:
    the number of an input, the name of a state, a call's position among such calls."""
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    inputs, written = list(program.graph_signature.user_inputs), _written(program.graph_module)
    varying: dict[Node, object] = {}
    calls, live = 0, _live(program.graph)
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in inputs:
            varying[node] = inputs.index(node.name)
        elif node in written:
            varying[node] = specs[node.name].target if node.op == "placeholder" else ("written", node.target)
        if node in live and node.op == "call_function" and any(operand in varying for operand in node.all_input_nodes):
            varying[node] = ("call", calls := calls + 1)
    return varying


def _live(graph: Graph) -> set[Node]:
    """The nodes that a result or an effect depends on."""
    live: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node.is_impure() or any(user in live for user in node.users):
            live.add(node)
    return live


def _written(module: GraphModule) -> set[Node]:
    """The nodes whose memory is written, in the graph itself; all that bodies take, if any of them writes."""
    shown: dict[Node, Node] = {}  # whose memory a node shows
    written: set[Node] = set()
    bodies_write = any(_writes(node) for _, body in list(graph_modules(module))[1:] for node in body.graph.nodes)
    for node in module.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            written.update(shown.get(operand, operand) for operand in node.all_input_nodes if bodies_write)
            continue
        for argument, value in zip(schema.arguments, schema_arguments(node), strict=False):
            if argument.alias_info is not None:
                for operand in (value for value in pytree.tree_leaves(value) if isinstance(value, Node)):
                    shown.setdefault(node, shown.get(operand, operand))
                    if argument.alias_info.is_write:
                        written.add(shown.get(operand, operand))
    return written


def _writes(node: Node) -> bool:
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two graphs, and what varies in each."""

    module: GraphModule
    other: GraphModule
    varying: Mapping[Node, object]
    others: Mapping[Node, object]

    def is_same_call(self, a: Node, b: Node) -> bool:
        return a.target is b.target and self.is_same(a.args, b.args) and self.is_same(a.kwargs, b.kwargs)

    def is_same(self, a: object, b: object) -> bool:
        """Whether the values are the same: nodes that vary by what they have in common, others by their calls."""
        if isinstance(a, Node) and isinstance(b, Node):
            if a in self.varying or b in self.others:
                return a in self.varying and b in self.others and self.varying[a] == self.others[b]
            if a.op == b.op == "get_attr":
                bodies = referenced(self.module, a), referenced(self.other, b)
                return bodies[0] is bodies[1] or getattr(bodies[0], "code", None) == getattr(bodies[1], "code", "")
            return b.op == "placeholder" or (a.op == b.op and self.is_same_call(a, b))
        if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
            return len(a) == len(b) and all(self.is_same(*both) for both in zip(a, b, strict=True))
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            return a.keys() == b.keys() and all(self.is_same(a[key], b[key]) for key in a)
        if isinstance(a, slice) and isinstance(b, slice):
            return self.is_same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
        return type(a) is type(b) and bool(a == b)
