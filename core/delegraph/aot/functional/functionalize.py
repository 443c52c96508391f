"""ATen program -> functional core ATen program: mutation becomes data flow, composite operators become core ones.

The graph is rebuilt in one pass, node by node. Mutation is resolved as torch's functionalisation does it, but on the
graph: a view remembers the call that made it, an in-place call gives its base a new value, and a view whose base has
moved on is made again before it is next read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, count
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec, TensorArgument
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from delegraph.aot.functional.auto_functionalized import auto_functionalized_v2, call_on_bases
from delegraph.aot.functional.decompose import Decompositions, Keep, NodeFilter
from delegraph.aot.functional.direct_decompositions import DIRECT_DECOMPOSITIONS
from delegraph.aot.functional.mode_regions import is_mode_region, without_mode
from delegraph.aot.functional.view_inverses import VIEW_INVERSES, scatter_piece
from delegraph.aot.graph.bodies import referenced
from delegraph.aot.graph.edit import rebuild, unused_name
from delegraph.aot.graph.mutating_calls import (
    auto_functionalized,
    changed_arguments,
    changes_arguments,
    first_copy,
    functional_twin,
    may_share_memory,
    on_copies,
)
from delegraph.aot.graph.provenance import SOURCE, mark_piece
from delegraph.aot.graph.schema_binding import bind_schema
from delegraph.aot.graph.source_location import user_location
from delegraph.errors import LoweringError

__all__ = ["functionalize"]

aten = torch.ops.aten

Value: TypeAlias = Any
"""A graph value of the new graph: a Node, a list of them, or a plain value."""


def functionalize(program: ExportedProgram, keep: Keep, only: NodeFilter | None = None) -> ExportedProgram:
    """The same program in functional core ATen, except that operators in `keep` stay whole, and with `only` all calls
    that it does not accept.

    Buffers and inputs that the model mutates become outputs (BUFFER_MUTATION, USER_INPUT_MUTATION). The given program
    is not changed; weights are shared. Raises `LoweringError` for a mutation that cannot be expressed.
    """
    decompositions = Decompositions(fake_mode_of(program), keep, only)
    run = _Functionalizer(program.graph_module, decompositions, frozenset(program.constants))
    pinned_before = _pinned(decompositions.mode)
    graph = run.run()
    pinned = _pinned(decompositions.mode).items() - pinned_before.items()
    if pinned:
        fixed = ", ".join(f"{symbol} to {value}" for symbol, value in sorted(pinned))
        raise LoweringError(f"decomposing the program would fix dynamic dimensions to their example: {fixed}")
    return rebuild(program, run.root, graph, _with_mutations(program, run), run.constants)


def fake_mode_of(program: ExportedProgram) -> FakeTensorMode:
    """The mode that the program's fake values belong to."""
    for node in program.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, FakeTensor):
                return value.fake_mode
    return FakeTensorMode()


def _pinned(mode: FakeTensorMode) -> dict[str, str]:
    """The symbolic sizes that have become numbers."""
    if mode.shape_env is None:
        return {}
    return {str(symbol): str(value) for symbol, value in mode.shape_env.replacements.items() if value.is_number}


@dataclass(slots=True)
class _View:
    """How to make a value again from its parent: `op` on `args`, in which the parent is the first argument."""

    parent: Node
    op: Callable[..., Any] | None  # None: the same tensor under another name
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    version: int


