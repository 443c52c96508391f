"""Named numbers -> an SVG with a bar for each, in groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

__all__ = ["bars"]

_ROW: Final = 18
_LABEL, _WIDTH, _MARGIN = 260, 420, 12

_COLOURS: Final = ((15.0, "#c0392b"), (25.0, "#d68910"), (math.inf, "#2471a3"))
"""Below this many dB: a bar's colour. Of 8 bits one expects 30 to 40."""


def bars(title: str, groups: Sequence[tuple[str, Sequence[tuple[str, float, str]]]]) -> str:
    """`groups` are (heading, [(label, dB, what stands behind the bar)]); an infinite value fills the width."""
    finite = [value for _, rows in groups for _, value, _ in rows if math.isfinite(value)]
    longest = max([40.0, *finite])
    lines, y = [_text(_MARGIN, 20, title, "bold")], 44
    for heading, rows in groups:
        lines.append(_text(_MARGIN, y, heading, "bold"))
        y += _ROW
        for label, value, note in rows:
            length = _WIDTH if value == math.inf else max(1.0, _WIDTH * max(value, 0) / longest)
            colour = next(colour for limit, colour in _COLOURS if value < limit or limit == math.inf)
            lines.append(_text(_MARGIN, y + 11, label[-40:]))
            lines.append(f'<rect x="{_LABEL}" y="{y}" width="{length:.1f}" height="13" fill="{colour}"/>')
            lines.append(_text(_LABEL + length + 6, y + 11, note))
            y += _ROW
        y += _ROW
    scale = [
        _tick(decibels, _LABEL + _WIDTH * decibels / longest, y - _ROW) for decibels in range(0, int(longest) + 1, 10)
    ]
    lines, width = [*scale, *lines], _LABEL + _WIDTH + 300
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" font-family="sans-serif"'
        f' font-size="11">\n<rect width="{width}" height="{y}" fill="white"/>\n' + "\n".join(lines) + "\n</svg>\n"
    )


def _tick(decibels: int, x: float, bottom: int) -> str:
    """A line behind the bars, and its number above them."""
    unit = " dB" if decibels == 0 else ""
    text = f'<text x="{x:.1f}" y="36" text-anchor="middle">{decibels}{unit}</text>'
    return f'<path d="M{x:.1f} 40V{bottom}" stroke="#ddd"/>{text}'


def _text(x: float, y: float, text: str, weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-weight="{weight}">{escape(text)}</text>'
