"""Graph nodes -> instructions: one function for each kind of call."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, TypeAlias

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import GraphModule, Node
from torch.fx.node import Argument

from delegraph.aot.delegation.lowered_module import LoweredBackendModule, call_delegate
from delegraph.aot.edge import dim_order_ops  # noqa: F401 - registers them
from delegraph.aot.emission.instructions import MethodBuilder
from delegraph.aot.emission.symbolic_scalars import PRIM_OPERATORS, compose
from delegraph.aot.emission.values import ArgumentType, PlannedTensor, argument_types
from delegraph.aot.graph.bodies import output_producer, referenced
from delegraph.aot.graph.devices import device_of
from delegraph.aot.graph.fake_values import several
from delegraph.aot.graph.memory_use import MemoryUse, memory_use, part_of, piece_offsets
from delegraph.aot.graph.mutating_calls import auto_functionalized, called_operator, changed_arguments, first_copy
from delegraph.aot.graph.out_variants import OutVariant, gives_scalar, operator_of, out_variant
from delegraph.aot.graph.signature import HeldTensor, live_nodes
from delegraph.aot.graph.source_location import user_location
from delegraph.aot.graph.tensor_spec import Bounds, TensorSpec, result_spec, spec_of_tensor
from delegraph.errors import LoweringError, UnsupportedOperator
from delegraph.program.devices import CPU
from delegraph.program.schema import ExtraTensorInfo, Operator, TensorShapeDynamism

__all__ = ["EmitOptions", "GraphEmitter", "NodeValue"]

aten = torch.ops.aten

NodeValue: TypeAlias = "int | tuple[int, ...]"
"""The value of a node: an index, or one for each element of a tuple or list (whose elements may be lists)."""

_RUNTIME_NAMES: Final = {aten.item.default: Operator("aten::_local_scalar_dense")}
"""Operators that give a scalar and go by another name at run time."""

VIEW_COPY: Final = aten.view_copy.default
ET_VIEW: Final = Operator("executorch_prim::et_view", "default")


@dataclass(frozen=True, slots=True)
class EmitOptions:
    """The options of the configuration about single nodes."""

    unplanned: frozenset[Node] = frozenset()
    """Nodes whose results are graph outputs that get their memory at run time."""
    plan_devices: bool = True
    """Whether results that are on a device lie in its memory; else in the CPU's, with a remark."""


