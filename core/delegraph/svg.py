"""The parts of drawings -> an SVG: whole, for files and notebooks, in light and in dark; every text escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import floor, log10
from typing import Final
from xml.sax.saxutils import escape

__all__ = ["drawing", "svg_text", "tick"]

_NOT_IN_XML: Final = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that no XML document may have, even escaped (XML 1.0, section 2.2). Names may be a stranger's."""


def drawing(kind: str, style: str, width: int, height: int, parts: Iterable[str]) -> str:
    """The document: `kind` is its class, of which the rules of `style` are, as a style in a notebook's page reaches all
    of the page; it shrinks where there is less room."""
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" style="max-width: 100%; height: auto"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" {size} role="img">'
    return "\n".join([head, f"<style>{style}</style>", *parts, "</svg>", ""])


def tick(most: float, ticks: int) -> float:
    """The distance of at most `ticks` ticks up to `most`, a positive number: 1, 2 or 5 of a power of ten."""
    least = most / max(ticks, 1)
    power: float = 10.0 ** floor(log10(least))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= least * (1 - 1e-9))


def svg_text(text: str) -> str:
    """`text` as it stands in the document, between tags."""
    return escape(_NOT_IN_XML.sub("�", text))