class _Functionalizer:
    """Rebuilds one graph; control-flow bodies are rebuilt by functionalizers of their own."""

    def __init__(
        self, module: GraphModule, decompositions: Decompositions, taken_names: frozenset[str] = frozenset()
    ) -> None:
        self.module = module
        self.taken_names = taken_names
        self.decompositions = decompositions
        self.graph = Graph()
        self.root: dict[str, Any] = {}
        self.constants: dict[str, torch.Tensor] = {}
        self.mutated: dict[Node, Value] = {}
        self._values: dict[Node, Value] = {}
        self._views: dict[Node, _View] = {}
        self._versions: dict[Node, int] = {}
        self._origin: Node | None = None
        self._pieces: Iterator[int] | None = None
        """Numbers for the calls that `_origin` is decomposed into; None while it is copied."""
        self._mutates = _has_mutation(module.graph)

    def run(self) -> Graph:
        for node in self.module.graph.nodes:
            self._origin, self._pieces = node, None
            self._values[node] = getattr(self, f"_{node.op}")(node)
        self.graph.eliminate_dead_code()
        self.graph.lint()
        return self.graph

    # ---- one node ----------------------------------------------------------------------------------

    def _placeholder(self, node: Node) -> Value:
        copied = self.graph.node_copy(node)
        copied.name = node.name  # the signature refers to it; the graph would rename `input`, a Python builtin
        return copied

    def _get_attr(self, node: Node) -> Value:
        target = str(node.target)
        attribute = referenced(self.module, node)
        if isinstance(attribute, GraphModule):
            attribute = self._functional_body(attribute)
        self.root[target] = attribute
        return self.graph.node_copy(node)

    def _functional_body(self, body: GraphModule) -> GraphModule:
        run = _Functionalizer(body, self.decompositions)
        graph = run.run()
        if run.mutated or run.constants:
            raise LoweringError("a control-flow branch mutates a value from outside it", node=str(self._origin))
        return GraphModule(run.root, graph)

    def _functional_template(self, template: GraphModule) -> GraphModule:
        """A decomposition as torch writes it may change its own intermediates: those in-place calls go."""
        if not _has_mutation(template.graph):
            return template
        functional = self._functional_body(template)
        if isinstance(template.graph.output_node().args[0], Node):  # a result alone, which a program's output never is
            functional.graph.output_node().args = functional.graph.output_node().args[0]  # type: ignore[assignment]
        return functional

    def _output(self, node: Node) -> Value:
        results = node.args[0]
        outputs = self._resolve(results if isinstance(results, (tuple, list)) else (results,))
        self.mutated = {old: self._values[old] for old in self._versions if old.op == "placeholder"}
        copied = self.graph.output(tuple(self.mutated.values()) + tuple(outputs))
        copied.meta = dict(node.meta)
        return copied

    def _call_function(self, node: Node) -> Value:
        if is_mode_region(node):
            return self._inline_body(*without_mode(node, self.module, self.decompositions.mode))
        args, kwargs = self._resolve(node.args), self._resolve(node.kwargs)
        if node.target is operator.getitem:
            source = node.args[0]
            if isinstance(source, Node) and source in self._views:
                self._remember_view(node, source)
            if not isinstance(args[0], Node):
                return args[0][args[1]]
        if node.target is auto_functionalized_v2 and on_copies(args[0]):
            return call_on_bases(node, self._emit, self._element, kwargs)
        if not isinstance(node.target, OpOverload):
            assert callable(node.target)
            return self._emit(node.target, args, kwargs, node.meta.get("val"))
        if changes_arguments(node.target):
            return self._mutation(node, args, kwargs)
        value = self._call(node.target, args, kwargs, node)
        if self._mutates and (source := _aliased_argument(node)) is not None:
            self._remember_view(node, source)
        return value

    def _call(self, op: OpOverload, args: Any, kwargs: Any, node: Node) -> Value:
        if not self.decompositions.applies_to(op, node):
            return self._emit(op, args, kwargs, node.meta.get("val") if op is node.target else None)
        self._pieces = self._pieces or count()
        form = DIRECT_DECOMPOSITIONS.get(op)
        if form is not None and "val" in node.meta:
            value = form(self._emit, bind_schema(op, args, kwargs), node.meta["val"])
            if value is not None:
                return value
        fakes, fake_kwargs = _vals((args, kwargs))
        template, positions = self.decompositions.template(op, fakes, fake_kwargs, self._functional_template)
        flat = pytree.tree_leaves((args, kwargs))
        return self._inline(template, [flat[i] for i in positions])

    def _inline_body(self, body: GraphModule, operands: Sequence[Any]) -> Value:
        """A region's body takes its place."""
        outer, self.module = self.module, body
        placeholders = [inner for inner in body.graph.nodes if inner.op == "placeholder"]
        for inner, operand in zip(placeholders, operands, strict=True):
            self._values[inner] = self._resolve(operand)
            if isinstance(operand, Node):
                self._views[inner] = _View(operand, None, (), {}, self._version(operand))
        for inner in body.graph.nodes:
            if inner.op == "output":
                break
            if inner.op != "placeholder":
                self._origin, self._pieces = inner, None
                self._values[inner] = getattr(self, f"_{inner.op}")(inner)
        self.module = outer
        return self._resolve(inner.args[0])

    # ---- emission ----------------------------------------------------------------------------------

    def _emit(self, target: Callable[..., Any], args: Any, kwargs: Any, val: Any = None) -> Value:
        node = self.graph.create_node("call_function", target, args, kwargs)
        assert self._origin is not None
        node.meta = {key: value for key, value in self._origin.meta.items() if key in _KEPT_META}
        if self._pieces is not None:
            mark_piece(node, next(self._pieces))
        if val is None:
            with self.decompositions.mode:
                fake_args, fake_kwargs = _vals((args, kwargs))
                val = target(*fake_args, **fake_kwargs)
        node.meta["val"] = val
        return node

    def _inline(self, template: GraphModule, inputs: list[Value]) -> Value:
        values: dict[Node, Value] = {}
        remaining = iter(inputs)
        for node in template.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(remaining)
            elif node.op == "get_attr":
                values[node] = self._lift(getattr(template, str(node.target)), node.meta.get("val"))
            elif node.op == "output":
                return pytree.tree_map_only(Node, values.__getitem__, node.args[0])
            else:
                args, kwargs = pytree.tree_map_only(Node, values.__getitem__, (node.args, dict(node.kwargs)))
                if node.target is operator.getitem and not isinstance(args[0], Node):
                    values[node] = args[0][args[1]]
                else:
                    values[node] = self._emit(node.target, args, kwargs, node.meta.get("val"))
        raise AssertionError("a traced template always has an output node")

    def _lift(self, tensor: torch.Tensor, val: Any) -> Value:
        """A tensor that a decomposition made up: becomes a lifted constant of the program."""
        name = unused_name("_decomposition_constant", self.constants, self.taken_names)
        self.constants[name] = tensor
        first = next(iter(self.graph.nodes), None)
        with self.graph.inserting_before(first) if first is not None else self.graph.inserting_after(None):
            node = self.graph.placeholder(f"c{name}")
        node.meta["val"] = val if val is not None else self.decompositions.mode.from_tensor(tensor)
        node.meta["constant_name"] = name
        if self._origin is not None and self._pieces is not None and SOURCE in self._origin.meta:
            node.meta[SOURCE] = self._origin.meta[SOURCE]
            mark_piece(node, next(self._pieces))
        return node

    # ---- aliasing ----------------------------------------------------------------------------------

    def _resolve(self, arguments: Any) -> Any:
        return torch.fx.node.map_arg(arguments, self._current)

    def _current(self, node: Node) -> Value:
        """The up-to-date value of `node`: made again if what it views has been mutated since."""
        view = self._views.get(node)
        if view is not None and view.version != self._version(node):
            parent = self._current(view.parent)
            if view.op is None:
                self._values[node] = parent
            else:
                args = self._resolve(view.args)
                self._values[node] = (
                    self._call(view.op, (parent, *args), self._resolve(view.kwargs), node)
                    if isinstance(view.op, OpOverload)
                    else self._element(parent, *args)
                )
            view.version = self._version(node)
        return self._values[node]

    def _element(self, sequence: Value, index: int) -> Value:
        return self._emit(operator.getitem, (sequence, index), {}) if isinstance(sequence, Node) else sequence[index]

    def _remember_view(self, node: Node, source: Node) -> None:
        assert callable(node.target)
        op = None if node.target in _SAME_TENSOR else node.target
        self._views[node] = _View(source, op, node.args[1:], node.kwargs, self._version(source))

    def _base(self, node: Node) -> Node:
        while node in self._views:
            node = self._views[node].parent
        return node

    def _version(self, node: Node) -> int:
        return self._versions.get(self._base(node), 0)

    def _mutation(self, node: Node, args: Any, kwargs: Any) -> Value:
        """An in-place call: its functional twin, whose result every alias of the target sees from now on."""
        assert isinstance(node.target, OpOverload)
        if node.target in _SET_VALUE:
            value = self._set_value(node, args)
        elif (twin := functional_twin(node.target)) is not None:
            value = self._call(twin, args, kwargs, node)
        else:
            return self._call_on_copies(node, node.target, args, kwargs)
        target = node.args[0] if node.args else node.kwargs[changed_arguments(node.target)[0]]
        assert isinstance(target, Node)
        self._assign(target, value)
        self._views[node] = _View(target, None, (), {}, self._version(target))
        return value

    def _call_on_copies(self, node: Node, op: OpOverload, args: Any, kwargs: Any) -> Value:
        """A call that changes arguments of any name: its results, and each changed copy in place of the argument."""
        if not on_copies(op):
            raise LoweringError(
                f"{op} changes its arguments and has no functional form of the same name and overload;"
                f" {_REMEDIES.get(op, 'give the operator one, or call it on a copy')}",
                node=node.name,
                location=user_location(node),
            )
        names = [argument.name for argument in op._schema.arguments]
        given = dict(zip(names, bind_schema(op, node.args, node.kwargs), strict=True))
        self._check_apart(node, changed_arguments(op), given)
        current = dict(zip(names, bind_schema(op, args, kwargs), strict=True))
        call = self._emit(auto_functionalized, (op,), current)
        for position, name in enumerate(changed_arguments(op), first_copy(op)):
            if isinstance(given[name], Node):
                self._assign(given[name], self._element(call, position))
            elif given[name] is not None:
                copies = self._element(call, position)
                for index, target in enumerate(given[name]):
                    self._assign(target, self._element(copies, index))
        many = len(op._schema.returns) > 1
        return call if many or not op._schema.returns else self._element(call, 0)

    def _check_apart(self, node: Node, changed: Collection[str], given: Mapping[str, Any]) -> None:
        """Raise if the call changes memory that another of its arguments shows: on copies it would not see that."""
        tensors = [
            (name, leaf)
            for name, value in given.items()
            for leaf in pytree.tree_leaves(value)
            if isinstance(leaf, Node) and isinstance(leaf.meta.get("val"), torch.Tensor)
        ]
        for (name, one), (other_name, other) in combinations(tensors, 2):
            together = self._base(one) is self._base(other) and (name in changed or other_name in changed)
            if together and may_share_memory(one.meta["val"], other.meta["val"]):
                raise LoweringError(
                    f"{node.target} changes its arguments, and {name} and {other_name} show the same memory;"
                    " give it a copy of one (clone)",
                    node=node.name,
                    location=user_location(node),
                )

    def _set_value(self, node: Node, args: Any) -> Value:
        """`copy_(self, src)`: what `self` holds afterwards is `src`, in `self`'s shape and dtype."""
        old, new = _vals(args[0]), _vals(args[1])
        value = args[1]
        if new.dtype != old.dtype:
            value = self._emit(aten._to_copy.default, (value,), {"dtype": old.dtype})
        if tuple(new.shape) != tuple(old.shape):
            value = self._emit(aten.expand.default, (value, list(old.shape)), {})
        return value

    def _assign(self, node: Node, value: Value) -> None:
        view = self._views.get(node)
        if view is None:
            self._values[node] = value
            self._versions[node] = self._versions.get(node, 0) + 1
            return
        if view.op is operator.getitem:  # one of the pieces that a tensor was split into
            split = self._views[view.parent]
            scatter, arguments = scatter_piece(self._current(split.parent), value, view.parent, view.args[0])
            self._assign(split.parent, self._call(scatter, arguments, {}, node))
        else:
            self._assign(view.parent, value if view.op is None else self._scatter(node, view, value))
        self._values[node] = value
        view.version = self._version(node)

    def _scatter(self, node: Node, view: _View, value: Value) -> Value:
        """The parent's value once its part `node` has become `value`."""
        parent = self._current(view.parent)
        inverse = VIEW_INVERSES.get(view.op)
        if inverse is None:
            raise LoweringError(
                f"in-place write through {view.op}, whose effect on the tensor it views cannot be expressed;"
                " write to a copy instead",
                node=node.name,
                location=user_location(node),
            )
        op, arguments = inverse(parent, _vals(parent), value, self._resolve(view.args), dict(view.kwargs))
        return self._call(op, arguments, {}, node)


