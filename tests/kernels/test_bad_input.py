"""Bad calls of every kernel: a fault of ours, and not a byte changed outside of the outputs.

Bad calls are derived from calls that torch's operator database makes. Outputs that do not have the result's shape, and
indices that point nowhere, are always refused. For inputs of another dtype or rank torch decides: what it refuses the
kernel refuses, and what it takes the kernel refuses or gives the same for. Two tables have the exceptions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from tests.kernels.opinfo.compare import check, outputs, why_not_compared
from tests.kernels.opinfo.entries import ENTRIES
from tests.kernels.opinfo.record import Call, out_overload, record
from tests.kernels.oracle import Array, Context, Oracle
from torch.utils import _pytree as pytree

from delegraph.errors import InvalidArgument, RuntimeFault

GROUPS = 16  # of entries; in each, one call of each operator
SAMPLES = 2  # of an entry
LARGEST = 4096  # elements of a tensor

GUARD = 64
PATTERN = 0xA5
FAR = 1_000_000

NOT_REFUSED = "it is not refused"

_ORDER_OF_BOOL = "False < True is an order; torch has written these loops for numbers only"
_COPIES_OF_BOOL = "what is copied needs no arithmetic; torch has written these loops for numbers only"
_DTYPE_OF_OUT = "the numbers are of out's dtype, which torch's functional overload has as an argument"

ALLOWED = {
    "aten::argmax.out": _ORDER_OF_BOOL,
    "aten::argmin.out": _ORDER_OF_BOOL,
    "aten::dist.out": "bool is promoted with the other operand, as in a subtraction of bool and numbers",
    "aten::hardtanh.out": "bool is compared with the bounds, as in clamp",
    "aten::kthvalue.values": _ORDER_OF_BOOL,
    "aten::ldexp.out": "bool is a number of the exponents 0 and 1",
    "aten::median.dim_values": _ORDER_OF_BOOL,
    "aten::median.out": _ORDER_OF_BOOL,
    "aten::nanmedian.dim_values": _ORDER_OF_BOOL,
    "aten::nanmedian.out": _ORDER_OF_BOOL,
    "aten::randint_like.low_dtype_out": _DTYPE_OF_OUT,
    "aten::randint_like.out": _DTYPE_OF_OUT,
    "aten::randn_like.out": _DTYPE_OF_OUT,
    "aten::reflection_pad1d.out": _COPIES_OF_BOOL,
    "aten::replication_pad1d.out": _COPIES_OF_BOOL,
    "aten::replication_pad2d.out": _COPIES_OF_BOOL,
    "aten::round.decimals_out": "integers are rounded to 0 decimals already",
    "aten::topk.values": _ORDER_OF_BOOL,
}
"""Operators that answer for an input of another dtype although torch refuses it, and why."""

DIFFERENT = {"aten::polygamma.out": "trigamma is infinite at -1, -2, …; torch divides by the rounding error of sin(πx)"}
"""Operators of which torch's own result for an input of another dtype is wrong."""


# ---- guarded memory --------------------------------------------------------------------------------


