"""Where a kernel differs from torch on purpose -> why. Everything else that differs is a failure."""

from __future__ import annotations

from typing import Final

from tests.kernels.opinfo.entries import EntryResult

__all__ = ["DEVIATIONS", "reason", "unexplained"]

_ASYMPTOTIC = (
    "torch's double-precision Bessel functions are good to 2e-7 only for some arguments; the kernel is to 1e-15, by"
    " scipy.special's values"
)

DEVIATIONS: Final[dict[tuple[str, str], str]] = {
    ("aten::special_bessel_j0.out", "float64"): _ASYMPTOTIC,
    ("aten::special_bessel_y1.out", "float64"): _ASYMPTOTIC,
    **{
        (
            "aten::polygamma.out",
            dtype,
        ): "at the poles (0, -1, -2, …) the kernel gives infinity; torch gives large numbers"
        " that come from rounding a multiple of pi"
        for dtype in ("int8", "int16")
    },
}
"""(operator, dtype; "*" is all) -> who is right, and why."""

OF_CPU: Final[dict[tuple[str, str], str]] = {
    **{
        ("aten::add.out", dtype): "torch multiplies by alpha as a complex number even if it is 1, which makes infinite"
        " numbers none; the backend leaves them infinite"
        for dtype in ("complex64", "complex128")
    },
    ("aten::grid_sampler_2d.out", "bfloat16"): "where a place beyond the image is half way between two pixels, ONNX"
    " rounds it before it is reflected, torch afterwards: the other one of two nearest pixels",
    ("aten::scaled_dot_product_attention", "float32"): "onnxruntime's sums over scores that are large differ by 3e-5"
    " from torch's",
}
"""The same for delegates of the CPU backend (`test_delegates.py`)."""


def reason(op: str, dtype: str) -> str | None:
    return DEVIATIONS.get((op, dtype)) or DEVIATIONS.get((op, "*"))


def unexplained(result: EntryResult) -> list[str]:
    """The failures for which there is no reason in `DEVIATIONS`."""
    return [
        f"{op} on {dtype}: {cell.failed} of {cell.compared} fail: {cell.message}"
        for op, row in sorted(result.cells.items())
        for dtype, cell in row.items()
        if cell.failed and reason(op, dtype) is None
    ]
