"""A call, on behalf of a node of the old graph -> nodes of the new graph: the call itself, or what it stands for.

    origin             asked for             added to the new graph
    y = linear(x, w)   call(linear, x, w)    t = permute(w, [1, 0])     `linear/0`
                                             y = mm(x, t)               `linear/1`

Added nodes have the origin's line of user code and, where the origin is taken apart, a name as its piece
(`graph.provenance`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import TypeAlias

import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import Argument, map_arg
from torch.fx.traceback import NodeSource, NodeSourceAction
from torch.utils import _pytree as pytree

from delegraph.aot.functional.decompose import Decompositions
from delegraph.aot.functional.direct_decompositions import DIRECT_DECOMPOSITIONS
from delegraph.aot.functional.operand_dtypes import in_operators_dtypes
from delegraph.aot.functional.unbacked_sizes import Sizes, in_sizes, sizes_of_call
from delegraph.aot.graph.debug_handles import DEBUG_HANDLE
from delegraph.aot.graph.edit import unused_name
from delegraph.aot.graph.fake_values import Args, Kwargs, fake_values
from delegraph.aot.graph.provenance import MEMORY_FORMAT, OPERAND, SOURCE, mark_piece
from delegraph.aot.graph.result_dtypes import dtypes_of, names_of, result_dtypes
from delegraph.aot.graph.schema_binding import bind_schema
from delegraph.aot.graph.source_location import user_location
from delegraph.errors import LoweringError

__all__ = ["GraphBuilder", "Value"]

Value: TypeAlias = Argument
"""A graph value of the new graph: a Node, a list of them, or a plain value."""

_INHERITED = frozenset(
    {
        *("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node", "custom"),
        *(DEBUG_HANDLE, SOURCE, OPERAND, MEMORY_FORMAT),
    }
)


class GraphBuilder:
    """The new graph as it grows, and `constants`, the tensors that decompositions made up, by name.

    `functional` rids a decomposition that was traced of its in-place calls; `debug_handles` are those of the old nodes.
    """

    def __init__(
        self,
        decompositions: Decompositions,
        taken_names: frozenset[str],
        functional: Callable[[GraphModule], GraphModule],
        debug_handles: Mapping[Node, int],
    ) -> None:
        self.graph = Graph()
        self.constants: dict[str, torch.Tensor] = {}
        self.decompositions = decompositions
        self.origin: Node | None = None
        """The node of the old graph for which calls are added."""
        self._taken_names = taken_names
        self._functional = functional
        self._debug_handles = debug_handles
        self._pieces: Iterator[int] | None = None
        """Numbers for the calls that `origin` is decomposed into; None while it is copied."""

    def start(self, origin: Node, pieces: Iterator[int] | None = None) -> None:
        """From now on calls are added for `origin`; `pieces` are numbers for them where it is itself a piece."""
        self.origin, self._pieces = origin, pieces

    @property
    def location(self) -> str | None:
        """The origin's line of user code."""
        return None if self.origin is None else user_location(self.origin)

    def inherited_meta(self, node: Node) -> dict[str, object]:
        """The part of the `meta` of `node` that nodes made for it share: where it comes from, not its value."""
        meta = {key: value for key, value in node.meta.items() if key in _INHERITED}
        meta.setdefault("from_node", [NodeSource(node, "functionalize", NodeSourceAction.CREATE)])
        if node in self._debug_handles:
            meta[DEBUG_HANDLE] = self._debug_handles[node]
        return meta

    def call(self, op: OpOverload, args: Args, kwargs: Kwargs, node: Node, val: object = None) -> Value:
        """`op`, or what it stands for, on behalf of `node`; `val` is its fake value where that is known.

        Raises `LoweringError` where torch's decomposition computes in another dtype than the operator.
        """
        args, kwargs = in_operators_dtypes(op, args, kwargs, self.cast)  # before a decomposition promotes otherwise
        whole = None if op is node.target else self._kept(op, args, kwargs, val)
        if whole is not None:
            return whole
        if not self.decompositions.applies_to(op, node):
            return self.emit(op, args, kwargs, val)
        value = self._decomposed(op, args, kwargs, node)
        actual, due = dtypes_of(fake_values(value)), result_dtypes(op, args, kwargs)
        if due is not None and len(actual) == len(due) and actual != due:
            raise LoweringError(
                f"the decomposition of {op} gives {names_of(actual)} where the operator gives {names_of(due)};"
                " cast its arguments to one dtype",
                node=node.name,
                location=user_location(node),
            )
        return value

    def _kept(self, op: OpOverload, args: Args, kwargs: Kwargs, val: object) -> Value | None:
        """The call of `op` that stands for an in-place one, if a filter over its calls keeps it whole. The filter is
        asked about this functional call: nobody keeps calls that write."""
        if not self.decompositions.chooses(op):
            return None
        call = self.emit(op, args, kwargs, val)
        if not self.decompositions.declines(op, call):
            return call
        self.graph.erase_node(call)  # filters look at nodes, so one was made to be asked about
        return None

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        """A tensor of the graph in `dtype`."""
        if fake_values(value).dtype == dtype:
            return value
        return self.emit(torch.ops.aten._to_copy.default, (value,), {"dtype": dtype})

    def _decomposed(self, op: OpOverload, args: Args, kwargs: Kwargs, node: Node) -> Value:
        self._pieces = self._pieces or count()
        form = DIRECT_DECOMPOSITIONS.get(op)
        if form is not None and "val" in node.meta:
            value = form(self.emit, bind_schema(op, args, kwargs), node.meta["val"])
            if value is not None:
                return value
        template, positions = self.template(op, *fake_values((args, kwargs)))
        flat = pytree.tree_leaves((args, kwargs))
        sizes = sizes_of_call(template, node.meta.get("val"))
        return self._inline(template, [flat[i] for i in positions], sizes)

    def emit(self, target: Callable[..., object], args: Args, kwargs: Kwargs, val: object = None) -> Node:
        """The call itself; its fake value is computed where `val` does not give it."""
        node = self.graph.create_node("call_function", target, tuple(args), dict(kwargs))
        assert self.origin is not None
        node.meta = self.inherited_meta(self.origin)
        if self._pieces is not None:
            mark_piece(node, next(self._pieces))
        if val is None:
            with self.decompositions.mode:
                fakes, fake_kwargs = fake_values((args, kwargs))
                val = target(*fakes, **fake_kwargs)
        node.meta["val"] = val
        return node

    def element(self, sequence: Value, index: int) -> Value:
        """An element of a tuple that one node gives, or of a list of values."""
        if isinstance(sequence, Node):
            return self.emit(operator.getitem, (sequence, index), {})
        assert isinstance(sequence, (list, tuple))
        return sequence[index]

    def template(self, op: OpOverload, args: Args, kwargs: Kwargs) -> tuple[GraphModule, list[int]]:
        """The graph that `op` stands for on these fake values; where its inputs are in the flattened arguments."""
        return self.decompositions.template(op, args, kwargs, self._functional)

    def _inline(self, template: GraphModule, inputs: list[Value], sizes: Sizes) -> Value:
        values: dict[Node, Value] = {}
        remaining = iter(inputs)
        for node in template.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(remaining)
            elif node.op == "get_attr":
                values[node] = self.lift(getattr(template, str(node.target)), node.meta.get("val"))
            elif node.op == "output":
                results: Value = map_arg(node.args[0], values.__getitem__)
                return results
            else:
                args, kwargs = pytree.tree_map_only(Node, values.__getitem__, (node.args, dict(node.kwargs)))
                if node.target is operator.getitem and not isinstance(args[0], Node):
                    values[node] = args[0][args[1]]
                else:
                    with self.decompositions.mode:
                        val = in_sizes(node.meta.get("val"), sizes)
                    values[node] = self._inlined(node.target, args, kwargs, val)
        raise AssertionError("a traced template always has an output node")

    def _inlined(self, target: Callable[..., object], args: Args, kwargs: Kwargs, val: object) -> Value:
        """A call of a template, which keeps an operator whole wherever some call of it is to be kept."""
        call = self.emit(target, args, kwargs, val)
        if not isinstance(target, OpOverload) or not self.decompositions.declines(target, call):
            return call
        value = self._decomposed(target, args, kwargs, call)
        self.graph.erase_node(call)
        return value

    def lift(self, tensor: torch.Tensor, val: object) -> Node:
        """A tensor that a decomposition made up: becomes a lifted constant of the program."""
        name = unused_name("_decomposition_constant", self.constants, self._taken_names)
        self.constants[name] = tensor
        first = next(iter(self.graph.nodes), None)  # placeholders of constants stand before those of inputs
        with self.graph.inserting_before(first) if first is not None else self.graph.inserting_after(None):
            node = self.graph.placeholder(f"c{name}")
        node.meta["val"] = val if val is not None else self.decompositions.mode.from_tensor(tensor)
        node.meta["constant_name"] = name
        if self.origin is not None and self._pieces is not None and SOURCE in self.origin.meta:
            node.meta[SOURCE] = self.origin.meta[SOURCE]
            mark_piece(node, next(self._pieces))
        return node
