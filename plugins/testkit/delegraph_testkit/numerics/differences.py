"""A result and torch's -> the kinds in which they differ, each with the first place where they do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np

from delegraph_testkit.arrays import Array
from delegraph_testkit.numerics.kinds import Difference
from delegraph_testkit.numerics.reference import Answers
from delegraph_testkit.numerics.undefined import UnorderedTies

__all__ = ["ULPS", "differences", "same_choice"]

Slack: TypeAlias = Callable[[], Array]

ULPS: Final[Mapping[str, float]] = {"float16": 1, "bfloat16": 1, "float32": 16, "float64": 4096}
"""How far a result may be off, in units of its last place: halves are rounded once; float32's functions are computed by
polynomials that are good to a few; of double precision a thousandth of a billionth is asked. Sums and products of many
terms: of the largest result beside them."""


_NOT_FINITE: Final = (Difference.NAN, Difference.INFINITY)


def differences(
    actual: Array, answers: Answers, position: int, elementwise: bool, known: Collection[Difference] = ()
) -> Iterator[tuple[Difference, tuple[int, ...]]]:
    """Each kind, of those that are not `known`, in which a result differs from all that is torch's, with the index of
    the first element that does.

    What torch's results would not be with 0 in place of denormal operands differs in them alone.

    Of finite operands that may overflow on the way, other than element by element, infinity and NaN are one: which of
    them comes out, and where, the order of a sum decides.
    """
    reference = answers.first[position]
    if actual.shape != reference.shape or actual.dtype != reference.dtype:
        if Difference.FORM not in known:
            yield Difference.FORM, ()
        return
    kinds: dict[Difference, Array] = {}
    slack = partial(answers.slack, position, elementwise)
    for results in answers:
        masks = _kinds(actual, results[position], slack, elementwise)
        apart = _any(masks)
        if kinds:
            kinds = {kind: mask & apart for kind, mask in kinds.items()}
        else:
            kinds = {kind: mask for kind, mask in masks.items() if kind not in known}
            if not elementwise and answers.may_overflow and reference.dtype.kind not in "biu":
                finite = np.isfinite(reference)
                kinds = {kind: mask & finite if kind in _NOT_FINITE else mask for kind, mask in kinds.items()}
        kinds = {kind: mask for kind, mask in kinds.items() if mask.any()}
        if not kinds:
            return
    if answers.of_zeros is not None:
        of_zeros = answers.of_zeros[position]
        hangs_on_denormals = _any(_kinds(reference, of_zeros, slack, elementwise))
        others = {kind: mask for kind, mask in kinds.items() if kind is not Difference.ZERO}
        kinds.update({kind: mask & ~hangs_on_denormals for kind, mask in others.items()})
        denormal = hangs_on_denormals & np.logical_or.reduce([np.zeros_like(hangs_on_denormals), *others.values()])
        kinds[Difference.DENORMAL] = denormal | kinds.get(Difference.DENORMAL, denormal)
    for kind, mask in kinds.items():
        if mask.any() and kind not in known:
            yield kind, tuple(int(i) for i in np.argwhere(mask)[0])


def _any(masks: Mapping[Difference, Array]) -> Array:
    return np.asarray(np.logical_or.reduce(list(masks.values())))


def _finfo(dtype: Any) -> Any:
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def _kinds(actual: Array, expected: Array, slack: Slack, elementwise: bool) -> dict[Difference, Array]:
    """Difference -> where a result differs in it."""
    if expected.dtype.kind in "biu":
        return {Difference.INTEGER: actual != expected}
    if expected.dtype.kind == "c":
        return _complex_kinds(actual, expected, slack, elementwise)
    name, info = expected.dtype.name, _finfo(expected.dtype)
    got, reference = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        nan = np.isnan(got) != np.isnan(reference)
        both = np.isfinite(got) & np.isfinite(reference)
        infinite = ~nan & ~both & ~np.isnan(got) & (got != reference)
        size = np.abs(reference)
        if not elementwise:
            size = np.maximum(size, np.max(size, where=np.isfinite(size), initial=0.0))
        allowed = ULPS[name] * float(info.eps) * size
        small = both & (np.abs(got) < float(info.tiny)) & (np.abs(reference) < float(info.tiny))
        off = both & ~(np.abs(got - reference) <= allowed)
        if off.any():
            more = slack()
            if not elementwise:
                more = np.where(np.isinf(more), more, more.max(initial=0.0, where=np.isfinite(more)))
            off &= ~(np.abs(got - reference) <= allowed + more)
        zero = both & (got == 0) & (reference == 0) & (np.signbit(got) != np.signbit(reference))
    return {
        Difference.NAN: nan,
        Difference.INFINITY: infinite,
        Difference.VALUE: off & ~small,
        Difference.DENORMAL: off & small & (got != reference),
        Difference.ZERO: zero,
    }


def _complex_kinds(actual: Array, expected: Array, slack: Slack, elementwise: bool) -> dict[Difference, Array]:
    """As numbers where both are finite, each part as near as rounding takes the whole; which part of one that is not is
    infinite or NaN, says no standard."""
    finite = np.isfinite(actual) & np.isfinite(expected)
    got, reference = (np.where(finite, values, 0) for values in (actual, expected))
    with np.errstate(all="ignore"):
        most = np.finfo(reference.real.dtype).max / 4  # a sum of two such may be infinite
        beyond = ~(np.hypot(reference.real, reference.imag) < most)
        got, reference = (np.where(beyond, values / 4, values).astype(values.dtype) for values in (got, reference))
        whole = np.hypot(reference.real, reference.imag)
        apart = np.hypot(got.real - reference.real, got.imag - reference.imag)
    near = whole + apart.astype(whole.dtype)
    kinds = _kinds(near, whole, slack, elementwise)
    return {**kinds, Difference.NAN: np.isfinite(actual) != np.isfinite(expected)}


def same_choice(
    ties: UnorderedTies, inputs: Sequence[Array], results: Sequence[Array], expected: Sequence[Array]
) -> bool:
    """Whether places are of elements that equal those which torch chose, and no place is named twice where torch names
    none twice."""
    places, source = results[ties.places], inputs[0]
    if not source.ndim:
        return bool((places == expected[ties.places]).all())
    for dim in range(source.ndim):
        reduced = places.ndim < source.ndim
        mine, torchs = ((np.expand_dims(p, dim) if reduced else p) for p in (places, expected[ties.places]))
        if mine.ndim != source.ndim or (mine.size and (mine.min() < 0 or mine.max() >= source.shape[dim])):
            continue
        try:
            chosen, by_torch = np.take_along_axis(source, mine, dim), np.take_along_axis(source, torchs, dim)
        except (IndexError, ValueError):
            continue
        if _equal(chosen, by_torch) and (_repeats(torchs, dim) or not _repeats(mine, dim)):
            return True
    return False


def _equal(a: Array, b: Array) -> bool:
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _repeats(places: Any, dim: int) -> bool:
    return bool((np.diff(np.sort(places, dim), axis=dim) == 0).any())
