"""A graph of ATen calls -> a functional graph of core ATen calls, made anew node by node.

Mutation is resolved as torch's functionalisation does it, but on the graph: a view remembers the call that made it, an
in-place call gives its base a new value, and a view whose base has moved on is made again before it is next read:

    t = x * 2                        t = x * 2
    row = t[1]                       row = t[1]
    row.add_(1)                      row' = row + 1;  t' = select_scatter(t, row', 0, 1)
    return t.t(), row                return t'.t(), row'

A composite operator that gives a view (`movedim`, `to` where it has nothing to do …) is first taken apart into the
views that it is, which are remembered each.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, count
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from delegraph.aot.functional.aliases import gives_alias, is_same_tensor, viewed_argument
from delegraph.aot.functional.auto_functionalized import auto_functionalized_v2, call_on_bases
from delegraph.aot.functional.decompose import Decompositions
from delegraph.aot.functional.direct_decompositions import DIRECT_DECOMPOSITIONS
from delegraph.aot.functional.mode_regions import is_mode_region, without_mode
from delegraph.aot.graph.edit import unused_name
from delegraph.aot.graph.mutating_calls import (
    auto_functionalized,
    changed_arguments,
    changes_arguments,
    first_copy,
    functional_twin,
    may_share_memory,
    on_copies,
    without_out,
)
from delegraph.aot.graph.provenance import SOURCE, mark_piece
from delegraph.aot.graph.schema_binding import bind_schema
from delegraph.aot.graph.source_location import user_location
from delegraph.aot.graph.view_operators import VIEW_INVERSES, scatter_by_index, scatter_piece
from delegraph.errors import LoweringError

__all__ = ["Functionalizer"]

aten = torch.ops.aten

Value: TypeAlias = Any
"""A graph value of the new graph: a Node, a list of them, or a plain value."""


@dataclass(slots=True)
class _View:
    """How to make a value again from its parent: `op` on `args`, in which the parent is the first argument."""

    parent: Node
    op: Callable[..., Any] | None  # None: the same tensor under another name
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    version: int


class Functionalizer:
    """Rebuilds one graph; control-flow bodies are rebuilt by functionalizers of their own.

    After `run`, `root` holds what get_attr nodes refer to, `constants` what decompositions made up, `mutated`
    the new value of each placeholder that was written to, and `writers` the first call that did.
    """

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
        self._results: dict[Node, Sequence[Any]] = {}
        self.writers: dict[Node, Node] = {}
        self._versions: dict[Node, int] = {}
        self._origin: Node | None = None
        self._pieces: Iterator[int] | None = None
        """Numbers for the calls that `_origin` is decomposed into; None while it is copied."""
        self._mutates = _has_mutation(module.graph)

    def run(self) -> Graph:
        for node in self.module.graph.nodes:
            self._rebuild(node)
        self.graph.eliminate_dead_code()
        self.graph.lint()
        return self.graph

    def _rebuild(self, node: Node, pieces: Iterator[int] | None = None) -> None:
        """Make `node` anew; `pieces` are numbers for its calls where it is itself a piece of a decomposed call."""
        self._origin, self._pieces = node, pieces
        try:
            self._values[node] = getattr(self, f"_{node.op}")(node)
        except RuntimeError as error:  # torch's, from fake values or a decomposition
            reason = str(error).partition("\n")[0]
            raise LoweringError(
                f"torch cannot trace what {node.target} stands for: {type(error).__name__}: {reason}",
                node=node.name,
                location=user_location(node),
            ) from error

    # ---- one node ----------------------------------------------------------------------------------

    def _placeholder(self, node: Node) -> Value:
        copied = self.graph.node_copy(node)
        copied.name = node.name  # the signature refers to it; the graph would rename `input`, a Python builtin
        return copied

    def _get_attr(self, node: Node) -> Value:
        if all(is_mode_region(user) for user in node.users):  # the region's call inlines it
            return None
        attribute = operator.attrgetter(str(node.target))(self.module)
        if isinstance(attribute, torch.Tensor):
            return self._lift(attribute, node.meta.get("val"))
        if isinstance(attribute, GraphModule):
            attribute = self._functional_body(attribute)
        copied = self.graph.node_copy(node)
        while str(copied.target) in self.root:  # a region's body has names of its own
            copied.target = f"{copied.target}_inner"
        self.root[str(copied.target)] = attribute
        return copied

    def _functional_body(self, body: GraphModule) -> GraphModule:
        run = Functionalizer(body, self.decompositions)
        graph = run.run()
        if run.mutated:
            writer = run.writers[next(iter(run.mutated))]
            raise LoweringError(
                "the body of a control-flow operator (cond, while_loop, map …) changes a tensor from outside it, which"
                " no functional program can express; return the new value from the body and write it outside",
                node=writer.name,
                location=user_location(writer) or self._location(),
            )
        if run.constants:
            raise LoweringError(
                "the body of a control-flow operator calls an operator whose decomposition makes a constant tensor;"
                " make the tensor outside and pass it in",
                node=str(self._origin),
                location=self._location(),
            )
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
            return self._stand_for(node, self._inline_body(*without_mode(node, self.module, self.decompositions.mode)))
        if node.target is operator.getitem and node.args[0] in self._results:
            return self._stand_for(node, self._results[node.args[0]][node.args[1]])  # type: ignore[index]
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
        if self._mutates and (results := self._views_of_composite(node, node.target)) is not None:
            return self._stand_for(node, results)
        value = self._call(node.target, args, kwargs, node, node.meta.get("val"))
        if self._mutates and (source := self._aliased_argument(node, value)) is not None:
            self._remember_view(node, source)
        return value

    def _call(self, op: OpOverload, args: Any, kwargs: Any, node: Node, val: Any = None) -> Value:
        """`op`, or what it stands for, on behalf of `node`; `val` is its fake value where that is known."""
        if not self.decompositions.applies_to(op, node):
            return self._emit(op, args, kwargs, val)
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

    def _inline_body(self, body: GraphModule, operands: Sequence[Any], pieces: Iterator[int] | None = None) -> Any:
        """A body takes the place of its call, node by node; its results, as nodes of the body."""
        outer, self.module, call = self.module, body, self._origin
        placeholders = [inner for inner in body.graph.nodes if inner.op == "placeholder"]
        for inner, operand in zip(placeholders, operands, strict=True):
            self._values[inner] = self._resolve(operand)
            if isinstance(operand, Node):
                self._views[inner] = _View(operand, None, (), {}, self._version(operand))
        for inner in body.graph.nodes:
            if inner.op == "output":
                break
            if inner.op != "placeholder":
                self._rebuild(inner, pieces)
        self.module, self._origin = outer, call
        return inner.args[0]

    def _views_of_composite(self, node: Node, op: OpOverload) -> Any:
        """`movedim`, `to`, `ravel` … taken apart into the views that they are, which may be none: their results, as
        nodes that stand for them. None where the result is a new tensor.

        What aliases what was decided when the program was exported, so the values of then are asked, not the new ones.
        """
        if op in DIRECT_DECOMPOSITIONS or not self.decompositions.applies_to(op, node):
            return None
        flat = pytree.tree_leaves((node.args, node.kwargs))
        if not all(isinstance(_vals(leaf), (torch.Tensor, *_SYMBOLIC)) for leaf in flat if isinstance(leaf, Node)):
            return None  # a list that one node gives
        fakes, fake_kwargs = _vals((node.args, node.kwargs))
        template, positions = self.decompositions.template(op, fakes, fake_kwargs, self._functional_template)
        if not gives_alias(template):
            return None
        return self._inline_body(_copy_for(template, node), [flat[i] for i in positions], count())

    def _stand_for(self, node: Node, results: Any) -> Value:
        """`node` is what was put in its place: `results` in its own structure, from now on under its name."""
        if isinstance(results, Node):
            self._views[node] = _View(results, None, (), {}, self._version(results))
        elif isinstance(results, (tuple, list)):
            self._results[node] = results
        return self._resolve(results)

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
        if node in self._results:
            return self._resolve(self._results[node])
        view = self._views.get(node)
        if view is not None and view.version != self._version(node):
            parent = self._current(view.parent)
            if view.op is None:
                self._values[node] = parent
            else:
                args = self._resolve(view.args)
                op = _FOR_ANY_LAYOUT.get(view.op, view.op)
                self._values[node] = (
                    self._call(op, (parent, *args), self._resolve(view.kwargs), node)
                    if isinstance(op, OpOverload)
                    else self._element(parent, *args)
                )
            view.version = self._version(node)
        return self._values[node]

    def _element(self, sequence: Value, index: int) -> Value:
        return self._emit(operator.getitem, (sequence, index), {}) if isinstance(sequence, Node) else sequence[index]

    def _aliased_argument(self, node: Node, value: Value) -> Node | None:
        """The argument that the result of `node`, now `value`, is a view of, or is."""
        if node.target in DIRECT_DECOMPOSITIONS:  # dropout may give its input
            return next((source for source in node.all_input_nodes if self._values[source] is value), None)
        return viewed_argument(node)

    def _remember_view(self, node: Node, source: Node) -> None:
        assert callable(node.target)
        op = None if is_same_tensor(node, source) else node.target
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
        if (functional := without_out(node.target)) is not None:
            return self._into_out(node, functional, args, kwargs)
        if node.target in _SET_VALUE:
            value = self._set_value(node, args)
        elif (twin := functional_twin(node.target)) is not None:
            value = self._call(twin, args, kwargs, node, node.meta.get("val"))
        else:
            return self._call_on_copies(node, node.target, args, kwargs)
        target = node.args[0] if node.args else node.kwargs[changed_arguments(node.target)[0]]
        assert isinstance(target, Node)
        self._assign(target, value)
        self._views[node] = _View(target, None, (), {}, self._version(target))
        return value

    def _into_out(self, node: Node, functional: OpOverload, args: Any, kwargs: Any) -> Value:
        """`mul.out(x, y, out=z)`: what `mul.Tensor` gives is what `z` and its aliases hold from now on."""
        assert isinstance(node.target, OpOverload)
        names = changed_arguments(node.target)
        outs = [node.kwargs[name] for name in names]
        value = self._call(functional, args, {k: v for k, v in kwargs.items() if k not in names}, node)
        for position, out in enumerate(outs):
            assert isinstance(out, Node)
            result = value if len(outs) == 1 else self._element(value, position)
            if _vals(result).dtype != _vals(out).dtype:
                result = self._emit(aten._to_copy.default, (result,), {"dtype": _vals(out).dtype})
            if out in self._views and tuple(_vals(result).shape) != tuple(_vals(out).shape):
                raise LoweringError(
                    f"{node.target} writes a result of shape {list(_vals(result).shape)} into a view of shape"
                    f" {list(_vals(out).shape)}; give it an out of the result's shape",
                    node=node.name,
                    location=user_location(node),
                )
            self._assign(out, result)
        return self._stand_for(node, outs[0] if len(outs) == 1 else outs)

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
            assert self._origin is not None
            self.writers.setdefault(node, self._origin)
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
        args, kwargs = self._resolve(view.args), self._resolve(view.kwargs)

        def call(op: OpOverload, *args: Any, **kwargs: Any) -> Value:
            return self._call(op, args, kwargs, node)

        inverse = VIEW_INVERSES.get(view.op)
        if inverse is not None:
            return inverse(call, parent, value, args, kwargs)
        assert isinstance(view.op, OpOverload)
        return scatter_by_index(call, view.op, parent, value, args, kwargs)

    def _location(self) -> str | None:
        return None if self._origin is None else user_location(self._origin)


# ---- operator facts --------------------------------------------------------------------------------

_KEPT_META = frozenset(
    {"stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node", "custom", "debug_handle", SOURCE}
)
_SET_VALUE = frozenset({aten.copy_.default})
_REMEDIES = {
    aten._native_batch_norm_legit.default: "it updates the statistics of a model in training mode: call model.eval()"
}
_FOR_ANY_LAYOUT: dict[Any, OpOverload] = {aten.view.default: aten.reshape.default}
"""A view that is made again may be of a value in another layout than the first one."""
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _has_mutation(graph: Graph) -> bool:
    return any(
        is_mode_region(node) or (isinstance(node.target, OpOverload) and changes_arguments(node.target))
        for node in graph.nodes
    )


def _copy_for(template: GraphModule, node: Node) -> GraphModule:
    """A template of its own for the call `node`: what its nodes stand for is remembered by node."""
    graph = Graph()
    graph.output(graph.graph_copy(template.graph, {}))
    for inner in graph.nodes:
        inner.meta = {**inner.meta, **{key: value for key, value in node.meta.items() if key in _KEPT_META}}
    return GraphModule(template, graph)


def _vals(arguments: Any) -> Any:
    """The fake values of the nodes in a structure."""
    return pytree.tree_map_only(Node, lambda node: node.meta["val"], arguments)
