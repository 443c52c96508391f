"""A call that changes its arguments -> calls that change nothing, and what the arguments hold afterwards.

    before                      after
    x.add_(1)                   x' = add(x, 1)                                        its functional twin
    x.copy_(y)                  x' = y, in the shape, dtype and format of x           it sets the value
    mul(x, y, out=z[0])         r = mul(x, y);  z' = select_scatter(z, r, 0, 0)       the overload without `out`
    mylib.fill(cache, x)        c = auto_functionalized(mylib.fill, cache, x)         on copies
                                cache' = c[1]

Whatever shows the memory of such an argument sees the new value (`view_versions.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import combinations

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from delegraph.aot.functional.graph_builder import GraphBuilder, Value
from delegraph.aot.functional.view_versions import VersionedValues
from delegraph.aot.graph.fake_values import Args, Kwargs, fake_values
from delegraph.aot.graph.mutating_calls import (
    auto_functionalized,
    changed_arguments,
    first_copy,
    functional_twin,
    may_share_memory,
    on_copies,
    overlaps_itself,
    without_out,
)
from delegraph.aot.graph.result_dtypes import dtypes_of, result_dtypes
from delegraph.aot.graph.schema_binding import bind_schema
from delegraph.aot.graph.source_location import user_location
from delegraph.aot.graph.view_operators import sizes_of
from delegraph.aot.torch_internals import is_contiguous_for_memory_format_or_false
from delegraph.errors import LoweringError

__all__ = ["WritingCalls"]

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class WritingCalls:
    """Adds the functional calls to `graph`, and writes their results to `values`."""

    graph: GraphBuilder
    values: VersionedValues

    def rebuild(self, node: Node, args: Args, kwargs: Kwargs) -> Value:
        """Make the call `node` anew on its up-to-date `args` and `kwargs`, and return its value.

        Raises `LoweringError` for an operator without a functional form, or arguments that overlap.
        """
        op = node.target
        assert isinstance(op, OpOverload)
        self._check_elements_once(node, op)
        if (functional := without_out(op)) is not None:
            return self._into_out(node, functional, args, kwargs)
        target = node.args[0] if node.args else node.kwargs[changed_arguments(op)[0]]
        assert isinstance(target, Node)
        if op in _SET_VALUE:
            value = self._set_value(node, args)
        elif (twin := functional_twin(op)) is not None:
            value = self._twin(twin, node, target, args, kwargs)
        else:
            return self._on_copies(node, op, args, kwargs)
        self.values.write(target, value)
        self.values.rename(node, target)  # `y = x.add_(1)`: y is x, and sees what is written to x later
        return value

    def _twin(self, twin: OpOverload, node: Node, target: Node, args: Args, kwargs: Kwargs) -> Value:
        """The value that the call `node` writes: `twin` computes in the dtype that its operands promote to, or gives
        one of its own (`eq_`); the result is cast to that of the tensor it is written to.

        The value of `node` is that of `twin` only where both write all of a tensor: a view has the strides of its base.
        """
        val = node.meta["val"]
        # where the fake value is known, no fake call has to be made: most in-place calls write a whole tensor
        is_known = not self.values.is_view(target) and result_dtypes(twin, args, kwargs) == dtypes_of(val)
        return self.graph.cast(self.graph.call(twin, args, kwargs, node, val if is_known else None), val.dtype)

    def _set_value(self, node: Node, args: Args) -> Value:
        """`copy_(self, src)`: afterwards `self` holds `src`, in `self`'s shape and dtype, and channels last where
        `self` is."""
        target, (old, new) = node.args[0], fake_values(args[:2])
        value = self.graph.cast(args[1], old.dtype)  # before it is expanded: fewer elements
        if not _is_same_shape(new, old):
            sizes = sizes_of(lambda op, *args: self.graph.emit(op, args, {}), args[0])
            value = self.graph.emit(aten.expand.default, (value, sizes), {})
        # a view takes the strides that its base gives it, whatever the format of what is written
        is_whole = isinstance(target, Node) and not self.values.is_view(target)
        if is_whole and _is_channels_last(old) and not _is_channels_last(fake_values(value)):
            value = self.graph.emit(aten._to_copy.default, (value,), {"memory_format": _CHANNELS_LAST[old.dim()]})
        return value

    def _into_out(self, node: Node, functional: OpOverload, args: Args, kwargs: Kwargs) -> Value:
        """`mul.out(x, y, out=z)`: `z` and its aliases hold the result of `mul.Tensor` from now on."""
        assert isinstance(node.target, OpOverload)
        names = changed_arguments(node.target)
        outs = [node.kwargs[name] for name in names]
        value = self.graph.call(functional, args, {k: v for k, v in kwargs.items() if k not in names}, node)
        for position, out in enumerate(outs):
            assert isinstance(out, Node)
            result = value if len(outs) == 1 else self.graph.element(value, position)
            fake_out = fake_values(out)
            result = self.graph.cast(result, fake_out.dtype)
            fake_result = fake_values(result)
            # torch resizes an out of another shape, which changes a base, but cannot change a view's base
            if self.values.is_view(out) and not _is_same_shape(fake_result, fake_out):
                raise LoweringError(
                    f"{node.target} writes a result of shape {list(fake_result.shape)} into a view of shape"
                    f" {list(fake_out.shape)}; give it an out of the result's shape",
                    node=node.name,
                    location=user_location(node),
                )
            self.values.write(out, result)
        return self.values.stand_for(node, outs[0] if len(outs) == 1 else outs)

    def _on_copies(self, node: Node, op: OpOverload, args: Args, kwargs: Kwargs) -> Value:
        """A call that changes arguments of any name: its results, and each changed copy in place of the argument."""
        if not on_copies(op):
            raise LoweringError(
                f"{op} changes its arguments and has no functional form of the same name and overload;"
                f" {_REMEDIES.get(op, 'give the operator one, or call it on a copy')}",
                node=node.name,
                location=user_location(node),
            )
        names = [argument.name for argument in op._schema.arguments]
        # nodes of the old graph, which are written; `current` are their values, which the call reads
        arguments = dict(zip(names, bind_schema(op, node.args, node.kwargs), strict=True))
        self._check_apart(node, changed_arguments(op), arguments)  # each argument is copied by itself
        current = dict(zip(names, bind_schema(op, args, kwargs), strict=True))
        call = self.graph.emit(auto_functionalized, (op,), current)
        for position, name in enumerate(changed_arguments(op), first_copy(op)):
            if isinstance(arguments[name], Node):
                self.values.write(arguments[name], self.graph.element(call, position))
            elif arguments[name] is not None:
                copies = self.graph.element(call, position)
                for index, target in enumerate(arguments[name]):
                    self.values.write(target, self.graph.element(copies, index))
        many = len(op._schema.returns) > 1
        return call if many or not op._schema.returns else self.graph.element(call, 0)

    def _check_elements_once(self, node: Node, op: OpOverload) -> None:
        """Raise if the call writes to a view that shows an element several times, each of which would be another value.

        torch itself refuses most such writes when they run, and promises nothing of the others.
        """
        if op in _SAME_EVERYWHERE or (
            op in _SET_VALUE and statically_known_true(fake_values(node.args[1]).numel() == 1)
        ):
            return
        arguments = dict(
            zip((a.name for a in op._schema.arguments), bind_schema(op, node.args, node.kwargs), strict=True)
        )
        for target in pytree.tree_leaves([arguments[name] for name in changed_arguments(op)]):
            if isinstance(target, Node) and self.values.is_view(target) and overlaps_itself(target.meta["val"]):
                raise LoweringError(
                    f"{op} writes to a view that shows some element several times (expand, unfold, as_strided);"
                    " write to a clone of it",
                    node=node.name,
                    location=user_location(node),
                )

    def _check_apart(self, node: Node, changed: Collection[str], arguments: Kwargs) -> None:
        """Raise if the call changes memory that another of its arguments shows: on copies it would not see that."""
        tensors = [
            (name, leaf)
            for name, value in arguments.items()
            for leaf in pytree.tree_leaves(value)
            if isinstance(leaf, Node) and isinstance(leaf.meta.get("val"), torch.Tensor)
        ]
        for (name, left), (other_name, right) in combinations(tensors, 2):
            same_base = self.values.base(left) is self.values.base(right)
            together = same_base and (name in changed or other_name in changed)
            if together and may_share_memory(left.meta["val"], right.meta["val"]):
                raise LoweringError(
                    f"{node.target} changes its arguments, and {name} and {other_name} show the same memory;"
                    " give it a copy of one (clone)",
                    node=node.name,
                    location=user_location(node),
                )


_SET_VALUE = frozenset({aten.copy_.default})

_SAME_EVERYWHERE = frozenset({aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default})
"""Operators that write one number to every element."""

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _is_same_shape(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether they are alike at every size; `a.shape == b.shape` would have the sizes be those of the example.

    [4] and [s6, 4]: no, where Python compares 4 with s6 first, and the lengths last
    """
    return a.dim() == b.dim() and all(statically_known_true(m == n) for m, n in zip(a.shape, b.shape, strict=True))


def _is_channels_last(tensor: torch.Tensor) -> bool:
    """Whether `tensor` is so for sure, and not contiguous as well."""
    contiguous, last = (
        is_contiguous_for_memory_format_or_false(tensor, memory_format=memory_format)
        for memory_format in (torch.contiguous_format, _CHANNELS_LAST.get(tensor.dim(), torch.contiguous_format))
    )
    return last and not contiguous


_REMEDIES = {
    aten._native_batch_norm_legit.default: "it updates the statistics of a model in training mode: call model.eval()"
}
