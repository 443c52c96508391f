"""Python operators on symbolic scalars -> `executorch_prim::*`; those that the runtime lacks are composed of others.

ExecuTorch's table: `exir/passes/executorch_prim_ops_registry.py`. It stops at ne, abs, pow, and, or, floor; here they
are composed.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import torch

__all__ = ["PRIM_OPERATORS", "ScalarBuilder", "compose"]

PRIM_OPERATORS: Final[dict[object, str]] = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.floordiv: "floordiv",
    operator.truediv: "truediv",
    operator.neg: "neg",
    operator.eq: "eq",
    operator.gt: "gt",
    operator.lt: "lt",
    operator.ge: "ge",
    operator.le: "le",
    math.ceil: "ceil",
    math.trunc: "trunc",
    round: "round",
    torch.sym_float: "sym_float",
    torch.sym_int: "sym_int",
    torch.sym_max: "sym_max",
    torch.sym_min: "sym_min",
    torch.sym_not: "sym_not",
    operator.not_: "sym_not",
    torch.sym_ite: "sym_ite",
}
"""Python operator -> the name in `executorch_prim::<name>.Scalar`."""


class ScalarBuilder(Protocol):
    """Emits one prim call on value indices, or gives the index of a constant."""

    def prim(self, name: str, args: Sequence[int], like: object) -> int: ...
    def constant(self, value: object) -> int: ...


def compose(target: object, args: Sequence[object], build: ScalarBuilder, operands: Sequence[int]) -> int:
    """The index of `target`'s result, made of several calls: of all that the dialects have and `PRIM_OPERATORS` not.

    `args` are the node's arguments (a constant exponent decides), `operands` their value indices.
    """
    return _COMPOSED[target](build, operands, args)


_Recipe = Callable[[ScalarBuilder, Sequence[int], Sequence[object]], int]


def _ne(build: ScalarBuilder, operands: Sequence[int], _: Sequence[object]) -> int:
    return build.prim("sym_not", [build.prim("eq", operands, True)], True)


def _abs(build: ScalarBuilder, operands: Sequence[int], _: Sequence[object]) -> int:
    return build.prim("sym_max", [operands[0], build.prim("neg", operands, 0)], 0)


def _and(build: ScalarBuilder, operands: Sequence[int], _: Sequence[object]) -> int:
    return build.prim("sym_ite", [operands[0], operands[1], build.constant(False)], True)


def _or(build: ScalarBuilder, operands: Sequence[int], _: Sequence[object]) -> int:
    return build.prim("sym_ite", [operands[0], build.constant(True), operands[1]], True)


def _floor(build: ScalarBuilder, operands: Sequence[int], _: Sequence[object]) -> int:
    return build.prim("sym_int", [build.prim("floordiv", [operands[0], build.constant(1.0)], 0.0)], 0)


def _mod(build: ScalarBuilder, operands: Sequence[int], _: Sequence[object]) -> int:
    """Python's: the runtime's `mod` has the dividend's sign, so a - floor(a / b) * b."""
    product = build.prim("mul", [build.prim("floordiv", operands, 0), operands[1]], 0)
    return build.prim("sub", [operands[0], product], 0)


def _power(build: ScalarBuilder, operands: Sequence[int], args: Sequence[object]) -> int:
    """A product; `passes.symbolic_powers` has replaced the others."""
    exponent, result = args[1], operands[0]
    assert isinstance(exponent, int)
    for _ in range(exponent - 1):
        result = build.prim("mul", [result, operands[0]], 0)
    return result


def _sum(build: ScalarBuilder, operands: Sequence[int], _: Sequence[object]) -> int:
    result = operands[0]
    for operand in operands[1:]:
        result = build.prim("add", [result, operand], 0)
    return result


_COMPOSED: Final[dict[object, _Recipe]] = {
    operator.ne: _ne,
    operator.abs: _abs,
    abs: _abs,
    operator.and_: _and,
    operator.or_: _or,
    math.floor: _floor,
    operator.mod: _mod,
    operator.pow: _power,
    torch.sym_sum: _sum,
}
