"""Work, bytes and cycles of a device's layers -> a roofline picture (SVG).

S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009: operations
a cycle over operations a byte, both logarithmic, under the two roofs of compute and bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Final

from delegraph.lazy_dataclass import dataclass

__all__ = ["Point", "roofline"]

_WIDTH: Final = 720
_HEIGHT: Final = 440
_MARGIN: Final = 64


@dataclass(frozen=True, slots=True)
class Point:
    """A layer or a model: its `operations` (multiply-accumulates), the `nbytes` that it moves to and from the outer
    memory, and its `cycles`. Points of a `group` have one colour."""

    name: str
    operations: float
    nbytes: float
    cycles: float
    group: str = ""

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.operations / self.nbytes

    @property
    def speed(self) -> float:
        """Operations a cycle."""
        return self.operations / self.cycles


_DARK: Final = """
@media (prefers-color-scheme: dark) {
  [fill="white"] { fill: #16202a } [fill="#222"] { fill: #dde5ec } text:not([fill="#222"]) { filter: brightness(1.6) }
  [stroke="#ddd"] { stroke: #3a4854 } [stroke="black"] { stroke: #dde5ec }
}
"""


def roofline(points: Sequence[Point], peak: float, bytes_per_cycle: float, title: str) -> str:
    """An SVG of `points` under a peak of so many operations a cycle and a bandwidth; points without work are left."""
    shown = [point for point in points if point.operations > 0 and point.nbytes > 0 and point.cycles > 0]
    ridge = peak / bytes_per_cycle
    x = _Axis([ridge, *(point.intensity for point in shown)], _MARGIN, _WIDTH - _MARGIN)
    y = _Axis([peak, *(point.speed for point in shown)], _HEIGHT - _MARGIN, _MARGIN)
    left, right = 10.0**x.low, 10.0**x.high
    roof = [(left, left * bytes_per_cycle), (ridge, peak), (right, peak)]
    groups = list(dict.fromkeys(point.group for point in shown))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">',
        f"<style>{_DARK}</style>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_WIDTH / 2, 28, title, 16, "middle"),
        _text(_WIDTH / 2, _HEIGHT - 16, "operations a byte of outer memory", 12, "middle"),
        f'<g transform="translate(18 {_HEIGHT / 2}) rotate(-90)">{_text(0, 0, "operations a cycle", 12, "middle")}</g>',
        *_grid(x, y),
        f'<clipPath id="plot"><rect x="{_MARGIN}" y="{_MARGIN}" width="{_WIDTH - 2 * _MARGIN}" '
        f'height="{_HEIGHT - 2 * _MARGIN}"/></clipPath>',
        '<polyline clip-path="url(#plot)" fill="none" stroke="black" stroke-width="2" points="'
        + " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in roof)
        + '"/>',
        *(_dot(point, x, y, _colour(groups.index(point.group), len(groups))) for point in shown),
        *(
            _text(_WIDTH - _MARGIN - 6, _HEIGHT - _MARGIN - 12 - 15 * i, name, 11, "end", _colour(i, len(groups)))
            for i, name in enumerate(groups)
            if name
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Axis:
    """A logarithmic axis from the power of ten below all values to the one above."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self.low = floor(log10(min(values)))
        self.high = max(ceil(log10(max(values))), self.low + 1)
        self._begin, self._end = begin, end

    def __call__(self, value: float) -> float:
        part = (log10(value) - self.low) / (self.high - self.low)
        return self._begin + part * (self._end - self._begin)

    def ticks(self) -> Iterable[int]:
        return range(self.low, self.high + 1)


def _grid(x: _Axis, y: _Axis) -> Iterable[str]:
    top, bottom = _MARGIN, _HEIGHT - _MARGIN
    for power in x.ticks():
        at = x(10.0**power)
        yield f'<path d="M{at:.1f} {top}V{bottom}" stroke="#ddd"/>' + _text(
            at, bottom + 16, f"{10.0**power:g}", 11, "middle"
        )
    for power in y.ticks():
        at = y(10.0**power)
        line = f'<path d="M{_MARGIN} {at:.1f}H{_WIDTH - _MARGIN}" stroke="#ddd"/>'
        yield line + _text(_MARGIN - 6, at + 4, f"{10.0**power:g}", 11, "end")


def _dot(point: Point, x: _Axis, y: _Axis, colour: str) -> str:
    label = f"{point.name}: {point.speed:.3g} operations a cycle, {point.intensity:.3g} a byte"
    at = f'cx="{x(point.intensity):.1f}" cy="{y(point.speed):.1f}"'
    return f'<circle {at} r="4" fill="{colour}" fill-opacity="0.7"><title>{escape(label)}</title></circle>'


def _text(x: float, y: float, text: str, size: int, anchor: str, colour: str = "#222") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
    )


def _colour(index: int, count: int) -> str:
    return f"hsl({360 * index // max(count, 1) + 210} 65% 45%)"
