"""A recorded call -> nothing, or an `AssertionError` that says how the kernel's result differs from torch's.

Expected values of the floats below float32 are torch's of float32, rounded once: what the kernels promise, while some
of torch's own round more often.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from tests.kernels.opinfo.record import Call, out_overload
from tests.kernels.opinfo.relations import NOT_UNIQUE, RANDOM, UNINITIALISED
from tests.kernels.oracle import FLOAT8, HALVES, TORCH_DTYPES, Oracle, tolerances
from torch._subclasses import FakeTensorMode
from torch.utils import _pytree as pytree

__all__ = ["check", "outputs", "why_not_compared"]

aten = torch.ops.aten

LARGEST = 100_000
"""Elements of a tensor. A kernel shows on smaller ones what it does."""

_NARROW = HALVES + FLOAT8

_SUMS_OF_PRODUCTS = {
    f"aten::{name}.out"
    for name in ("addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "convolution", "dot", "linear", "mm", "mv")
} | {
    *("aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::conv1d.padding", "aten::conv2d.padding"),
    *("aten::conv3d.padding", "aten::conv_transpose1d", "aten::conv_transpose2d.input", "aten::conv_transpose3d.input"),
    *("aten::dot", "aten::matmul", "aten::mv"),
}
"""Their rounding errors grow with the terms, not with the result, where terms cancel."""

_ON_STORAGE = {"aten::as_strided_copy.out", "aten::as_strided_scatter.out"}
"""Their strides count in the memory of the tensor, whose own strides must be torch's."""

_BITS = {"aten::view_copy.dtype_out", "aten::nextafter.out", "aten::frexp.Tensor_out"}
"""They look at the bits of a number: float32 is no reference for halves."""


def why_not_compared(call: Call) -> str:
    """Why a call cannot be compared, in words; "" for those that can."""
    tensors = call.tensors()
    if any(t.layout != torch.strided for t in tensors):
        return "sparse tensors, which no program holds"
    unknown = {str(t.dtype).removeprefix("torch.") for t in tensors if t.dtype not in TORCH_DTYPES}
    if unknown:
        return f"NumPy has no {', '.join(sorted(unknown))}"
    if any(t.numel() > LARGEST for t in tensors):
        return f"a tensor has more than {LARGEST:,} elements"
    if call.op in _ON_STORAGE and not _is_whole(call):
        return "the view reaches storage beyond its tensor"
    return ""


def _is_whole(call: Call) -> bool:
    """Whether a copy of the tensor alone has all that the call's strides refer to."""
    source = call.args[0]
    if source.numel() != source.untyped_storage().nbytes() // source.itemsize:
        return False
    try:
        return torch.equal(call.function(*call.args, **call.kwargs), call.result)
    except RuntimeError:
        return False


def check(oracle: Oracle, call: Call, modes: Sequence[str] = Oracle.modes) -> None:
    """Assert that the kernel of `call` does as torch does, in every one of `modes` that the operator has."""
    relation, call = _relation(call.op), _undisturbed(call)
    expected = outputs(call, call.result if relation is not None else _expected(call))
    if call.op in _AS_PLANNED:
        expected = _AS_PLANNED[call.op](call, expected)
    limits = {} if relation is not None else _limits(call, expected)
    if not any(a.is_out for a in out_overload(call.op)._schema.arguments):
        modes = [mode for mode in modes if mode in ("run", "bind")]  # in place: a second run would see the first
    if call.op in _ON_STORAGE:
        modes = [mode for mode in modes if mode != "strided"]
    for mode in modes:
        pairs = oracle.results(call.op, call.args, call.kwargs, expected, mode)
        if relation is None:
            _assert_close(call, pairs, limits, f"{call.op} ({mode})")
            continue
        for actual, wanted in pairs:
            assert (actual.shape, actual.dtype) == (wanted.shape, wanted.dtype), f"{actual.shape}, {actual.dtype}"
        relation(call, [actual for actual, _ in pairs])


