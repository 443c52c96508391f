"""MethodContract -> checks of a call's shapes, bound at load: the inputs are as the program assumes, or an error.

Shapes that passed are remembered, so that a call whose shapes were seen before costs one look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from delegraph.errors import InvalidArgument, InvalidProgram
from delegraph.program.contract import (
    ARITHMETIC,
    COMPARISONS,
    DimRange,
    Dims,
    Expression,
    MethodContract,
    relation_text,
)
from delegraph.program.schema import ExecutionPlan, Tensor

__all__ = ["REMEMBERED", "dims_of_inputs", "relation_check", "shape_fault"]

Shapes: TypeAlias = "tuple[tuple[int, ...], ...]"
RelationCheck: TypeAlias = Callable[[Shapes], None]
"""Takes the shapes of all inputs, () for one that is not a tensor. Raises `InvalidArgument`."""

REMEMBERED: Final = 256
"""How many combinations of shapes are remembered; a caller with more pays for each check."""


def dims_of_inputs(contract: MethodContract | None, plan: ExecutionPlan) -> tuple[Dims | None, ...]:
    """The dims that the contract has for each input of `plan`; None where it has none.

    Raises `InvalidProgram` if it is for other inputs than the method has, or allows sizes for which there is no memory.
    """
    if contract is None or not contract.inputs:
        return (None,) * len(plan.inputs)
    if len(contract.inputs) != len(plan.inputs):
        raise InvalidProgram(
            f"method {plan.name!r}: its shape contract is for {len(contract.inputs)} inputs, it has {len(plan.inputs)}"
        )
    for position, (dims, index) in enumerate(zip(contract.inputs, plan.inputs, strict=True)):
        record = plan.values[index]
        if dims is not None and not (isinstance(record, Tensor) and _fits(dims, record.sizes)):
            raise InvalidProgram(f"method {plan.name!r}: its shape contract does not fit input {position}")
    return contract.inputs


def _fits(dims: Dims, sizes: tuple[int, ...]) -> bool:
    return len(dims) == len(sizes) and all(
        dim.low <= size if isinstance(dim, DimRange) else dim == size for dim, size in zip(dims, sizes, strict=True)
    )


def shape_fault(shape: tuple[int, ...], dims: Dims) -> str:
    """The dim of `shape` that is not allowed, and its allowed sizes, in words; "" if all are."""
    if len(shape) != len(dims):
        return f"it has {len(shape)} dims, not {len(dims)}"
    for position, (size, dim) in enumerate(zip(shape, dims, strict=True)):
        if isinstance(dim, int):
            if size != dim:
                return (
                    f"dim {position} is {size}, and {dim} in every call; to let it vary, lower the model with"
                    f" dynamic_shapes={{{position}: Dim(…, max=…)}}"
                )
        elif size not in dim:
            name = "" if dim.name is None else f" ({dim.name})"
            return f"dim {position}{name} is {size}, allowed is {dim.allowed}"
    return ""


# ---- relations between sizes -----------------------------------------------------------------------


def relation_check(relations: Sequence[Expression], names: Callable[[], Sequence[str]]) -> RelationCheck:
    """One check for all of `relations`; `names` gives the inputs' names for messages."""
    conditions = [(relation, _condition(relation)) for relation in relations]
    passed: set[Shapes] = set()

    def check(shapes: Shapes) -> None:
        if shapes in passed:
            return
        for relation, holds in conditions:
            if not _holds(holds, shapes):
                raise InvalidArgument(_violation(relation, shapes, names()))
        if len(passed) < REMEMBERED:
            passed.add(shapes)

    return check


def _holds(condition: Callable[[Shapes], bool], shapes: Shapes) -> bool:
    try:
        return condition(shapes)
    except ZeroDivisionError:  # of a size that was assumed not to be 0
        return False


def _violation(relation: Expression, shapes: Shapes, names: Sequence[str]) -> str:
    sizes = dict.fromkeys(f"{relation_text(size, names)} is {shapes[size[1]][size[2]]}" for size in _sizes(relation))
    return f"the model was exported for {relation_text(relation, names)}; here {' and '.join(sizes)}"


def _sizes(node: Expression) -> Iterator[tuple[str, int, int]]:
    if isinstance(node, int):
        return
    if node[0] == "size":
        yield node
        return
    for operand in node[1:]:
        yield from _sizes(operand)


def _condition(node: Expression) -> Callable[[Shapes], bool]:
    assert not isinstance(node, int)
    name, *operands = node
    if name in COMPARISONS:
        compare, left, right = COMPARISONS[name], *map(_number, operands)
        return lambda shapes: compare(left(shapes), right(shapes))
    parts = [_condition(operand) for operand in operands]
    if name == "not":
        return lambda shapes: not parts[0](shapes)
    join = all if name == "and" else any
    return lambda shapes: join(part(shapes) for part in parts)


def _number(node: Expression) -> Callable[[Shapes], int]:
    if isinstance(node, int):
        return lambda shapes: node
    name, left, right = node
    if name == "size":
        return lambda shapes: int(shapes[left][right])
    compute, first, second = ARITHMETIC[name], _number(left), _number(right)
    return lambda shapes: compute(first(shapes), second(shapes))
