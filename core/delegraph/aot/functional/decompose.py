"""One operator call -> the core ATen calls it stands for, traced once per argument signature.

torch's `ExportedProgram.run_decompositions` re-traces the whole program each time it is called. Here a call is
traced alone, on fake tensors, and the little graph (a *template*) is inlined wherever the same signature recurs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Final, TypeAlias

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import Node
from torch.utils import _pytree as pytree

from delegraph.aot.functional.index_writes import index_add, index_copy
from delegraph.aot.functional.roll import roll
from delegraph.aot.functional.rrelu import RRELU
from delegraph.aot.functional.trilinear import trilinear
from delegraph.aot.functional.upsampling import UPSAMPLING
from delegraph.aot.graph.fake_values import Args, Kwargs
from delegraph.aot.torch_internals import (
    dispatch_has_kernel,
    enable_python_dispatcher,
    get_decompositions,
    is_preservable_composite,
    mkldnn_enabled,
    override_composites,
    preserve_composite,
    set_mkldnn_enabled,
)

aten = torch.ops.aten

__all__ = ["Decompositions", "Keep", "NodeFilter", "call_form", "fresh", "is_composite", "of_inputs"]

NodeFilter: TypeAlias = Callable[[Node], bool]

Keep: TypeAlias = Mapping[OpOverload, NodeFilter | None]
"""Operators to keep whole, each with a filter over its nodes (None: all of them)."""

_NEVER = frozenset({"aten::sym_size", "aten::sym_stride", "aten::sym_numel", "aten::sym_storage_offset"})


_OUR_OWN: Final[dict[OpOverload, Callable[..., object]]] = {
    aten._trilinear.default: trilinear,
    aten.index_add.default: index_add,
    aten.index_copy.default: index_copy,
    aten.roll.default: roll,
    **RRELU,
    **UPSAMPLING,
    torch.ops.prims.copy_strided.default: lambda x, _stride: x,  # strides are what the edge program makes of them
}


_MADE_FUNCTIONAL: Final = {aten.index_add_.default, aten.index_copy_.default}
"""Left to functionalization, behind which a backend may keep what they become whole."""


@cache
def core_aten_table() -> dict[OpOverload, Callable[..., object]]:
    """torch's default decompositions to core ATen, `linalg_vector_norm` as ExecuTorch adds it, and our own."""
    table = dict(torch.export.default_decompositions().items())
    extra = get_decompositions([torch.ops.aten.linalg_vector_norm.default])
    rules = {**table, **extra, **_OUR_OWN}
    return {op: rule for op, rule in rules.items() if isinstance(op, OpOverload) and op not in _MADE_FUNCTIONAL}


@cache
def is_composite(op: OpOverload) -> bool:
    """Whether `op` is to be decomposed: core ATen has a decomposition of it, or its own definition is one."""
    if op._schema.name in _NEVER or op.namespace == "dim_order_ops":  # composite only where ExecuTorch defined them
        return False
    if op in core_aten_table():
        return True
    return dispatch_has_kernel(op.name(), "CompositeImplicitAutograd")


class Decompositions:
    """Templates for one lowering. `mode` is the fake tensor mode of the program's values; with `only`, no call is
    decomposed that it does not accept."""

    def __init__(self, mode: FakeTensorMode, keep: Keep, only: NodeFilter | None = None) -> None:
        self.mode = mode
        self._keep = keep
        self._only = only
        self._table = {op: rule for op, rule in core_aten_table().items() if op not in keep}
        self._kept_inside = {op: preserve_composite for op in keep if is_preservable_composite(op)}
        self._templates: dict[object, GraphModule] = {}

    def applies_to(self, op: OpOverload, node: Node) -> bool:
        """Whether `node`, a call of `op`, is to be decomposed."""
        if op in self._keep and not self.declines(op, node):
            return False
        return is_composite(op) and (self._only is None or self._only(node))

    def chooses(self, op: OpOverload) -> bool:
        """Whether some calls of `op` are kept whole, and others are not."""
        return self._keep.get(op) is not None and is_composite(op)

    def declines(self, op: OpOverload, node: Node) -> bool:
        """Whether `op` is to be kept whole, but not in this call of it."""
        accepts = self._keep.get(op)
        return accepts is not None and is_composite(op) and not accepts(node)

    def template(
        self, op: OpOverload, args: Args, kwargs: Kwargs, functional: Callable[[GraphModule], GraphModule]
    ) -> tuple[GraphModule, list[int]]:
        """The graph for a call with these values (fake tensors, SymInts, plain values), and the positions of its
        inputs among the flattened arguments. `functional` rids a graph that was traced of its in-place calls."""
        flat, spec = pytree.tree_flatten((args, kwargs))
        inputs = [i for i, value in enumerate(flat) if isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat))]
        key = (op, spec, call_form(flat))
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = functional(self._trace(op, flat, spec, inputs))
        return template, inputs

    def _trace(self, op: OpOverload, flat: list[object], spec: pytree.TreeSpec, inputs: list[int]) -> GraphModule:
        form: Callable[..., object] = _OUR_OWN.get(
            op, op
        )  # called itself: torch's for Python's dispatcher would come before the table

        call = of_inputs(form, flat, spec, inputs)
        rule = core_aten_table().get(op)
        table = self._table if rule is None else {**self._table, op: rule}
        inside = {kept: whole for kept, whole in self._kept_inside.items() if kept is not op}  # an LSTM's `linear`, say
        with (
            override_composites(inside),
            enable_python_dispatcher(),
            _without_mkldnn(),
            self.mode,
        ):
            # Inlined templates share fake values, and the tracer tells inputs apart by identity: give it fresh ones.
            values = [fresh(flat[i]) for i in inputs]
            return make_fx(call, decomposition_table=table, tracing_mode="real")(*values)


@contextmanager
def _without_mkldnn() -> Iterator[None]:
    """With mkldnn on, torch's LSTM turns into an operator that only mkldnn has."""
    enabled = mkldnn_enabled()
    set_mkldnn_enabled(False)
    try:
        yield
    finally:
        set_mkldnn_enabled(enabled)


def of_inputs(
    function: Callable[..., object], flat: Sequence[object], spec: pytree.TreeSpec, inputs: Sequence[int]
) -> Callable[..., object]:
    """`function` of those of its flattened arguments that stand at `inputs`; the others are those in `flat`."""

    def call(*values: object) -> object:
        filled = list(flat)
        for position, value in zip(inputs, values, strict=True):
            filled[position] = value
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return function(*args, **kwargs)

    return call


def fresh(value: object) -> object:
    """A tensor like `value` for a tracer, which tells its inputs apart by identity; other values as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def call_form(values: object) -> object:
    """All that a trace of these values depends on, which is everything but the identity of tensors: a key."""
    return tuple(_form(value) for value in pytree.tree_leaves(values))


def _form(value: object) -> object:
    if isinstance(value, FakeTensor):
        return ("tensor", _ints(value.shape), _ints(value.stride()), value.dtype, value.device)
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return ("sym", str(value.node.expr))
    return (type(value), repr(value) if isinstance(value, float | complex) else value)  # 0.0 == -0.0


def _ints(sizes: Sequence[int | torch.SymInt]) -> tuple[object, ...]:
    return tuple(size if isinstance(size, int) else str(size.node.expr) for size in sizes)
