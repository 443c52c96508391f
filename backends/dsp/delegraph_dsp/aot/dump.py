"""The results of the compiler's passes -> readable text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from delegraph_dsp.aot.kernel_calls import KernelCall, Use, Value
from delegraph_dsp.aot.placement import Placed
from delegraph_dsp.program import Operator

__all__ = ["calls_text", "placement_text"]


def calls_text(calls: Sequence[KernelCall], operators: Sequence[Operator]) -> str:
    """Kernel calls, values numbered in the order in which they occur."""
    names: dict[Value, str] = {}
    return "\n".join(_call(call, operators, names) for call in calls) + "\n"


def _call(call: KernelCall, operators: Sequence[Operator], names: dict[Value, str]) -> str:
    *read, written = [_use(use, names) for use in call.uses]
    numbers = ", ".join([*map(str, call.integers), *map(repr, call.reals)])
    axes = ", ".join(f"{size}/" if axis in call.splits else str(size) for axis, size in enumerate(call.space))
    operator = operators[call.operator]
    return f"{written} = {call.kernel}({', '.join(read)}; {numbers}) over ({axes})  # {operator.name}"


def _use(use: Use, names: dict[Value, str]) -> str:
    view = use.view
    kind = "input" if view.value.source is not None else "constant" if view.value.content else "value"
    name = names.setdefault(view.value, f"{kind}{len(names)}")
    place = "" if view.is_whole else f"[{view.offset} by {list(view.strides)}]"
    return f"{name}{place}: {view.dtype}{list(view.shape)}"


def placement_text(calls: Sequence[KernelCall], placed: Placed) -> str:
    """Blocks and places."""
    return "\n".join(_placement(calls, placed)) + "\n"


def _placement(calls: Sequence[KernelCall], placed: Placed) -> Iterator[str]:
    yield f"TCM: {placed.nbytes} bytes, at least {placed.lower_bound}"
    for value, offset in placed.resident.items():
        yield f"stays: {value.dtype}{list(value.shape)} at {offset}"
    for value in placed.spilled:
        yield f"spilled: {value.dtype}{list(value.shape)}"
    for call, block, buffers in zip(calls, placed.blocks, placed.buffers, strict=True):
        places = ", ".join(f"operand {use} at {' and '.join(map(str, at))}" for use, at in sorted(buffers.items()))
        yield f"{call.kernel}: {block.tiles} tiles of {list(block.sizes)}; {places or 'nothing to move'}"