class GraphEmitter:
    """Emits one graph: a method's, or a body of control flow. `values` has its inputs before `run` is called."""

    def __init__(
        self,
        builder: MethodBuilder,
        module: GraphModule,
        bounds: Bounds,
        options: EmitOptions,
        constants: Mapping[Node, HeldTensor] | None = None,
    ) -> None:
        self.builder = builder
        self.module = module
        self.bounds = bounds
        self.options = options
        self.constants = constants or {}
        self.values: dict[Node, NodeValue] = {}
        builder.graphs.append(self.values)
        self.destinations: dict[tuple[Node, int], int] = {}
        """Results (node, position) that go into a tensor which is there already."""
        self.parts = _parts(module)
        """Results (node, position) that are a part of another's memory: of whose, and from which byte on."""
        self.pinned: set[int] = set()
        """Values whose memory is overwritten at the end: states, and inputs that are written back."""

    def run(self, roots: Sequence[object]) -> None:
        """Emit the nodes that `roots` need."""
        graph = self.module.graph
        live = live_nodes(graph, roots)
        for node in graph.nodes:
            if node in live and node not in self.values:
                self.builder.node = node
                self._emit(node)
        self.builder.node = None

    def value(self, node: object) -> NodeValue:
        """The value of `node`, or of a plain value."""
        return self.values[node] if isinstance(node, Node) else self.builder.constant(node)

    def index(self, node: object) -> int:
        """The value of `node`, which is a single one."""
        value = self.value(node)
        assert isinstance(value, int)
        return value

    def _emit(self, node: Node) -> None:
        if node in self.constants:
            self.values[node] = self.weight(node, self.constants[node])
        elif node.op == "get_attr":
            attribute = referenced(self.module, node)
            if isinstance(attribute, torch.Tensor):
                self.values[node] = self.constant(attribute)
        elif node.op == "call_function":
            try:
                self.values[node] = self._call(node)
            except LoweringError as error:
                raise error if error.node is not None else _at(node, error) from error

    def _call(self, node: Node) -> NodeValue:
        target = node.target
        if target is operator.getitem:
            values = self.value(node.args[0])
            assert isinstance(values, tuple)
            return values[node.args[1]]  # type: ignore[index]
        if isinstance(target, OpOverload):
            return self._operator(node, target)
        if isinstance(target, HigherOrderOperator):
            return self._higher_order(node, target)
        return self._scalar(node)

    # ---- operators -------------------------------------------------------------------------------------

    def _operator(self, node: Node, op: OpOverload) -> NodeValue:
        if gives_scalar(op):
            return self._scalar_operator(node, op)
        use = memory_use(node)
        if use is MemoryUse.VIEW or use is MemoryUse.RESIZED_VIEW:
            return self._view(node, use)
        if use is MemoryUse.PIECE:
            return self._pieces(node)
        if use is MemoryUse.WHOLE:
            return self._whole(node)
        call = _call_form(op)
        outs = self._outs(node) if call.variant.outs else ()
        args, written = self._arguments(node, call, outs)
        results = outs if call.variant.outs else tuple(written)
        self.builder.kernel(call.variant.operator, [*args, *self._return_slots(call, args, results)])
        return results if call.gives_many or len(results) != 1 else results[0]

    def _arguments(self, node: Node, call: _CallForm, outs: Sequence[int]) -> tuple[list[int], list[int]]:
        """The value of each schema argument, and those of arguments that the call writes in place."""
        table, fresh = self.builder.table, iter(outs)
        args: list[int] = []
        written: list[int] = []
        for kind, position, is_written in call.arguments:
            if kind.is_out:
                args.append(table.tensor_list(tuple(outs)) if kind.is_list else next(fresh))
                continue
            argument = node.args[position] if position < len(node.args) else node.kwargs.get(kind.name, kind.default)
            args.append(table.argument(argument, kind, self.value))
            if is_written:
                written.append(args[-1])
        return args, written

    def _on_copies(self, node: Node) -> NodeValue:
        """A kernel that changes its arguments, on copies of them: its results (or None), then the copies."""
        op, values, table = called_operator(node), node.meta["val"], self.builder.table
        assert op is not None
        call, changed = _call_form(op), changed_arguments(op)
        outs = {name: self.result(node, i, values[i]) for i, name in enumerate(call.variant.outs)}
        copies = {name: self._copied(node, i, node.kwargs[name]) for i, name in enumerate(changed, first_copy(op))}
        ready = {**outs, **{name: table.tensor_list(c) if isinstance(c, tuple) else c for name, c in copies.items()}}
        args = [
            ready[kind.name] if kind.name in ready else table.argument(node.kwargs[kind.name], kind, self.value)
            for kind, _, _ in call.arguments
        ]
        results = tuple(outs.values())
        slots = self._return_slots(call, args, results or (ready[changed[0]],))
        self.builder.kernel(call.variant.operator, [*args, *slots])
        emitted: tuple[Any, ...] = (*(results or (self.builder.constant(None),)), *copies.values())
        return emitted

    def _copied(self, node: Node, position: int, argument: Argument) -> NodeValue:
        """Copies, in memory of their own, of an argument: of a tensor, of a list of tensors, or None.

        A tensor that is changed in place is not copied.
        """
        if argument is None:
            return self.builder.constant(None)
        value = node.meta["val"][position]
        if any(_is_in_place(user) and user.args[1] == position for user in node.users):
            return self.index(argument)
        if not isinstance(argument, Node):
            return tuple(
                self._clone(node, position, leaf, source) for leaf, source in zip(value, several(argument), strict=True)
            )
        return self._clone(node, position, value, argument)

    def _clone(self, node: Node, position: int, value: torch.Tensor, source: Argument) -> int:
        copy = self.result(node, position, value)
        self.builder.clone(self.index(source), copy)
        return copy

    def _return_slots(self, call: _CallForm, args: Sequence[int], results: Sequence[int]) -> Sequence[int]:
        """After the schema's arguments come the returns: one tensor, or a list of several."""
        if call.out_is_list:
            return args[-1:]
        return results if len(results) <= 1 else (self.builder.table.tensor_list(results),)

    def _outs(self, node: Node) -> tuple[int, ...]:
        if _is_in_place(node):  # the out is the argument itself, as the kernels of updates allow
            return (self.index(node.args[0]),)
        value = node.meta["val"]
        leaves = value if isinstance(value, (tuple, list)) else (value,)
        return tuple(self.result(node, position, leaf) for position, leaf in enumerate(leaves))

    def _scalar_operator(self, node: Node, op: OpOverload) -> int:
        """An operator that gives a symbolic scalar: the schema's arguments, then the scalar."""
        kinds = argument_types(op._schema)
        arguments = [*node.args, *(node.kwargs.get(k.name, k.default) for k in kinds[len(node.args) :])]
        args = [
            self.builder.table.argument(value, kind, self.value) for value, kind in zip(arguments, kinds, strict=True)
        ]
        result = self.builder.table.variable(node.meta["val"])
        self.builder.kernel(_RUNTIME_NAMES.get(op) or operator_of(op), [*args, result])
        return result

    def _view(self, node: Node, use: MemoryUse) -> int:
        """A tensor over the memory of the first argument. Sizes known at run time take an instruction, but no copy."""
        base, table = self.index(node.args[0]), self.builder.table
        view = table.alias(self.bounds.spec(node.meta["val"], node), base)
        if use is MemoryUse.RESIZED_VIEW:
            sizes = table.argument(node.args[1], argument_types(VIEW_COPY._schema)[1], self.value)
            self.builder.kernel(ET_VIEW, [base, sizes, view])
        return view

    def _pieces(self, node: Node) -> NodeValue:
        """A tensor, or several, over a part of the memory of the first argument."""
        base, value = self.index(node.args[0]), node.meta["val"]
        many = isinstance(value, (tuple, list))
        pieces = tuple(
            self.builder.table.alias(self.bounds.spec(piece, node), base, offset)
            for piece, offset in zip(value if many else (value,), piece_offsets(node), strict=True)
        )
        return pieces if many else pieces[0]

    def _whole(self, node: Node) -> int:
        """A `cat` whose parts are in place, or most of them: the others are copied there."""
        table, whole = self.builder.table, self.result(node, 0, node.meta["val"])
        offset = 0
        for source in node.args[0]:  # type: ignore[union-attr]
            part = self.index(source)
            spec = table.specs[part]
            # a part that is not in place already
            if table.root(part) != table.root(whole) or table.offset(part) != table.offset(whole) + offset:
                self.builder.clone(part, table.alias(spec, whole, offset))
            offset += spec.nbytes
        return whole

    # ---- scalars ---------------------------------------------------------------------------------------

    def _scalar(self, node: Node) -> int:
        """Python arithmetic on symbolic scalars."""
        args = node.args[0] if node.target is torch.sym_sum else node.args
        assert isinstance(args, (tuple, list))
        args = [argument for argument in args if argument is not None]  # `round(x, None)`
        operands = [self.index(argument) for argument in args]
        name = PRIM_OPERATORS.get(node.target)
        if name is not None:
            return self.builder.prim(name, operands, node.meta["val"])
        return compose(node.target, args, self.builder, operands)

    # ---- delegates and control flow --------------------------------------------------------------------

    def _higher_order(self, node: Node, target: HigherOrderOperator) -> NodeValue:
        from delegraph.aot.emission.control_flow import CONTROL_FLOW  # bodies are emitted by this module again

        if target is call_delegate:
            return self._delegate(node)
        if target is auto_functionalized:
            return self._on_copies(node)
        emit = CONTROL_FLOW.get(str(target))
        if emit is None:
            known = ", ".join(["call_delegate", *CONTROL_FLOW])
            raise UnsupportedOperator(f"the higher-order operator {target} cannot run on a device; these can: {known}")
        return emit(self, node)

    def _delegate(self, node: Node) -> tuple[int, ...]:
        reference, *inputs = node.args
        lowered = referenced(self.module, reference)  # type: ignore[arg-type]
        assert isinstance(lowered, LoweredBackendModule)
        args = [self.index(argument) for argument in inputs]
        outs = self._outs(node)
        self.builder.delegate(lowered, [*args, *outs])
        return outs

    def body(self, reference: Argument) -> GraphEmitter:
        """An emitter for the body that a get_attr node refers to."""
        assert isinstance(reference, Node)
        module = referenced(self.module, reference)
        assert isinstance(module, GraphModule)
        # nodes of a body are no outputs of the method: all of them get planned memory
        emitter = GraphEmitter(self.builder, module, self.bounds, replace(self.options, unplanned=frozenset()))
        emitter.pinned = self.pinned
        return emitter

    # ---- tensors ---------------------------------------------------------------------------------------

    def result(self, node: Node, position: int, value: torch.Tensor | complex | None, dynamic: bool = False) -> int:
        """The tensor (or scalar) for the result of `node` at `position`: new, or the one it is to be written to."""
        known = self.destinations.get((node, position))
        if known is not None:
            return known
        if (node, position) in self.parts:
            assert isinstance(value, torch.Tensor)
            whole, offset = self.parts[node, position]  # decided by `PartElision`: written there straight away
            return self.builder.table.alias(self._spec(node, value), self._home(whole), offset)
        if value is None:
            return self.builder.table.empty_tensor()
        if not isinstance(value, torch.Tensor):
            return self.builder.table.variable(value)
        spec = self._spec(node, value)
        if dynamic:
            spec = replace(spec, dynamism=TensorShapeDynamism.DYNAMIC_BOUND)
        return self.tensor(node, spec, None if self._is_unplanned(node, position) else _memory_id(node, position))

    def _home(self, whole: Node) -> int:
        """The tensor of a whole, which is there before its first part."""
        home = self.result(whole, 0, whole.meta["val"])
        self.destinations[whole, 0] = home
        return home

    def tensor(self, node: Node, spec: TensorSpec, memory_id: int | None) -> int:
        """A tensor of `node`, on its device, in memory `memory_id` (None: it gets memory at run time)."""
        device = device_of(node)
        extra = None if device == CPU else ExtraTensorInfo(device_type=device.type, device_index=device.index)
        if memory_id is None:
            return self.builder.table.tensor(spec, None, extra=extra)
        if device == CPU or not self.options.plan_devices:
            return self.builder.table.tensor(spec, PlannedTensor(spec.nbytes, memory_id), extra=extra)
        if memory_id != 1:
            raise LoweringError(
                f"meta['memory_id'] is {memory_id}, a memory of the CPU's, but the tensor lies on {device}, which has a"
                " memory of its own; leave memory_id off what a delegate for a device gives"
            )
        return self.builder.table.tensor(spec, PlannedTensor(spec.nbytes, device=device), extra=extra)

    def _spec(self, node: Node, value: torch.Tensor) -> TensorSpec:
        """How the result `value` of `node` lies in memory."""
        sources = (self.values.get(source) for source in node.all_input_nodes)
        specs = (self.builder.table.specs.get(source) for source in sources if isinstance(source, int))
        return result_spec(node, self.bounds.spec(value, node), [spec for spec in specs if spec is not None])

    def _is_unplanned(self, node: Node, position: int) -> bool:
        unplanned = self.options.unplanned
        if not unplanned or not isinstance(node.meta.get("val"), (tuple, list)):
            return node in unplanned
        return any(u.target is operator.getitem and u.args[1] == position and u in unplanned for u in node.users)

    def weight(self, node: Node, stored: HeldTensor) -> int:
        """A tensor that the model brings with it."""
        return self.constant(stored.tensor)

    def constant(self, tensor: torch.Tensor) -> int:
        """A tensor whose bytes are in the program."""
        spec = spec_of_tensor(tensor)
        return self.builder.table.tensor(spec, None, self.builder.data.constants.add_tensor(tensor, spec.dim_order))