class Arena:
    """Arrays with bytes before and after them that nobody may change."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Array, int]] = []

    def place(self, array: Array) -> Array:
        """A C-contiguous copy of `array` between two guards."""
        block = np.full(array.nbytes + 2 * GUARD, PATTERN, np.uint8)
        self._blocks.append((block, array.nbytes))
        copy = block[GUARD : GUARD + array.nbytes].view(array.dtype).reshape(array.shape)
        copy[...] = array
        return copy

    def is_intact(self) -> bool:
        return all(
            (block[:GUARD] == PATTERN).all() and (block[GUARD + size :] == PATTERN).all()
            for block, size in self._blocks
        )


class StaticContext(Context):
    """Outputs of fixed shape, as the runtime has them where nothing is dynamic."""

    def resize(self, out: Array, shape: Sequence[int]) -> Array:
        if out.shape != tuple(shape):
            raise InvalidArgument(f"a static tensor of shape {out.shape} cannot become {tuple(shape)}")
        return out


class GuardedOracle(Oracle):
    """Runs kernels in an arena, and checks it whatever they do."""

    context = StaticContext

    def kernel(self, op: str, inputs: Sequence[Any], outs: Sequence[Any], mode: str) -> list[Any]:
        arena = Arena()
        placed = pytree.tree_map_only(np.ndarray, arena.place, (list(inputs), list(outs)))
        try:
            given = super().kernel(op, *placed, mode)
        finally:
            assert arena.is_intact(), f"{op} ({mode}) wrote outside of its tensors"
        if not outs:  # in place
            inputs[0][...] = placed[0][0]
        elif not any(_is_written(argument) for argument in out_overload(op)._schema.arguments):
            pairs = zip(_arrays(inputs), _arrays(placed[0]), strict=True)
            assert all(np.array_equal(_bytes(a), _bytes(b)) for a, b in pairs), f"{op} ({mode}) changed an input"
        return given


def _arrays(values: Any) -> list[Array]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, np.ndarray)]


def _is_written(argument: torch.Argument) -> bool:
    """Whether an input is changed too: the statistics of a batch norm."""
    return not argument.is_out and argument.alias_info is not None and argument.alias_info.is_write


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


# ---- bad calls -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bad:
    """A call and what is bad about it. `outs` are what the kernel is given to write into. `refused`: torch refuses it,
    or it cannot be right. `of_dtype`: what is bad is the dtype of an input."""

    what: str
    call: Call
    outs: list[Any]
    refused: bool
    of_dtype: bool = False


def bad_calls(call: Call) -> Iterator[Bad]:
    if call.result is not None:
        yield from _bad_outputs(call)
    for position in range(len(call.args)):
        yield from _bad_argument(call, position)


def _bad_outputs(call: Call) -> Iterator[Bad]:
    outs = outputs(call, call.result)
    for position, out in enumerate(outs):
        if not isinstance(out, torch.Tensor):
            yield Bad(
                "one tensor too few in the out list", call, [*outs[:position], out[:-1], *outs[position + 1 :]], True
            )
            continue
        for what, change in _OTHER_SHAPES.items():
            other = change(out)
            if other.shape != out.shape:
                yield Bad(what, call, [*outs[:position], other, *outs[position + 1 :]], True)


_OTHER_SHAPES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "out too small": lambda t: t[..., :-1].clone() if t.dim() else t.new_empty(0),
    "out too large": lambda t: torch.cat([t, t], -1) if t.dim() else t.new_empty(2),
    "out of a higher rank": lambda t: t[None].clone(),
    "out of a lower rank": lambda t: t.reshape(-1).clone() if t.dim() > 1 else t.new_empty(()),
}


def _bad_argument(call: Call, position: int) -> Iterator[Bad]:
    name = call.function._schema.arguments[position].name
    value = call.args[position]
    if isinstance(value, torch.Tensor):
        for dtype in _OTHER_DTYPES:
            if dtype != value.dtype:
                with warnings.catch_warnings(action="ignore"):  # the imaginary part is dropped
                    other = value.to(dtype)
                yield _decided_by_torch(f"{name} of {dtype}", call, position, other, of_dtype=True)
        yield _decided_by_torch(f"{name} of a higher rank", call, position, value[None])
        if value.dim():
            yield _decided_by_torch(f"{name} of a lower rank", call, position, value.reshape(-1)[:1].reshape(()))
        if name in ("index", "indices") and value.numel() and not value.dtype.is_floating_point:
            for far in (FAR, -FAR):
                yield _refused(f"{name} {far}", call, position, torch.full_like(value, far))
    elif isinstance(value, int) and not isinstance(value, bool) and name in ("dim", "index"):
        for far in (FAR, -FAR):
            yield _decided_by_torch(f"{name} {far}", call, position, far)
    elif name == "indices" and isinstance(value, list | tuple) and any(_is_index(v) for v in value):
        for far in (FAR, -FAR):
            filled = [torch.full_like(v, far) if _is_index(v) else v for v in value]
            yield _refused(f"{name} {far}", call, position, filled)


_OTHER_DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)


def _is_index(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.int32, torch.int64) and value.numel() > 0


def _with(call: Call, position: int, value: Any) -> Call:
    return replace(call, args=(*call.args[:position], value, *call.args[position + 1 :]))


def _refused(what: str, call: Call, position: int, value: Any) -> Bad:
    return Bad(what, _with(call, position, value), outputs(call, call.result), True)


def _decided_by_torch(what: str, call: Call, position: int, value: Any, of_dtype: bool = False) -> Bad:
    bad = _with(call, position, value)
    try:
        with warnings.catch_warnings(action="ignore"):
            args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, (bad.args, bad.kwargs))
            result = call.function(*args, **kwargs)
    except Exception:  # torch's answer, whatever its kind
        return Bad(what, bad, outputs(call, call.result), True, of_dtype)
    bad = replace(bad, result=None if call.result is None else result)
    return Bad(what, bad, outputs(bad, bad.result), False, of_dtype)


# ---- the tests -------------------------------------------------------------------------------------


def _calls(group: int) -> dict[str, Call]:
    """Operator -> the first call of it that the group's entries make."""
    found: dict[str, Call] = {}
    for info in list(ENTRIES.values())[group::GROUPS]:
        dtypes = info.supported_dtypes("cpu")
        dtype = torch.float32 if torch.float32 in dtypes else min(dtypes, key=str, default=None)
        if dtype is None:  # only for other devices
            continue
        torch.manual_seed(0)
        with warnings.catch_warnings(action="ignore"):
            samples = list(islice(info.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES))
        for sample in samples:
            for call in record(partial(info, sample.input, *sample.args, **sample.kwargs)).calls:
                small = all(0 < t.numel() <= LARGEST for t in call.tensors())
                if small and not why_not_compared(call):
                    found.setdefault(call.op, call)
    return found