def _undisturbed(call: Call) -> Call:
    """The call with its result computed anew, if it is complex: under a dispatch mode, as the recorder is one, torch
    2.13 drops the lazy conjugation of views inside some of its own operators (`linalg_pinv`)."""
    if call.result is None or call.op in _ON_STORAGE or not any(t.is_complex() for t in call.tensors()):
        return call
    args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, (call.args, call.kwargs))
    return replace(call, result=call.function(*args, **kwargs))


def _relation(op: str) -> Callable[[Call, list[torch.Tensor]], None] | None:
    """What holds of the results of an operator that are not determined by its arguments."""
    base = op.partition(".")[0]
    if base in UNINITIALISED:
        return lambda call, actual: None
    return RANDOM.get(base) or NOT_UNIQUE.get(base) or NOT_UNIQUE.get(op)


def _expected(call: Call) -> Any:
    """The result, but of narrow floats what float32 gives, rounded once; numbers beside them, as torch rounds them."""
    in_place = call.result is None
    if not in_place and (call.op in _BITS or not any(t.dtype in _NARROW for t in call.tensors())):
        return call.result
    args, kwargs = pytree.tree_map(_as_float32, (_with_rounded_numbers(call), call.kwargs))
    exact = call.function(*args, **kwargs)
    if in_place:
        return args[0].to(call.args[0].dtype)
    return pytree.tree_map(lambda e, r: e.to(r.dtype) if isinstance(e, torch.Tensor) else e, exact, call.result)