# ---- operator facts --------------------------------------------------------------------------------

_KEPT_META = frozenset(
    {"stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node", "custom", "debug_handle", SOURCE}
)
_SET_VALUE = frozenset({aten.copy_.default})
_REMEDIES = {
    aten._native_batch_norm_legit.default: "it updates the statistics of a model in training mode: call model.eval()"
}
_SAME_TENSOR = frozenset({aten.alias.default, aten.detach.default, aten.detach_.default, aten.contiguous.default})


def _has_mutation(graph: Graph) -> bool:
    return any(
        is_mode_region(node) or (isinstance(node.target, OpOverload) and changes_arguments(node.target))
        for node in graph.nodes
    )


def _aliased_argument(node: Node) -> Node | None:
    """The first argument, if the result is a view of it (decided on storages where the schema leaves it open)."""
    op = node.target
    assert isinstance(op, OpOverload)
    returns = op._schema.returns
    if not returns or returns[0].alias_info is None or not node.args or not isinstance(node.args[0], Node):
        return None
    source = node.args[0]
    if op.is_view and op not in _MAYBE_VIEW:
        return source
    result = op(*_vals(node.args), **_vals(node.kwargs))
    leaf = pytree.tree_leaves(result)[0]
    same = leaf.untyped_storage()._cdata == _vals(source).untyped_storage()._cdata
    return source if same else None


_MAYBE_VIEW = frozenset(
    {
        *(aten.reshape.default, aten.flatten.using_ints, aten.contiguous.default),
        *(aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten.to.other),
    }
)


def _vals(arguments: Any) -> Any:
    """The fake values of the nodes in a structure."""
    return pytree.tree_map_only(Node, lambda node: node.meta["val"], arguments)


def _with_mutations(program: ExportedProgram, run: _Functionalizer) -> list[OutputSpec]:
    """The program's output specs, with one in front for every placeholder that was mutated."""
    inputs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    specs = []
    for placeholder, value in run.mutated.items():
        spec = inputs[placeholder.name]
        if spec.kind is InputKind.PARAMETER:
            raise LoweringError(f"the model changes its parameter {spec.target}; only buffers can be changed")
        kind = OutputKind.BUFFER_MUTATION if spec.kind is InputKind.BUFFER else OutputKind.USER_INPUT_MUTATION
        target = spec.target if spec.kind is InputKind.BUFFER else placeholder.name
        specs.append(OutputSpec(kind, TensorArgument(value.name), target))
    return specs + list(program.graph_signature.output_specs)