@dataclass(frozen=True, slots=True)
class Finding:
    """A bad call that the kernel answered wrongly."""

    op: str
    what: str
    allowed: bool


@cache
def _findings(group: int) -> list[Finding]:
    oracle, found = GuardedOracle(), []
    for op, call in sorted(_calls(group).items()):
        if not any(a.is_out for a in out_overload(op)._schema.arguments):
            continue
        for bad in bad_calls(call):
            for mode in ("run", "bind"):
                fault = _fault(oracle, bad, mode)
                if fault:
                    allowed = bad.of_dtype and op in _exceptions(fault)
                    found.append(Finding(op, f"{op} ({mode}), {bad.what}: {fault}", allowed))
    return found


def _exceptions(fault: str) -> dict[str, str]:
    if fault == NOT_REFUSED:
        return ALLOWED
    return DIFFERENT if "Tensor-likes are not close" in fault else {}


@pytest.mark.database
@pytest.mark.parametrize("group", range(GROUPS))
def test_bad_calls(group: int) -> None:
    wrong = [finding.what for finding in _findings(group) if not finding.allowed]
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)


@pytest.mark.database
def test_all_that_is_allowed_happens() -> None:
    happened = {finding.op for group in range(GROUPS) for finding in _findings(group) if finding.allowed}
    assert happened == ALLOWED.keys() | DIFFERENT.keys()


def _fault(oracle: GuardedOracle, bad: Bad, mode: str) -> str:
    """What is wrong with the kernel's answer to the bad call; "" if nothing is."""
    try:
        if bad.refused:
            oracle.results(bad.call.op, bad.call.args, bad.call.kwargs, bad.outs, mode)
            return NOT_REFUSED
        check(oracle, bad.call, (mode,))
    except RuntimeFault:
        return ""
    except AssertionError as difference:
        return " ".join(str(difference).split())[:200]
    except Exception as other:  # the very thing that must not happen
        return f"{type(other).__name__}: {other}"
    return ""
