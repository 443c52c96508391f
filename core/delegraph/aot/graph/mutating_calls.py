"""A call that changes its arguments -> a functional one: that of its twin (`add` for `add_`), or itself on copies.

The second is torch's higher-order operator

    auto_functionalized(op, **arguments) -> (*results, *copies of the changed arguments, after the call)

An operator without results gives one None there. This is how a custom operator that mutates its arguments
(`torch.library.custom_op(..., mutates_args={"cache"})`) stands in a functional graph.
"""

from __future__ import annotations

from functools import cache

import torch
from torch._ops import OpOverload
from torch.fx import Node

from delegraph.aot.torch_internals import auto_functionalized, can_auto_functionalize

__all__ = [
    "auto_functionalized",
    "called_operator",
    "changed_arguments",
    "changes_arguments",
    "first_copy",
    "functional_twin",
    "may_share_memory",
    "on_copies",
    "overlaps_itself",
    "without_out",
]


def called_operator(node: Node) -> OpOverload | None:
    """The operator that `node` calls, on copies or not; None if it calls something else."""
    target = node.args[0] if node.target is auto_functionalized else node.target
    return target if isinstance(target, OpOverload) else None


@cache
def changes_arguments(op: OpOverload) -> bool:
    """Whether a call of `op` has to be made functional."""
    return on_copies(op) or bool(changed_arguments(op))


@cache
def without_out(op: OpOverload) -> OpOverload | None:
    """`mul.Tensor` for `mul.out`: the overload of the same arguments that gives what `op` writes into `out`."""
    outs = [argument.name for argument in op._schema.arguments if argument.is_out]
    if not outs or tuple(outs) != changed_arguments(op):
        return None
    arguments = _given(op)
    others = (getattr(op.overloadpacket, name) for name in op.overloadpacket.overloads())
    return next(
        (overload for overload in others if not overload._schema.is_mutable and _given(overload) == arguments), None
    )


def _given(op: OpOverload) -> list[tuple[str, str]]:
    """Names and types of the arguments that `op` does not write its results to."""
    return [(argument.name, str(argument.real_type)) for argument in op._schema.arguments if not argument.is_out]


_aten = torch.ops.aten

_OTHER_NAMES = {
    _aten.transpose_.default: _aten.transpose.int,
    _aten.swapaxes_.default: _aten.swapaxes.default,
    _aten.pow_.Tensor: _aten.pow.Tensor_Tensor,
    _aten.float_power_.Tensor: _aten.float_power.Tensor_Tensor,
    _aten.floor_divide_.Tensor: _aten.floor_divide.default,
}
"""Twins whose overloads have other names."""


@cache
def functional_twin(op: OpOverload) -> OpOverload | None:
    """`add.Tensor` for `add_.Tensor`, which changes its first argument and no other."""
    if op in _OTHER_NAMES:
        return _OTHER_NAMES[op]
    namespace, _, name = op._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    overload = op._schema.overload_name or "default"
    changes_first = changed_arguments(op) == (op._schema.arguments[0].name,)
    if packet is None or not name.endswith("_") or overload not in packet.overloads() or not changes_first:
        return None
    twin: OpOverload = getattr(packet, overload)
    return twin


@cache
def on_copies(op: OpOverload) -> bool:
    """Whether calls of `op` can be made functional so: it is not an operator of torch's own and its results are new."""
    return can_auto_functionalize(op) and all(result.alias_info is None for result in op._schema.returns)


@cache
def changed_arguments(op: OpOverload) -> tuple[str, ...]:
    """The names of the arguments that `op` writes to, in the schema's order."""
    return tuple(a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write)


def first_copy(op: OpOverload) -> int:
    """The position of the first changed copy among what `auto_functionalized` gives."""
    return max(1, len(op._schema.returns))


def may_share_memory(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two views of one tensor may have an element in common; the ranges of their bytes decide."""
    a, b = _byte_range(left), _byte_range(right)
    return a is None or b is None or (a[0] < b[1] and b[0] < a[1])


def overlaps_itself(tensor: torch.Tensor) -> bool | None:
    """Whether a view shows some element in several places; None where that depends on a dynamic dimension.

    It does not if each stride steps over all that the smaller ones reach.
    """
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    steps = [(stride, size) for stride, size in pairs if not isinstance(size, int) or size > 1]
    if any(isinstance(stride, int) and stride == 0 for stride, _ in steps):  # expanded
        return True
    if not all(isinstance(number, int) for step in steps for number in step):
        return None
    reach = 0  # the largest offset within the dims of smaller strides
    for stride, size in sorted(steps):
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _byte_range(tensor: torch.Tensor) -> tuple[int, int] | None:
    """First byte and end of what a view shows; None where that depends on a dynamic dimension."""
    numbers = (tensor.storage_offset(), *tensor.shape, *tensor.stride())
    if not all(isinstance(number, int) for number in numbers):
        return None
    if tensor.numel() == 0:
        return 0, 0
    first = int(tensor.storage_offset())
    last = first + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return first * tensor.element_size(), (last + 1) * tensor.element_size()
