"""A graph of ATen calls -> a functional graph of core ATen calls, made anew node by node.

Mutation is resolved as torch's functionalisation does it, but on the graph: a view remembers the call that made it, an
in-place call gives its base a new value, and a view whose base has moved on is made again before it is next read:

    t = x * 2                        t = x * 2
    row = t[1]                       row = t[1]
    row.add_(1)                      row' = row + 1;  t' = select_scatter(t, row', 0, 1)
    return t.t(), row                return t'.t(), row'

This file walks over the nodes. `view_versions.py` knows the value of each node, and how a write reaches its base;
`writing_calls.py` replaces calls that change their arguments; `graph_builder.py` decomposes calls.

A composite operator that gives a view (`movedim`, `to` where it has nothing to do …) is first taken apart into the
views that it is, which are remembered each.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import sympy
import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import Argument
from torch.utils import _pytree as pytree

from delegraph.aot.functional.aliases import gives_alias, viewed_argument
from delegraph.aot.functional.auto_functionalized import auto_functionalized_v2, call_on_bases
from delegraph.aot.functional.decompose import Decompositions
from delegraph.aot.functional.direct_decompositions import DIRECT_DECOMPOSITIONS
from delegraph.aot.functional.graph_builder import GraphBuilder, Value
from delegraph.aot.functional.mode_regions import is_mode_region, without_mode
from delegraph.aot.functional.operand_dtypes import CONVERTED
from delegraph.aot.functional.view_versions import VersionedValues
from delegraph.aot.functional.writing_calls import WritingCalls
from delegraph.aot.graph.fake_values import fake_tensor, fake_values
from delegraph.aot.graph.mutating_calls import changes_arguments, on_copies
from delegraph.aot.graph.schema_binding import bind_schema
from delegraph.aot.graph.size_arithmetic import complete, size_calls
from delegraph.aot.graph.source_location import user_location
from delegraph.aot.torch_internals import is_contiguous_or_false
from delegraph.errors import DelegraphError, LoweringError

__all__ = ["FunctionalGraph", "functional_graph"]


@dataclass(frozen=True, slots=True)
class FunctionalGraph:
    """A graph made anew. `root` holds what its get_attr nodes refer to, `constants` what decompositions made up.

    `mutated` has the new value of each placeholder of the old graph that was written to, which are the graph's first
    outputs, and `writers` the first call that did.
    """

    graph: Graph
    root: Mapping[str, object]
    constants: Mapping[str, torch.Tensor]
    mutated: Mapping[Node, Node]
    writers: Mapping[Node, Node]


def functional_graph(
    module: GraphModule,
    decompositions: Decompositions,
    debug_handles: Mapping[Node, int],
    taken_names: frozenset[str] = frozenset(),
) -> FunctionalGraph:
    """`module`'s graph made anew; it stays as it is. No new constant gets one of `taken_names`; what is made for a node
    has its debug handle.

    Raises `LoweringError` for a mutation that cannot be expressed, or a call that torch cannot trace.
    """
    return _Functionalizer(module, decompositions, debug_handles, taken_names).run()


class _Functionalizer:
    """Rebuilds one graph; control-flow bodies are rebuilt by functionalizers of their own."""

    def __init__(
        self,
        module: GraphModule,
        decompositions: Decompositions,
        debug_handles: Mapping[Node, int],
        taken_names: frozenset[str],
    ) -> None:
        self._module = module
        self._decompositions = decompositions
        self._root: dict[str, object] = {}
        self._debug_handles = debug_handles
        self._new = GraphBuilder(decompositions, taken_names, self._functional_template, debug_handles)
        self._values = VersionedValues(self._new)
        self._writing_calls = WritingCalls(self._new, self._values)
        # without a write nobody can tell a view from a copy, and most graphs have none
        self._tracks_views = _has_mutation(module.graph) or _shows_memory(module.graph)

    def run(self) -> FunctionalGraph:
        for node in self._module.graph.nodes:  # in order: a node sees the writes before it, and none behind it
            self._rebuild(node)
        graph = self._new.graph
        graph.eliminate_dead_code()
        graph.lint()
        return FunctionalGraph(graph, self._root, self._new.constants, self._values.mutated(), self._values.writers)

    def _rebuild(self, node: Node, pieces: Iterator[int] | None = None) -> None:
        """Make `node` anew; `pieces` are numbers for its calls where it is itself a piece of a decomposed call."""
        self._new.start(node, pieces)
        try:
            self._values.define(node, getattr(self, f"_{node.op}")(node))
        except DelegraphError:
            raise
        except Exception as error:  # torch's, from fake values or a decomposition: of any class
            reason = str(error).partition("\n")[0]
            raise LoweringError(
                f"torch cannot trace what {node.target} stands for: {type(error).__name__}: {reason}",
                node=node.name,
                location=user_location(node),
            ) from error

    # ---- what is not a call ------------------------------------------------------------------------

    def _placeholder(self, node: Node) -> Value:
        copied = self._new.graph.node_copy(node)
        copied.name = node.name  # the signature refers to it; the graph would rename `input`, a Python builtin
        return copied

    def _get_attr(self, node: Node) -> Value:
        if all(is_mode_region(user) for user in node.users):  # the region's call inlines it
            return None
        attribute = operator.attrgetter(str(node.target))(self._module)
        if isinstance(attribute, torch.Tensor):
            return self._new.lift(attribute, node.meta.get("val"))
        if isinstance(attribute, GraphModule):
            attribute = self._functional_body(attribute)
        copied = self._new.graph.node_copy(node)
        copied.meta.update(self._new.inherited_meta(node))
        while self._root.get(str(copied.target), attribute) is not attribute:  # a region's body has names of its own
            copied.target = f"{copied.target}_inner"
        self._root[str(copied.target)] = attribute
        return copied

    def _functional_body(self, body: GraphModule) -> GraphModule:
        functional = functional_graph(body, self._decompositions, self._debug_handles)
        if functional.mutated:
            writer = functional.writers[next(iter(functional.mutated))]
            raise LoweringError(
                "the body of a control-flow operator (cond, while_loop, map …) changes a tensor from outside it, which"
                " no functional program can express; return the new value from the body and write it outside",
                node=writer.name,
                location=user_location(writer) or self._new.location,
            )
        if functional.constants:
            raise LoweringError(
                "the body of a control-flow operator calls an operator whose decomposition makes a constant tensor;"
                " make the tensor outside and pass it in",
                node=str(self._new.origin),
                location=self._new.location,
            )
        return GraphModule(dict(functional.root), functional.graph)

    def _functional_template(self, template: GraphModule) -> GraphModule:
        """A decomposition as torch writes it may change its own intermediates: those in-place calls go."""
        if not _has_mutation(template.graph):
            return template
        return self._functional_body(template)

    def _output(self, node: Node) -> Value:
        self._part_new_values()
        results, mutated = node.args[0], tuple(self._values.mutated().values())
        if isinstance(results, (tuple, list)) or mutated:
            several = results if isinstance(results, (tuple, list)) else (results,)
            copied: Node = self._new.graph.output(mutated + tuple(self._values.resolve(several)))
        else:  # a result alone, as the condition of a loop has it: torch runs it as it is
            copied = self._new.graph.output(self._values.resolve((results,))[0])
        copied.meta = dict(node.meta)
        return copied

    def _part_new_values(self) -> None:
        """Give each placeholder that was written to a new value of its own: signatures tell outputs by their names.

        a.copy_(y); b.copy_(y)        a = y; b = clone(y)
        """
        taken: set[Node] = set()
        for placeholder, value in self._values.mutated().items():
            if value in taken:
                self._values.define(placeholder, self._new.emit(torch.ops.aten.clone.default, (value,), {}))
            taken.add(value)

    # ---- calls -------------------------------------------------------------------------------------

    def _call_function(self, node: Node) -> Value:
        if is_mode_region(node):
            body, operands = without_mode(node, self._module, self._decompositions.mode)
            return self._values.stand_for(node, self._inline_body(body, operands))
        if node.target is operator.getitem:
            return self._getitem(node)
        args, kwargs = self._values.resolve(node.args), self._values.resolve(node.kwargs)
        called = args[0] if args else None
        if node.target is auto_functionalized_v2 and isinstance(called, OpOverload) and on_copies(called):
            return call_on_bases(node, self._new.emit, self._new.element, kwargs)
        if not isinstance(node.target, OpOverload):
            assert callable(node.target)
            return self._new.emit(node.target, args, kwargs, node.meta.get("val"))
        if node.target == aten.as_strided.default:
            return self._strided(node)
        if changes_arguments(node.target):
            return self._writing_calls.rebuild(node, args, kwargs)
        if self._tracks_views and (results := self._views_of_composite(node, node.target)) is not None:
            return self._values.stand_for(node, results)
        value = self._new.call(node.target, args, kwargs, node, node.meta.get("val"))
        if self._tracks_views and (source := self._aliased_argument(node, value)) is not None:
            self._values.view(node, source)
        return value

    def _strided(self, node: Node) -> Value:
        """`as_strided` shows the memory of its argument, wherever that lies in it: a view of the base."""
        source = node.args[0]
        assert isinstance(source, Node)
        base = self._values.base(source)
        old, memory = fake_tensor(source), fake_tensor(base)
        if not is_contiguous_or_false(memory) or memory.dtype != old.dtype:
            raise LoweringError(
                "as_strided shows memory that is not laid out here as in torch: that of a tensor which is not"
                " contiguous, or of another dtype; call it on a contiguous tensor (`.contiguous()`)",
                node=node.name,
                location=user_location(node),
            )
        _, size, stride, offset = bind_schema(aten.as_strided.default, node.args, node.kwargs)
        begins = old.storage_offset() if offset is None else fake_values(offset)
        start = self._size(begins - memory.storage_offset(), node)
        self._values.strided_view(node, base, (size, stride, start))
        arguments = self._values.resolve((base, size, stride, start))
        return self._new.call(aten.as_strided.default, arguments, {}, node)

    def _size(self, size: int | torch.SymInt, node: Node) -> int | Node:
        """A size that no node of the old graph has, for the call `node`: computed from those of the inputs."""
        if isinstance(size, int) or size.node.expr.is_number:
            return int(size)
        expression, graph = size.node.expr, self._new.graph
        symbols = {symbol: self._symbol(symbol) for symbol in sorted(expression.free_symbols, key=str)}
        read = set(graph.nodes)
        result = None if None in symbols.values() else size_calls(expression, symbols, graph)  # type: ignore[arg-type]
        if result is None:
            raise LoweringError(
                f"as_strided shows memory from element {size} on, which the sizes of the inputs do not tell; call it"
                " on a copy of the part (`.clone()`)",
                node=node.name,
                location=user_location(node),
            )
        for call in graph.nodes:
            if call not in read:
                complete(call, self._new.inherited_meta(node), expression)
        self._values.define(result, result)
        return result

    def _symbol(self, symbol: sympy.Symbol) -> Node | None:
        """A node of the new graph with this size, which one of its inputs is or has."""
        source: Node
        for source in self._new.graph.find_nodes(op="placeholder"):
            value = source.meta.get("val")
            if isinstance(value, torch.SymInt) and value.node.expr == symbol:
                return source
            for dim, length in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if isinstance(length, torch.SymInt) and length.node.expr == symbol:
                    return self._new.emit(aten.sym_size.int, (source, dim), {})
        return None

    def _getitem(self, node: Node) -> Value:
        """An element of what a call gives: of its node, or of the list that stands in its place."""
        source, index = node.args
        assert isinstance(source, Node)
        if (results := self._values.results(source)) is not None:
            assert isinstance(index, int)
            return self._values.stand_for(node, self._new.element(results, index))
        args = self._values.resolve(node.args)
        if self._values.is_view(source):
            self._values.view(node, source)
        if isinstance(args[0], Node):
            return self._new.emit(operator.getitem, args, {}, node.meta.get("val"))
        assert isinstance(index, int)
        return self._new.element(args[0], index)

    def _inline_body(
        self, body: GraphModule, operands: Sequence[Argument], pieces: Iterator[int] | None = None
    ) -> Argument:
        """A body takes the place of its call, node by node; its results, as nodes of the body."""
        outer, self._module, call = self._module, body, self._new.origin
        placeholders = [inner for inner in body.graph.nodes if inner.op == "placeholder"]
        for inner, operand in zip(placeholders, operands, strict=True):
            self._values.define(inner, self._values.resolve(operand))
            if isinstance(operand, Node):
                self._values.rename(inner, operand)
        for inner in body.graph.nodes:
            if inner.op == "output":
                break
            if inner.op != "placeholder":
                self._rebuild(inner, pieces)
        self._module, self._new.origin = outer, call
        results: Argument = inner.args[0]
        return results

    def _views_of_composite(self, node: Node, op: OpOverload) -> Argument:
        """`movedim`, `to`, `ravel` … taken apart into the views that they are, which may be none: their results, as
        nodes that stand for them. None where the result is a new tensor.

        Which tensors share memory was decided at export, so the fake values of then are asked, not the new ones.
        """
        if op in DIRECT_DECOMPOSITIONS or op in CONVERTED or not self._decompositions.applies_to(op, node):
            return None
        flat = pytree.tree_leaves((node.args, node.kwargs))
        if not all(
            isinstance(fake_values(leaf), (torch.Tensor, *_SYMBOLIC)) for leaf in flat if isinstance(leaf, Node)
        ):
            return None  # a list that one node gives
        template, positions = self._new.template(op, *fake_values((node.args, node.kwargs)))
        if not gives_alias(template):
            return None
        return self._inline_body(self._copy_for(template, node), [flat[i] for i in positions], count())

    def _copy_for(self, template: GraphModule, node: Node) -> GraphModule:
        """A template of its own for the call `node`: what its nodes stand for is remembered by node."""
        graph = Graph()
        graph.output(graph.graph_copy(template.graph, {}))
        for inner in graph.nodes:
            inner.meta = {**inner.meta, **self._new.inherited_meta(node)}
        return GraphModule(template, graph)

    def _aliased_argument(self, node: Node, value: Value) -> Node | None:
        """The argument that the result of `node`, now `value`, is a view of, or is."""
        if node.target in DIRECT_DECOMPOSITIONS:  # dropout may give its input
            return next((source for source in node.all_input_nodes if self._values.current(source) is value), None)
        return viewed_argument(node)


aten = torch.ops.aten

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _has_mutation(graph: Graph) -> bool:
    return any(
        is_mode_region(node) or (isinstance(node.target, OpOverload) and changes_arguments(node.target))
        for node in graph.nodes
    )


def _shows_memory(graph: Graph) -> bool:
    return any(node.target == aten.as_strided.default for node in graph.nodes)
