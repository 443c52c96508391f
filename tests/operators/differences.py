"""Where ExecuTorch 1.4.1 does other than torch on a case: what it does, why, and who is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

HERE: Final = "torch; we agree with it"


@dataclass(frozen=True)
class Difference:
    """`kind`: ExecuTorch "refuses" the program, "crashes" (the process ends), or its result "differs"."""

    kind: str
    reason: str
    right: str


@dataclass(frozen=True)
class _Group:
    difference: Difference
    cases: tuple[str, ...]


def _group(kind: str, reason: str, *cases: str, right: str = HERE) -> _Group:
    return _Group(Difference(kind, reason, right), cases)


def _of(operator: str, *variants: str) -> tuple[str, ...]:
    return tuple(f"{operator} {variant}" for variant in variants)


_QUANTIZED = "quantized_decomposed::"

_REFUSALS: Final = (
    _group(
        "refuses",
        "the operator takes no half dtypes there",
        *_of("aten::logit.out", "float16", "bfloat16"),
    ),
    _group(
        "refuses",
        "a number of a higher kind than the tensor (float, or integer with bool) makes the result of that kind; the"
        " kernel wants the tensor's dtype",
        *_of("aten::add.Scalar_out", "2 bool", "1.5 int64", "1.5 uint8", "1.5 bool"),
    ),
    _group(
        "refuses",
        "the result of a channels_last input is contiguous, as in torch; the kernel wants one dim order",
        *(f"aten::{name} channels_last" for name in (
            "sum.IntList_out", "mean.out", "amax.out", "amin.out", "any.dims_out", "slice_copy.Tensor_out",
            "permute_copy.out", "cat.out", "_softmax.out",
        )),
    ),
    _group(
        "refuses",
        "the kernel takes the default dim order only",
        "aten::pixel_shuffle.out channels_last",
        "aten::avg_pool2d.out channels_last",
        "aten::_adaptive_avg_pool2d.out channels_last",
    ),
    _group("refuses", "dim 0 of a 0-d tensor is valid in torch", "aten::cumsum.out 0-d"),
    _group(
        "refuses",
        "the input of a linear layer may be a single row, of rank 1",
        *_of("aten::linear.out", "one row", "one row and bias"),
    ),
    _group("refuses", "without dims, roll moves the flattened tensor", "aten::roll.out flat"),
    _group("refuses", "a negative amount of padding crops", "aten::constant_pad_nd.out negative"),
    _group(
        "refuses",
        "index_put_ is a special case there: one int32 or int64 index, no accumulation",
        *_of("aten::index_put_", *(f"accumulate {d}" for d in ("float32", "float16", "int64", "bool")), "mask"),
    ),
    _group("refuses", "convolutions of three spatial dims are not there", "aten::convolution.out 3-d"),
    _group("refuses", "the kernel lacks float64", "aten::_log_softmax.out float64"),
    _group("refuses", "transforms that keep both sides are not there", "aten::_fft_r2c.out two-sided"),
)  # fmt: skip

_CRASHES: Final = (
    _group(
        "crashes", "dim 0 of a 0-d tensor is valid in torch; an assertion ends the process", "aten::sum.IntList_out 0-d"
    ),
    _group(
        "crashes",
        "a dim of size 0 that is not reduced gives an empty result; an assertion wants an element",
        *(f"aten::{name}.out empty, dim left" for name in ("amax", "amin")),
    ),
    _group("crashes", "a negative dim reaches an assertion", "aten::narrow_copy.out negative"),
    _group(
        "crashes",
        "scales of dtype float32 are valid in torch; an assertion wants float64",
        *_of(f"{_QUANTIZED}quantize_per_channel.out", *(f"{d} axis {a}" for d in ("int8", "uint8") for a in (0, 1))),
        f"{_QUANTIZED}quantize_per_token.out int8",
    ),
    _group(
        "crashes",
        "an assertion wants unsigned ranges, and so uint8",
        f"{_QUANTIZED}add.out int8",
        right="we: the operator's formula holds for int8 too, and torch has no such operator",
    ),
)

_WRONG: Final = (
    _group(
        "differs",
        "the sign of NaN is 0 in torch, NaN there",
        *_of("aten::sign.out", "special values float32", "special values float16"),
    ),
    _group(
        "differs",
        "division by zero: 0 / 0 and NaN / 0 are NaN in torch and infinite there, and the sign of -0.0 counts",
        "aten::div.out_mode floor special values",
        "aten::floor_divide.out special values",
    ),
    _group(
        "differs",
        "uint8 with a 0-d int8: torch computes in uint8, where a negative number wraps around; ExecuTorch does not"
        " wrap it",
        *(f"aten::{name} uint8 and 0-d int8" for name in (
            "floor_divide.out", "fmod.Tensor_out", "remainder.Tensor_out", "maximum.out", "minimum.out",
            "lt.Tensor_out", "le.Tensor_out", "gt.Tensor_out", "ge.Tensor_out",
        )),
        *_of("aten::div.out_mode", "floor uint8 and 0-d int8", "trunc uint8 and 0-d int8"),
    ),
    _group(
        "differs",
        "the remainder of integers has the divisor's sign in torch and Python, the dividend's there, as in C",
        *_of("aten::remainder.Tensor_out", "int64", "int32", "int16", "int8", "uint8 and int8"),
        *_of("aten::remainder.Scalar_out", *(f"2 {dtype}" for dtype in ("int64", "int32", "int16", "int8"))),
    ),
    _group(
        "differs",
        "the variance of one element is NaN and its mean the element; ExecuTorch's mean is NaN too",
        "aten::var_mean.correction_out one element",
    ),
    _group("differs", "with beta 0 torch ignores the added tensor, NaN included", "aten::addmm.out beta 0 and NaN"),
    _group(
        "differs",
        "tensors of several dtypes: ExecuTorch copies the integers' bytes into the float result",
        "aten::cat.out int32 and float32",
    ),
    _group(
        "differs",
        "the kernel reads channels_last memory as if it were contiguous",
        *(f"aten::{name} channels_last" for name in ("constant_pad_nd.out", "pixel_unshuffle.out", "_log_softmax.out")),
    ),
    _group(
        "differs",
        "halves: torch computes in float32 and rounds once, ExecuTorch rounds sums and products on the way",
        *(f"aten::{name} float16" for name in (
            "var_mean.correction_out", "addmm.out", "convolution.out", "avg_pool2d.out",
            "_native_batch_norm_legit_no_training.out",
        )),
        *_of("aten::convolution.out", "bfloat16"),
        *_of("aten::avg_pool2d.out", "bfloat16"),
        f"{_QUANTIZED}mixed_mm.out float16",
        f"{_QUANTIZED}mixed_linear.out float16",
    ),
    _group("differs", "statistics of float64 are computed in float32", "aten::native_layer_norm.out float64"),
    _group(
        "differs",
        "what stays is to be divided by 1 - p; ExecuTorch leaves it as it is",
        "aten::native_dropout.out half of it",
    ),
    _group(
        "differs",
        "numbers in [0, 1) are rounded to 1 on the way to halves",
        *_of("aten::rand.out", "float16", "bfloat16"),
    ),
)  # fmt: skip

DIFFERENCES: Final[dict[str, Difference]] = {
    case: group.difference for group in (*_REFUSALS, *_CRASHES, *_WRONG) for case in group.cases
}
"""By the name of the case. Every other case gives the same there, here and in torch."""

_LEFT_OUT = "it changes nothing, so that lowering leaves it out"
_FORMULA = "torch has no such operator; the expected result is its formula in torch"

NOT_LOWERED_TO: Final = {
    "aten::t_copy.out": "lowering writes permute_copy",
    "aten::transpose_copy.int_out": "lowering writes permute_copy",
    **dict.fromkeys((f"aten::{name}.out" for name in (
        "clone", "alias_copy", "detach_copy", "lift_fresh_copy",
    )), _LEFT_OUT),
    "dim_order_ops::_clone_dim_order.out": "lowering writes _to_dim_order_copy, or leaves it out",
    "aten::_native_batch_norm_legit.out": "it writes running statistics, and lowering makes it functional",
    "aten::index_put_": "lowering leaves programs functional",
    "aten::sym_numel": "torch.export writes a product of sizes",
    "executorch_prim::sym_int.Scalar": "torch.export writes trunc",
    "executorch_prim::mod.Scalar": "its remainder has the dividend's sign, as in C; lowering composes Python's",
    "executorch_prim::mod.int": "lowering writes operators on any number",
    "executorch_prim::floordiv.int": "lowering writes operators on any number",
    f"{_QUANTIZED}choose_qparams_per_token_asymmetric.out": "torch decomposes it",
    **dict.fromkeys((f"{_QUANTIZED}{name}.out" for name in (
        "add", "mixed_mm", "mixed_linear", "embedding_byte", "embedding_2bit", "embedding_4bit",
    )), _FORMULA),
    **dict.fromkeys((f"{_QUANTIZED}embedding_{kind}.dtype_out" for kind in ("byte", "2bit", "4bit")), _FORMULA),
}  # fmt: skip
"""Operators that no torch program is lowered to, and why. Their programs have another operator that was renamed."""

_TITLES: Final = {
    "refuses": "Programs that ExecuTorch refuses",
    "crashes": "Programs that end ExecuTorch's process",
    "differs": "Results that differ",
}


def as_document(cases: int) -> str:
    """The list in Markdown. `cases` is how many were compared."""
    sections = (line for kind in _TITLES for line in _section(kind))
    return "\n".join([*_introduction(cases), *sections, *_renamed_section()]) + "\n"


def _introduction(cases: int) -> list[str]:
    same = cases - len(DIFFERENCES)
    return [
        "# Where ExecuTorch differs",
        "",
        f"{cases} small programs run on ExecuTorch's kernels and on ours, and both are compared with torch, within the",
        "tolerances of `torch.testing.assert_close`. Every operator that ExecuTorch 1.4.1 and its quantized library",
        f"register has some. In {same} of them all three agree; ours agree with torch in all. The others are below.",
        "",
        "`pytest tests/operators -m executorch --renew` makes this file from `tests/operators/differences.py`; that",
        "test fails when a listed difference is gone, or a new one appears.",
    ]


def _section(kind: str) -> Iterator[str]:
    groups = [group for group in (*_REFUSALS, *_CRASHES, *_WRONG) if group.difference.kind == kind]
    yield from ("", f"## {_TITLES[kind]}", "", "| why | who is right | programs |", "|---|---|---|")
    for group in groups:
        cases = ", ".join(f"`{case}`" for case in group.cases)
        yield f"| {group.difference.reason} | {group.difference.right} | {cases} |"


def _renamed_section() -> Iterator[str]:
    yield from ("", "## Operators that no torch program is lowered to", "")
    yield from ("Their programs have another operator's call, renamed.", "", "| operator | why |", "|---|---|")
    for operator, reason in NOT_LOWERED_TO.items():
        yield f"| `{operator}` | {reason} |"