@dataclass(frozen=True, slots=True)
class _CallForm:
    """How a call of a functional operator is written: per argument of the out variant its kind, its position in the
    functional schema, and whether it is written in place."""

    variant: OutVariant
    arguments: tuple[tuple[ArgumentType, int, bool], ...]
    gives_many: bool

    @property
    def out_is_list(self) -> bool:
        return any(kind.is_out and kind.is_list for kind, _, _ in self.arguments)


@cache
def _call_form(op: OpOverload) -> _CallForm:
    variant = out_variant(op)
    position = {argument.name: i for i, argument in enumerate(op._schema.arguments)}
    schema = variant.schema
    arguments = tuple(
        (kind, position.get(kind.name, -1), argument.alias_info is not None and argument.alias_info.is_write)
        for kind, argument in zip(argument_types(schema), schema.arguments, strict=True)
    )
    returns = op._schema.returns
    gives_many = len(returns) != 1 or returns[0].type.kind() == "ListType"
    return _CallForm(variant, arguments, gives_many)


def _is_in_place(node: Node) -> bool:
    return memory_use(node) is MemoryUse.IN_PLACE


def _parts(module: GraphModule) -> dict[tuple[Node, int], tuple[Node, int]]:
    by_name = {node.name: node for node in module.graph.nodes}
    parts: dict[tuple[Node, int], tuple[Node, int]] = {}
    for node in module.graph.nodes:
        part, producer = part_of(node), output_producer(node)
        if part is not None and producer is not None:
            parts[producer] = by_name[part[0]], part[1]
    return parts


def _memory_id(node: Node, position: int) -> int:
    """The memory that a pass asked for in `meta["memory_id"]`: one for all results, or one for each."""
    ids = node.meta.get("memory_id", 1)
    return int(ids[position] if isinstance(ids, (tuple, list)) else ids)


def _at(node: Node, error: LoweringError) -> LoweringError:
    return type(error)(str(error), node=node.name, location=user_location(node))
