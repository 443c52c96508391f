"""Program -> the same, views marked that need no memory of their own, because they show that of their argument.

    %add = aten.add.Tensor(%x, %y)                  4 bytes of its own for each element
    %view = aten.view_copy.default(%add, [2, 2])    # shows the memory of %add: no copy, no instruction

A view is a copy after all for one of these reasons; the first four are about the argument's memory:

    1. it is overwritten while the view may still be read: a state, or an input that is written back
           %view = view_copy(%b_cache, …)      %add = add(%b_cache, 1)      buffer 'cache' <- %add      return %view
    2. the program has no place for it: the caller gives it at run time (`alloc_graph_input=False`, `_output=False`)
    3. it is not there when the program is planned: a weight in a `.ptd`
    4. it is not one tensor: a number, or a list
    5. the view is an output, of the method or of a control-flow body: outputs have memory of their own, so that two of
       them, or one and an input, never are one tensor
           %view = view_copy(%x, …)      return %view
    6. other bytes, or another order of them: `expand` that repeats, a layout that is not contiguous, `permute` that
       moves more than dimensions of size 1
    7. sizes known at run time only, except for `view_copy`: `executorch_prim::et_view` does that one without a copy
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import Argument

from delegraph.aot.graph.bodies import output_producer, output_values, referenced
from delegraph.aot.graph.external_constants import external_tag
from delegraph.aot.graph.fake_values import Args, several
from delegraph.aot.graph.memory_use import MEMORY_USE, MemoryUse, clear_memory_use, memory_use
from delegraph.aot.graph.signature import ResolvedSignature, live_nodes
from delegraph.aot.graph.tensor_spec import Bounds, TensorSpec, result_spec, spec_of_tensor
from delegraph.aot.graph.view_operators import KEEP_ORDER
from delegraph.aot.passes.reinplacing import updated_value
from delegraph.interfaces.graph_pass import ExportedProgramPassBase, ExportedProgramPassResult
from delegraph.program.schema import TensorShapeDynamism

__all__ = ["ViewElision", "own_results"]

aten = torch.ops.aten

VIEW_COPY: Final = aten.view_copy.default
"""The one that a runtime can also do for dynamic shapes without a copy (`executorch_prim::et_view`)."""

_PERMUTE: Final = aten.permute_copy.default


@dataclass(frozen=True, slots=True)
class ViewElision(ExportedProgramPassBase):
    """Marks views by `MemoryUse.VIEW` and `RESIZED_VIEW`. The options say which tensors have no planned memory.

    Runs after `Reinplacing`, whose marks say which results lie in a state's memory.
    """

    alloc_graph_input: bool = True
    alloc_graph_output: bool = True

    def call(self, program: ExportedProgram) -> ExportedProgramPassResult:
        """Mark the views of the method's graph and of the bodies in it."""
        signature = ResolvedSignature.of(program)
        foreign = frozenset() if self.alloc_graph_output else frozenset(own_results(signature))
        memories = dict(self._inputs(signature, bounds := Bounds.of_program(program)))
        walk = _Walk(program.graph_module, bounds, set(), foreign, memories)
        walk.run(signature.results)
        return ExportedProgramPassResult(program, True)

    def _inputs(self, signature: ResolvedSignature, bounds: Bounds) -> Iterable[tuple[Node, _Memory]]:
        """The memory of the graph's inputs, states and constants."""
        overwritten = {write_back.target for write_back in signature.write_backs} | signature.states.keys()
        for node in (*signature.inputs, *signature.states):
            if isinstance(value := node.meta.get("val"), torch.Tensor):
                planned = _Kind.PLANNED if self.alloc_graph_input else _Kind.FOREIGN
                yield node, _Memory(bounds.spec(value, node), _Kind.OVERWRITTEN if node in overwritten else planned)
        for node, stored in signature.constants.items():
            kind = _Kind.CONSTANT if external_tag(node) is None else _Kind.FOREIGN
            yield node, _Memory(spec_of_tensor(stored.tensor), kind)


def own_results(signature: ResolvedSignature) -> list[Node]:
    """Outputs that are the results of calls."""
    return [node for node in signature.outputs if isinstance(node, Node) and node.op == "call_function"]


class _Kind(Enum):
    PLANNED = "planned memory"
    CONSTANT = "bytes of the program"
    OVERWRITTEN = "a state's, or that of an input that is written back"
    FOREIGN = "given at run time"


@dataclass(frozen=True, slots=True)
class _Memory:
    """How a node's tensor lies in memory, and in whose."""

    spec: TensorSpec
    kind: _Kind


