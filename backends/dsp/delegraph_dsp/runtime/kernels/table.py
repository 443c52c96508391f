"""A kernel's function -> a row of the table that the validator and the machine read: its operands, and the function.

A kernel gets its operands as arrays over the TCM, the last of which it fills, its integers and its reals. The row says
which of these a binary may pass, so that a stranger's binary is refused before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from delegraph.lazy_dataclass import dataclass
from delegraph_dsp.program import KERNELS, Launch, Operand
from delegraph_machines.fixed_point import rescale

__all__ = [
    "ANY_INTEGER",
    "CODE",
    "CODES",
    "MULTIPLIER",
    "SHIFT",
    "TABLE",
    "Arrays",
    "Kernel",
    "Shapes",
    "broadcast",
    "check_launch",
    "kernel",
    "same",
    "write_codes",
]

Arrays: TypeAlias = Sequence[NDArray[Any]]
Function: TypeAlias = Callable[[Arrays, Sequence[int], Sequence[float]], None]
Shapes: TypeAlias = Callable[[Sequence[tuple[int, ...]]], bool]
"""Whether operands of these shapes go together."""

CODES: Final = ("int8", "int16")
"""Dtypes of quantized values."""

CODE: Final = (-32768, 32767)
MULTIPLIER: Final = (0, 2**31 - 1)
SHIFT: Final = (2, 62)
ANY_INTEGER: Final = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Kernel:
    """`dtypes`: the dtypes that each operand may have; `integers`: the range of each; `reals`: their number."""

    function: Function
    dtypes: tuple[tuple[str, ...], ...]
    shapes: Shapes
    integers: tuple[tuple[int, int], ...]
    reals: int


TABLE: Final[dict[str, Kernel]] = {}


def kernel(
    name: str,
    *dtypes: tuple[str, ...],
    shapes: Shapes,
    integers: tuple[tuple[int, int], ...] = (),
    reals: int = 0,
) -> Callable[[Function], Function]:
    """Put the decorated function into the table as the kernel `name`."""
    assert name in KERNELS

    def register(function: Function) -> Function:
        TABLE[name] = Kernel(function, dtypes, shapes, integers, reals)
        return function

    return register


def check_launch(launch: Launch) -> str | None:
    """The reason why the kernel cannot run this launch; None if it can."""
    known = TABLE[launch.kernel]
    if len(launch.operands) != len(known.dtypes):
        return f"{len(launch.operands)} operands, not {len(known.dtypes)}"
    for number, (operand, dtypes) in enumerate(zip(launch.operands, known.dtypes, strict=True)):
        if operand.dtype not in dtypes:
            return f"operand {number} is {operand.dtype}, not {' or '.join(dtypes)}"
    if not known.shapes([operand.shape for operand in launch.operands]):
        return f"its operands' shapes, {', '.join(str(o.shape) for o in launch.operands)}, do not go together"
    if len(launch.integers) != len(known.integers) or len(launch.reals) != known.reals:
        counts = f"{len(launch.integers)} integers and {len(launch.reals)} reals"
        return f"{counts}, not {len(known.integers)} and {known.reals}"
    for number, (value, (low, high)) in enumerate(zip(launch.integers, known.integers, strict=True)):
        if not low <= value <= high:
            return f"integer {number} is {value}, not within {low} and {high}"
    return _check_output(launch.operands[-1])


def _check_output(operand: Operand) -> str | None:
    """Each element of the output must have a place of its own."""
    dims = sorted((stride, size) for size, stride in zip(operand.shape, operand.strides, strict=True) if size > 1)
    reach = 1
    for stride, size in dims:
        if stride < reach:
            return "its output overlaps itself"
        reach = stride * (size - 1) + reach
    return None


def write_codes(out: NDArray[Any], accumulators: ArrayLike, grid: Sequence[ArrayLike]) -> None:
    """Rescale accumulators to the output's grid: multiplier, shift, zero point, lowest and highest code."""
    multiplier, shift, zero_point, low, high = grid
    codes = rescale(accumulators, multiplier, shift) + np.asarray(zero_point)
    np.copyto(out, np.clip(codes, low, high), casting="unsafe")


# ---- shapes -------------------------------------------------------------------------------------------------------


def same(shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether all have the shape of the output."""
    return all(shape == shapes[-1] for shape in shapes)


def broadcast(shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether all have the rank of the output, and its sizes or 1."""
    return all(
        len(shape) == len(shapes[-1]) and all(a in (1, b) for a, b in zip(shape, shapes[-1], strict=True))
        for shape in shapes
    )
