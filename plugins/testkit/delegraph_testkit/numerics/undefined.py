"""Operands and results that torch itself leaves open, which are not compared, each with the reason in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

import torch
from torch import Tensor

from delegraph_testkit.numerics.kinds import Difference

__all__ = ["LEFT", "NOT_COMPARED", "OPEN", "TIES", "UNDEFINED", "defined", "left", "not_compared"]

Operands: TypeAlias = Sequence[Tensor]


@dataclass(frozen=True, slots=True)
class Undefined:
    """Elements of operands for which torch promises nothing: those for which `of` is true, a tensor that the operands
    broadcast to. `entries` are patterns of names in torch's operator database."""

    entries: tuple[str, ...]
    of: Callable[[Operands], Tensor]
    reason: str
    operand: int = -1
    """The operand in which they are replaced."""


def _no_quotient(dividend: Tensor, divisor: Tensor) -> Tensor:
    none = torch.zeros(torch.broadcast_shapes(dividend.shape, divisor.shape), dtype=torch.bool)
    if dividend.dtype.is_floating_point or divisor.dtype.is_floating_point or dividend.dtype.is_complex:
        return none
    if dividend.dtype == torch.bool or divisor.dtype == torch.bool:
        return none | (divisor == 0)
    overflows = (dividend == torch.iinfo(dividend.dtype).min) & (divisor == -1)
    return none | (divisor == 0) | overflows


def _beyond(dtype: torch.dtype) -> Callable[[Operands], Tensor]:
    info = torch.iinfo(dtype)

    def beyond(operands: Operands) -> Tensor:
        (x,) = operands
        if not (x.dtype.is_floating_point or x.dtype.is_complex):
            return torch.zeros(x.shape, dtype=torch.bool)
        real = (x.real if x.is_complex() else x).double()
        return ~((real > float(info.min) - 1) & (real < float(info.max) + 1))

    return beyond


def _no_magnitude(operands: Operands) -> Tensor:
    a, b = operands
    if a.dtype in (torch.bool, torch.uint8) or a.dtype.is_floating_point:
        return torch.zeros(torch.broadcast_shapes(a.shape, b.shape), dtype=torch.bool)
    least = torch.iinfo(a.dtype).min
    return (a == least) | (b == least)


UNDEFINED: Final = (
    Undefined(
        ("floor_divide", "div floor_rounding", "div trunc_rounding", "remainder", "fmod"),
        lambda operands: _no_quotient(operands[0], operands[1]),
        "an integer divided by 0 is an error in torch, and the least integer divided by -1 ends its process",
    ),
    Undefined(
        ("__rmod__",),
        lambda operands: _no_quotient(operands[1], operands[0]),
        "the same, with the operands exchanged",
        0,
    ),
    *(
        Undefined(
            (name,),
            _beyond(dtype),
            "a float beyond the integers of a dtype, or NaN, is cast to whatever the processor has",
        )
        for name, dtype in [
            *(("byte", torch.uint8), ("char", torch.int8), ("short", torch.int16), ("int", torch.int32)),
            ("long", torch.int64),
        ]
    ),
    Undefined(("gcd", "lcm"), _no_magnitude, "the least integer has no magnitude"),
    Undefined(
        ("polygamma *", "special.polygamma *"),
        lambda operands: (operands[0] <= 0) & (operands[0] == operands[0].double().floor()),
        "a pole, for which torch divides by the sine of a rounded multiple of pi",
    ),
    Undefined(
        ("polygamma *", "special.polygamma *", "special.zeta"),
        lambda operands: operands[-1] < -1e5,
        "torch's series begins above 9, to which it counts by ones",
    ),
)

LEFT: Final[dict[str, tuple[tuple[int, ...], str]]] = {
    "searchsorted": ((0,), "a sequence that is not sorted"),
    "bucketize": ((1,), "boundaries that are not sorted"),
    "bincount": ((0, 1), "as many results as the largest number says"),
    "nn.functional.grid_sample": ((1,), "a place that is not finite is cast to an integer"),
    "grid_sampler_2d": ((1,), "a place that is not finite is cast to an integer"),
    "grid_sampler_3d": ((1,), "a place that is not finite is cast to an integer"),
    "nn.functional.conv*": (
        (1,),
        "whether padding is multiplied with a weight that is not finite, torch's kernels differ",
    ),
    "special.*_polynomial_*": ((1,), "as many terms as the degree says"),
}
"""Entry -> the tensors of a sample that keep their content, by position, and what edges would make of them."""