_ROUND_NUMBERS = {f"aten::{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "rsub", "pow")}
_ROUND_NUMBERS |= {"aten::remainder", "aten::fmod"}
"""What torch casts a number for, to the dtype of the tensor beside it; for products and quotients it does not."""


def _with_rounded_numbers(call: Call) -> list[Any]:
    """The arguments, of which a number among the first two is of the tensor's narrow dtype."""
    args, rounds = list(call.args), call.op.partition(".")[0] in _ROUND_NUMBERS
    dtype = next((arg.dtype for arg in args if isinstance(arg, torch.Tensor)), None)
    for place, arg in enumerate(args[:2] if rounds and dtype in _NARROW else ()):
        if isinstance(arg, float):
            args[place] = torch.tensor(arg).to(dtype).item()
    return args


def _as_float32(value: Any) -> Any:
    """Narrow floats, and requests for them, made float32."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in _NARROW else value.clone()
    return torch.float32 if isinstance(value, torch.dtype) and value in _NARROW else value


def outputs(call: Call, result: Any) -> list[Any]:
    """`result`, one entry for each output of the schema; the target of an in-place operator is its output."""
    outs = [a for a in out_overload(call.op)._schema.arguments if a.is_out]
    if len(outs) > 1:
        return list(result)
    return [list(result)] if isinstance(result, list | tuple) else [result]


# ---- shapes that are planned ------------------------------------------------------------------------


def _bags_as_planned(call: Call, expected: list[torch.Tensor]) -> list[torch.Tensor]:
    """Contents where torch leaves the bag of each index away, in a fast path of some dtypes: those of float64."""
    tensors = partial(pytree.tree_map_only, torch.Tensor)
    with FakeTensorMode() as mode:
        planned = call.function(*tensors(mode.from_tensor, call.args), **tensors(mode.from_tensor, call.kwargs))
    widen = partial(_cast, {call.tensors()[0].dtype: torch.float64})
    exact = call.function(*pytree.tree_map(widen, call.args), **pytree.tree_map(widen, call.kwargs))
    return [
        e if e.shape == p.shape else _fitted(x, tuple(p.shape), e.dtype)
        for e, p, x in zip(expected, planned, exact, strict=True)
    ]


def _fitted(values: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """The leading ones of `values`; 0 beyond them."""
    result = torch.zeros(shape, dtype=dtype)
    result[: len(values)] = values[: len(result)]
    return result


def _neighbours_as_planned(call: Call, expected: list[torch.Tensor]) -> list[torch.Tensor]:
    """Along a dim inverse and counts are planned, asked for or not."""
    self, dim = call.args[0], call.args[3] if len(call.args) > 3 else call.kwargs.get("dim")
    if self.ndim != 1 or dim is None:
        return expected
    return [expected[0], *aten.unique_consecutive.default(self, True, True, dim)[1:]]


_AS_PLANNED: dict[str, Callable[[Call, list[torch.Tensor]], list[torch.Tensor]]] = {
    "aten::_embedding_bag_forward_only.out": _bags_as_planned,
    "aten::unique_consecutive.out": _neighbours_as_planned,
}
"""Operators with outputs that eager torch shapes differently from its meta function, by which memory is planned: what
a program expects of them has the planned shape."""

# ---- closeness -------------------------------------------------------------------------------------


def _limits(call: Call, expected: Any) -> dict[str, float]:
    """Empty: torch.testing's defaults by dtype. Sums of products: 1e-6 of the largest sum of their terms' magnitudes.

    Images of uint8: 1, since torch interpolates them with weights of 16 bits. float8, for which torch.testing has none:
    one unit in the last place.
    """
    dtype = expected[0].dtype if isinstance(expected[0], torch.Tensor) else None
    if dtype in FLOAT8:
        return {"rtol": torch.finfo(dtype).eps, "atol": torch.finfo(dtype).smallest_normal}
    if "upsample" in call.op and dtype == torch.uint8:
        return {"rtol": 0, "atol": 1}
    if call.op not in _SUMS_OF_PRODUCTS or dtype not in (torch.float32, torch.complex64):
        return {}
    args, kwargs = pytree.tree_map(_magnitude, (call.args, call.kwargs))
    terms = call.function(*args, **kwargs)
    return {"rtol": 1.3e-6, "atol": max(1e-5, 1e-6 * float(terms.max()) if terms.numel() else 0.0)}


def _magnitude(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype == torch.bool:
        return value
    return abs(value) if isinstance(value, torch.Tensor | float | complex) else value


def _assert_close(
    call: Call, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], limits: dict[str, float], where: str
) -> None:
    for position, (actual, wanted) in enumerate(pairs):
        if actual.dtype == wanted.dtype and wanted.dtype in FLOAT8:  # torch.testing compares their bits
            actual, wanted = actual.float(), wanted.float()
        if actual.dtype == wanted.dtype and actual.shape == wanted.shape and torch.equal(actual, wanted):
            continue
        close = limits or tolerances(wanted.dtype)
        try:
            torch.testing.assert_close(actual, wanted, equal_nan=True, **close, msg=lambda m: f"{where}: {m}")
        except AssertionError:
            if not _is_as_exact(call, position, actual, wanted):
                raise


_WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}


def _is_as_exact(call: Call, position: int, actual: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether the kernel is no further from torch's result in double precision than twice torch's own single precision.

    Where a problem is ill-conditioned or terms cancel, two right answers differ by more than a tolerance for numbers.
    """
    if wanted.dtype not in _WIDER or actual.dtype != wanted.dtype or actual.shape != wanted.shape:
        return False

    args, kwargs = pytree.tree_map(partial(_cast, _WIDER), (call.args, call.kwargs))
    reference = pytree.tree_leaves(call.function(*args, **kwargs))[position]
    if reference.dtype != _WIDER[wanted.dtype] or not (reference.isfinite().all() and actual.isfinite().all()):
        return False
    return float((actual - reference).abs().max()) <= 2 * float((wanted - reference).abs().max())


def _cast(table: Mapping[torch.dtype, torch.dtype], value: Any) -> Any:
    """Tensors of the dtypes in `table`, and requests for them, in the dtypes that it has for them."""
    if isinstance(value, torch.Tensor):
        return value.to(table.get(value.dtype, value.dtype))
    return table.get(value, value) if isinstance(value, torch.dtype) else value
