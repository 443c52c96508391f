"""The times of nodes -> an SVG: the model on top, below it modules, lines, and nodes, each as wide as its time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from delegraph.devtools.profiling.groups import modules_around, together
from delegraph.devtools.profiling.times import NodeTime
from delegraph.devtools.program_model.tables import short_operator
from delegraph.svg import drawing, svg_text, tick
from delegraph.tables import milliseconds

__all__ = ["draw_flame_graph"]

WIDTH: Final = 1200
MARGIN: Final = 10
ROW: Final = 20
LETTER: Final = 7
"""About the width of a letter, in pixels: a label that does not fit its box is cut, and the tooltip has it."""

LEAST: Final = 0.1
"""The width of the smallest boxes that are drawn, in pixels."""

DELEGATES: Final = 6
"""Colours of delegates, which take turns."""

_COLOURS: Final = {
    "module": ("#dfe3e8", "#3a4048"),
    "line": ("#f6dfa4", "#6b5a24"),
    "kernel": ("#f2b26b", "#a05a1a"),
    "d0": ("#9ec5e8", "#3f6d96"),
    "d1": ("#b4d9a8", "#4d7a3f"),
    "d2": ("#d3bdea", "#6d5391"),
    "d3": ("#9fd8d0", "#33776f"),
    "d4": ("#e8b4c8", "#8f4763"),
    "d5": ("#d9cf9a", "#7a7033"),
}
"""Of boxes by their class, in light and in dark."""


def _fills(scheme: int) -> str:
    return "\n".join(f".flame-graph .{kind} {{ fill: {colours[scheme]} }}" for kind, colours in _COLOURS.items())


_STYLE: Final = f"""
.flame-graph {{ font: 12px system-ui, sans-serif; background: #fff; color: #222 }}
.flame-graph text {{ fill: currentColor }} .flame-graph .tick {{ stroke: currentColor }}
.flame-graph rect {{ stroke: #fff; stroke-width: .5 }}
{_fills(0)}
@media (prefers-color-scheme: dark) {{
.flame-graph {{ background: #16181c; color: #e6e6e6 }} .flame-graph rect {{ stroke: #16181c }}
{_fills(1)}
}}
"""


@dataclass(slots=True)
class _Frame:
    """A box: its label, the class of its colour, the steps in it, and the boxes below it."""

    label: str
    kind: str
    rows: list[NodeTime] = field(default_factory=list)
    inside: dict[tuple[str, str], _Frame] = field(default_factory=dict)

    @property
    def share(self) -> float:
        return sum(row.share for row in self.rows)

    @property
    def depth(self) -> int:
        return 1 + max((frame.depth for frame in self.inside.values()), default=0)


def draw_flame_graph(nodes: Sequence[NodeTime], title: str) -> str:
    """The SVG, as text. Widths are shares of the steps' medians; the slowest is on the left."""
    model = _Frame("the model", "module")
    for row in nodes:
        frame = model
        frame.rows.append(row)
        for label, kind in _path(row):
            frame = frame.inside.setdefault((kind, label), _Frame(label, kind))
            frame.rows.append(row)
    top = MARGIN + 36
    height = top + ROW * model.depth + 40
    heading = f'<text x="{MARGIN}" y="{MARGIN + 4}">{svg_text(title)}</text>'
    boxes = _boxes(model, MARGIN, top, WIDTH - 2 * MARGIN) if nodes else ()
    scale = _scale(sum(row.median for row in nodes), top)
    return drawing("flame-graph", _STYLE, WIDTH, height, [heading, *scale, *boxes, *_legend(nodes, height - 14)])


def _scale(seconds: float, y: int) -> Iterator[str]:
    """Ticks with the time above the model's box, which is as wide as all of it."""
    if not seconds:
        return
    step, (unit, of_second) = tick(seconds, 12), ("ms", 1e3) if seconds >= 1e-3 else ("µs", 1e6)
    for number in range(int(seconds / step) + 1):
        x = MARGIN + (WIDTH - 2 * MARGIN) * number * step / seconds
        anchor = "start" if number == 0 else "middle" if x < WIDTH - 60 else "end"
        yield f'<path class="tick" d="M{x:.1f} {y - 5}v5"/>'
        label = f"{number * step * of_second:,.6g}{'' if number else f' {unit}'}"
        yield f'<text x="{x:.1f}" y="{y - 8}" text-anchor="{anchor}">{label}</text>'


def _path(row: NodeTime) -> Iterator[tuple[str, str]]:
    """Labels and kinds from the model down to the step."""
    for module in modules_around(row.module)[1:]:
        yield module.rpartition(".")[2], "module"
    if row.line:
        yield row.line, "line"
    yield short_operator(row.operator), _kind(row)


def _kind(row: NodeTime) -> str:
    return "kernel" if row.delegate is None else f"d{row.delegate % DELEGATES}"


def _boxes(frame: _Frame, x: float, y: int, width: float) -> Iterator[str]:
    yield f'<rect class="{frame.kind}" x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW}">'
    yield f"<title>{svg_text(_tooltip(frame))}</title></rect>"
    letters = int((width - 6) / LETTER)
    if letters >= 3:
        label = frame.label if len(frame.label) <= letters else f"{frame.label[: letters - 1]}…"
        yield f'<text x="{x + 3:.2f}" y="{y + 14}" pointer-events="none">{svg_text(label)}</text>'
    whole = frame.share or 1.0
    for inner in sorted(frame.inside.values(), key=lambda inner: -inner.share):
        part = width * inner.share / whole
        if part >= LEAST:
            yield from _boxes(inner, x, y + ROW, part)
        x += part


def _tooltip(frame: _Frame) -> str:
    """Its whole name, times, counters, and of a single node what it comes from."""
    times = together(frame.rows)
    seconds = f"{milliseconds(times.median)}, {times.share:.1%}, p90 {milliseconds(times.p90)}"
    lines = [frame.label, f"{seconds}, p99 {milliseconds(times.p99)}"]
    lines += [f"{name}: {number:,.0f}" for name, number in times.counters.items()]
    (row, *others) = frame.rows
    if not frame.inside and not others and row.node is not None:
        lines += [f"delegate {row.delegate}: {row.node.name}" if row.delegate is not None else row.name]
        lines += [", ".join(row.node.origin.computing), *row.node.origin.lines]
    return "\n".join(line for line in lines if line)


def _legend(nodes: Sequence[NodeTime], y: int) -> Iterator[str]:
    kinds = dict.fromkeys(
        (_kind(row), "kernels" if row.delegate is None else f"delegate {row.delegate}") for row in nodes
    )
    x = MARGIN
    for kind, label in [("module", "modules"), ("line", "lines"), *sorted(kinds, key=lambda kind: kind[1])]:
        yield f'<rect class="{kind}" x="{x}" y="{y - 10}" width="12" height="12"/>'
        yield f'<text x="{x + 16}" y="{y}">{svg_text(label)}</text>'
        x += 16 + LETTER * len(label) + 16