NOT_COMPARED: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            *("svd", "linalg.svd", "svd_lowrank", "pca_lowrank", "linalg.eigh", "linalg.eig", "linalg.qr", "qr"),
            *("geqrf", "linalg.lu", "linalg.lu_factor", "linalg.lu_factor_ex", "lu", "lu_solve", "lu_unpack"),
            *("linalg.ldl_*", "linalg.lstsq*", "linalg.householder_product", "ormqr", "linalg.lu_solve"),
        ),
        "factors are not unique",
    ),
    **dict.fromkeys(
        (
            *("cholesky*", "inverse", "logdet", "pinverse*", "matrix_exp", "triangular_solve", "linalg.cholesky*"),
            *("linalg.cond", "linalg.det*", "linalg.slogdet", "linalg.eig*", "linalg.inv*", "linalg.pinv*"),
            *("linalg.solve*", "linalg.tensor*", "linalg.matrix_*", "linalg.svdvals", "norm nuc", "logdet"),
        ),
        "what LAPACK makes of infinities and NaN depends on its blocks",
    ),
    "unique_consecutive": "eager torch shapes outputs that nobody asked for otherwise than it plans them",
    **dict.fromkeys(("empty*", "new_empty*", "resize_*"), "memory that nobody has written"),
    **dict.fromkeys(("nn.functional.fractional_max_pool*", "*dropout*"), "drawn at random"),
}
"""Entry -> why its results are not compared."""


@dataclass(frozen=True, slots=True)
class Open:
    """Kinds in which results of entries, patterns of names, may differ."""

    entries: tuple[str, ...]
    kinds: tuple[Difference, ...]
    reason: str

    def is_of(self, entry: str) -> bool:
        """Whether an entry is among them."""
        return any(fnmatchcase(entry, pattern) for pattern in self.entries)


OPEN: Final = (
    Open(
        (
            *("maximum", "minimum", "max *", "min *", "fmax", "fmin", "amax", "amin", "aminmax", "clamp*", "sort"),
            *("msort", "argsort", "topk", "kthvalue", "median", "nanmedian", "mode", "unique*", "cummax", "cummin"),
            *("nn.functional.hardtanh", "nn.functional.*max_pool*", "nn.functional.relu*"),
        ),
        (Difference.ZERO,),
        "zeros of both signs are equal: which of equals is the larger, torch's loops decide as they are vectorised",
    ),
    Open(
        ("nn.functional.interpolate *linear", "nn.functional.interpolate bicubic", "*upsample_*", "*grid_sample*"),
        (Difference.NAN, Difference.INFINITY, Difference.ZERO),
        "whether a neighbour whose weight is 0 counts: torch's kernels and its decompositions differ",
    ),
    Open(
        ("*var_mean*", "*std_mean*"),
        (Difference.NAN,),
        "the mean of infinities is NaN in torch's kernels, and infinite in its references",
    ),
    Open(
        ("nn.functional.group_norm", "native_group_norm", "nn.functional.*batch_norm*", "nn.functional.instance_norm"),
        (Difference.NAN, Difference.INFINITY),
        "a mean is subtracted before it is scaled by an infinite weight, or afterwards",
    ),
    Open(
        ("stft", "istft", "fft.*"),
        (Difference.NAN, Difference.INFINITY, Difference.ZERO),
        "which terms of a Fourier transform are multiplied at all depends on its factors",
    ),
    Open(
        ("special.xlog1py",),
        (Difference.ZERO,),
        "torch's kernel gives a product of zeros a sign, its decomposition none",
    ),
    Open(
        ("special.zeta", "polygamma *", "special.polygamma *"),
        (Difference.NAN,),
        "terms that all are 0 torch divides by their sum",
    ),
    Open(
        ("masked.logsumexp",),
        (Difference.INTEGER,),
        "torch casts its result of integers, a float, to one that may have no place for it",
    ),
    Open(
        ("mode", "unique"),
        (Difference.NAN, Difference.INTEGER, Difference.FORM),
        "torch sorts by comparisons, which NaN breaks",
    ),
)
"""Which of several results torch gives hangs on what it does not promise."""


@dataclass(frozen=True, slots=True)
class UnorderedTies:
    """An entry whose results say where elements stood: which of equal ones, torch leaves open."""

    values: int | None
    """The result that has the elements; None if there is none."""
    places: int
    """The result that has the places."""


TIES: Final[dict[str, UnorderedTies]] = {
    **dict.fromkeys(("sort", "topk", "kthvalue", "mode", "median", "nanmedian"), UnorderedTies(0, 1)),
    "argsort": UnorderedTies(None, 0),
}


def defined(entry: str, operands: Operands) -> list[Tensor]:
    """The operands, with 1 in place of what torch leaves open."""
    changed = [operand.clone() for operand in operands]
    for row in UNDEFINED:
        if any(fnmatchcase(entry, pattern) for pattern in row.entries):
            operand = changed[row.operand]
            operand[_reduced(row.of(changed), operand.shape)] = 1
    return changed


def _reduced(mask: Tensor, shape: torch.Size) -> Tensor:
    """Of a mask, whether any is true that an element of a tensor of `shape` is broadcast to."""
    for _ in range(mask.dim() - len(shape)):
        mask = mask.any(0)
    for dim, size in enumerate(shape):
        mask = mask.any(dim, keepdim=True) if size == 1 != mask.shape[dim] else mask
    return mask


def left(entry: str) -> tuple[int, ...]:
    """The tensors of an entry's samples that keep their content, by position."""
    return next((places for pattern, (places, _) in LEFT.items() if fnmatchcase(entry, pattern)), ())


def not_compared(entry: str) -> str:
    """Why results of an entry are not compared; "" for those that are."""
    return next((reason for pattern, reason in NOT_COMPARED.items() if fnmatchcase(entry, pattern)), "")