@dataclass(slots=True)
class _Walk:
    """Decides for one graph, the method's or a body's. `memories` has its inputs before `run` is called."""

    module: GraphModule
    bounds: Bounds
    entered: set[GraphModule]
    foreign: frozenset[Node] = frozenset()
    memories: dict[Node, _Memory] = field(default_factory=dict)
    destinations: dict[tuple[Node, int], _Memory] = field(default_factory=dict)
    """Results (node, position) whose memory is there before the call: those of a branch, of a loop."""
    kept: set[Node] = field(default_factory=set)

    def run(self, roots: Sequence[object]) -> None:
        """Decide for the nodes that `roots` need."""
        self.kept = {node for node in roots if isinstance(node, Node)}  # reason 5
        live = live_nodes(self.module.graph, roots)
        for node in self.module.graph.nodes:
            if node in live and node not in self.memories:
                memory = self._of(node)
                if memory is not None:
                    self.memories[node] = memory

    def _of(self, node: Node) -> _Memory | None:
        """The memory of `node`'s value, where that is one tensor."""
        if node.op == "get_attr":
            attribute = referenced(self.module, node)
            return _Memory(spec_of_tensor(attribute), _Kind.CONSTANT) if isinstance(attribute, torch.Tensor) else None
        if node.op != "call_function":
            return None
        if memory_use(node) is MemoryUse.IN_PLACE:  # `Reinplacing` says so: it writes where its argument lies
            source = updated_value(node)
            return self.memories.get(source) if source is not None else None
        if node.target is operator.getitem:
            return self._element(node)
        if isinstance(node.target, OpOverload):
            return self._view(node) or self._written(node, node.target) or self._result(node, 0, node.meta.get("val"))
        if isinstance(node.target, HigherOrderOperator) and (bodies := _CONTROL_FLOW.get(str(node.target))):
            bodies(self, node)
        return None

    def _view(self, node: Node) -> _Memory | None:
        """The memory of the first argument, if the call needs none of its own; the node is marked then."""
        source, value = node.args[0] if node.args else None, node.meta.get("val")
        if not isinstance(source, Node) or not isinstance(value, torch.Tensor) or node in self.kept:
            return None
        base = self.memories.get(source)
        if base is None or base.kind not in (_Kind.PLANNED, _Kind.CONSTANT):  # reasons 1 to 4
            return None
        spec = self.bounds.spec(value, node)
        if _shows_same_bytes(node, base.spec, spec):  # else reasons 6 and 7
            node.meta[MEMORY_USE] = MemoryUse.VIEW
        elif node.target == VIEW_COPY and _can_be_resized(base, spec):
            node.meta[MEMORY_USE] = MemoryUse.RESIZED_VIEW
        else:
            return None
        return _Memory(spec, base.kind)

    def _written(self, node: Node, op: OpOverload) -> _Memory | None:
        """The memory of the argument that a call changes and returns."""
        written = [a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        if len(written) != 1 or op._schema.arguments[0].name != written[0] or not isinstance(node.args[0], Node):
            return None
        return self.memories.get(node.args[0])

    def _element(self, node: Node) -> _Memory | None:
        """The memory of an element of a call's results."""
        path: list[int] = []
        while node.target is operator.getitem:
            position = node.args[1]
            assert isinstance(position, int)
            path.insert(0, position)  # a result may be a list: element of an element
            node = node.args[0]  # type: ignore[assignment]
        value = node.meta["val"]
        for index in path:
            value = value[index]
        return self._result(node, path[0], value)

    def _result(self, node: Node, position: int, value: object, dynamic: bool = False) -> _Memory | None:
        """The memory of the result of `node` at `position`: new, or the one that is there for it already."""
        if (node, position) in self.destinations:
            return self.destinations[node, position]
        if not isinstance(value, torch.Tensor):
            return None
        sources = (self.memories.get(source) for source in node.all_input_nodes)
        # the order is passed on where an argument has it, and the memory of all of them is known here
        spec = result_spec(node, self.bounds.spec(value, node), [memory.spec for memory in sources if memory])
        if dynamic:
            spec = replace(spec, dynamism=TensorShapeDynamism.DYNAMIC_BOUND)
        return _Memory(spec, _Kind.FOREIGN if self._is_foreign(node, position) else _Kind.PLANNED)

    def _is_foreign(self, node: Node, position: int) -> bool:
        # an output is an element, while the memory is asked of the call that gives all of them
        if not self.foreign or not isinstance(node.meta.get("val"), (tuple, list)):
            return node in self.foreign
        elements = (user for user in node.users if user.target is operator.getitem)
        return any(user.args[1] == position and user in self.foreign for user in elements)

    # ---- control flow ----------------------------------------------------------------------------------

    def results(self, node: Node, start: int = 0, stop: int | None = None, dynamic: bool = False) -> list[_Memory]:
        """The memory for the results of a control-flow call, which is there before its bodies run."""
        for position, value in list(enumerate(node.meta["val"]))[start:stop]:
            memory = self._result(node, position, value, dynamic)
            if memory is not None:
                self.destinations[node, position] = memory
        return [self.destinations.get((node, i)) for i in range(*slice(start, stop).indices(len(node.meta["val"])))]  # type: ignore[misc]

    def memories_of(self, values: Iterable[object]) -> list[_Memory | None]:
        """The memory of each of a body's operands."""
        return [self.memories.get(value) if isinstance(value, Node) else None for value in values]

    def body(self, reference: Argument) -> _Walk:
        """A walk through the body that a get_attr node refers to."""
        assert isinstance(reference, Node)
        module = referenced(self.module, reference)
        assert isinstance(module, GraphModule)
        return _Walk(module, self.bounds, self.entered)

    def enter(self, inputs: Sequence[_Memory | None], outputs: Sequence[_Memory | None] = ()) -> None:
        """Decide for this body, called on `inputs`; its results go to `outputs`, if these are there already."""
        placeholders = self.module.graph.find_nodes(op="placeholder")
        self.memories.update((p, memory) for p, memory in zip(placeholders, inputs, strict=True) if memory is not None)
        roots = output_values(self.module.graph)
        for root, memory in zip(roots, outputs, strict=False):
            producer = output_producer(root)
            if producer is not None and memory is not None:
                self.destinations.setdefault(producer, memory)
        self.run(roots)
        if self.module in self.entered:  # another call enters it too, on other memory
            clear_memory_use(self.module, (MemoryUse.VIEW, MemoryUse.RESIZED_VIEW))
        self.entered.add(self.module)


def _enter_cond(outer: _Walk, node: Node) -> None:
    """Results are written straight into the tensors of the `cond`."""
    _, true_body, false_body, *rest = node.args
    outputs = outer.results(node)
    for body in (true_body, false_body):
        outer.body(body).enter(outer.memories_of(several(rest[0]) if rest else ()), outputs)


def _enter_map(outer: _Walk, node: Node) -> None:
    body, xs, additional = node.args
    _enter_rounds(outer, node, body, (), several(xs), several(additional))


def _enter_scan(outer: _Walk, node: Node) -> None:
    body, init, xs, additional = node.args[:4]
    _enter_rounds(outer, node, body, several(init), several(xs), several(additional))


def _enter_rounds(outer: _Walk, node: Node, body: Argument, init: Args, xs: Args, additional: Args) -> None:
    """Carried values and rows have tensors of their own; stacked results grow, so they are dynamic."""
    carries = outer.results(node, stop=len(init))
    outer.results(node, start=len(init), dynamic=True)
    inner = outer.body(body)
    rows = inner.module.graph.find_nodes(op="placeholder")[len(init) : len(init) + len(xs)]
    slices = [inner._result(row, 0, row.meta["val"]) for row in rows]  # copied out of `xs` in each round
    inner.enter([*carries, *slices, *outer.memories_of(additional)])


def _enter_while_loop(outer: _Walk, node: Node) -> None:
    condition, body, _, additional = node.args
    inputs = [*outer.results(node), *outer.memories_of(several(additional))]
    for reference in (condition, body):
        outer.body(reference).enter(inputs)


_CONTROL_FLOW: Final[Mapping[str, Callable[[_Walk, Node], None]]] = {
    "cond": _enter_cond,
    "map_impl": _enter_map,
    "scan": _enter_scan,
    "while_loop": _enter_while_loop,
}
"""By the name of the higher-order operator: how its bodies' inputs lie in memory."""


# ---- what shows the same bytes ----------------------------------------------------------------------


def _shows_same_bytes(node: Node, old: TensorSpec, new: TensorSpec) -> bool:
    """Whether `node`'s result (`new`) is its first argument (`old`), byte for byte, whatever the data."""
    if not (old.is_static and new.is_static and old.dtype == new.dtype and old.nbytes == new.nbytes):
        return False
    if not (old.is_contiguous and new.is_contiguous):
        return False
    return node.target in KEEP_ORDER or (node.target == _PERMUTE and _moves_only_ones(node, old))


def _moves_only_ones(node: Node, old: TensorSpec) -> bool:
    rank = len(old.sizes)
    dims = [dim % rank for dim in node.args[1] if old.sizes[dim] != 1]  # type: ignore[union-attr, operator, index]
    return dims == sorted(dims)


def _can_be_resized(base: _Memory, new: TensorSpec) -> bool:
    return base.kind is _Kind.PLANNED and not new.is_static and base.spec.is_contiguous
