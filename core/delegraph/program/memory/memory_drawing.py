"""MemoryMaps -> an SVG: steps from left to right, offsets from bottom to top, both with scales, a box for each tensor.

A box is called by the name of its tensor, else by the module of the model that it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from delegraph.program.memory.memory_maps import MemoryMap, MemoryUsage, PlacedTensor
from delegraph.svg import drawing, svg_text, tick

__all__ = ["draw_memory"]

WIDTH: Final = 1000
"""Of a drawing, in pixels; margins are beside it."""

HEIGHT: Final = 320
"""Of the largest memory of a method; the others are to scale."""

LEFT: Final = 90
TOP: Final = 46
LETTER: Final = 6
"""About the width of a letter of the labels, in pixels: a label that does not fit its box is left to the tooltip."""

_STYLE: Final = """
.memory-plan { font: 12px system-ui, sans-serif; background: #fff; color: #222 }
.memory-plan text { fill: currentColor } .memory-plan .axis { stroke: currentColor; fill: none }
.memory-plan .bound { stroke: #c33; stroke-dasharray: 6 3 }
.memory-plan rect { fill: #9ec5e8; stroke: #fff; stroke-width: .5 } .memory-plan rect.peak { fill: #f2b26b }
.memory-plan .tick { font-size: 11px } .memory-plan .in { fill: #222; font-size: 10px }
@media (prefers-color-scheme: dark) {
  .memory-plan { background: #16181c; color: #ddd } .memory-plan .in { fill: #eee }
  .memory-plan rect { fill: #3f6d96; stroke: #16181c } .memory-plan rect.peak { fill: #a96a22 }
}
"""


def draw_memory(maps: Sequence[MemoryMap]) -> str:
    """The SVG, as text: each method's memories one below the other, tensors that are alive at the peak in orange."""
    parts: list[str] = []
    top = 0
    for method_map in maps:
        largest = max((memory.planned_nbytes for memory in method_map.memories), default=0)
        for memory in method_map.memories:
            if memory.planned_nbytes:
                height = max(24, HEIGHT * memory.planned_nbytes // largest)
                parts += _memory(method_map, memory, top + TOP, height)
                top += TOP + height + 38
    return drawing("memory-plan", _STYLE, LEFT + WIDTH + 20, top + 10, parts)


def _memory(method_map: MemoryMap, memory: MemoryUsage, top: int, height: int) -> Iterator[str]:
    title = f"{method_map.method}, memory {memory.memory_id} ({memory.device}): {memory.planned_nbytes:,} bytes planned"
    title = f"{title}, {memory.lower_bound:,} alive at step {memory.peak}"
    yield f'<text x="{LEFT}" y="{top - 14}">{svg_text(title)}</text>'
    for tensor in method_map.tensors:
        if tensor.memory_id == memory.memory_id and tensor.nbytes:
            yield from _box(method_map, memory, tensor, top, height)
    bound = top + height - height * memory.lower_bound / memory.planned_nbytes
    yield f'<path class="axis" d="M{LEFT} {top}V{top + height}H{LEFT + WIDTH}"/>'
    yield f'<path class="axis bound" d="M{LEFT} {bound:.1f}H{LEFT + WIDTH}"/>'
    yield from _scales(method_map.instructions, memory.planned_nbytes, top, height)


def _scales(instructions: int, nbytes: int, top: int, height: int) -> Iterator[str]:
    """Ticks with the bytes to the left, and with the steps below."""
    for byte in [*range(0, nbytes, _step(nbytes, height // 40)), nbytes]:
        y = top + height - height * byte / nbytes
        if byte == nbytes or y > top + 14:
            yield f'<path class="axis" d="M{LEFT - 4} {y:.1f}H{LEFT}"/>'
            yield f'<text class="tick" x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{byte:,}</text>'
    step = WIDTH / (instructions + 2)
    labels = {-1: "start", instructions: "end"}
    labels |= {number: f"{number}" for number in range(0, instructions, _step(instructions, WIDTH // 50))}
    for number, label in labels.items():
        x = LEFT + (number + 1.5) * step
        if number in (-1, instructions) or LEFT + 50 < x < LEFT + WIDTH - 40:
            yield f'<path class="axis" d="M{x:.1f} {top + height}v4"/>'
            yield f'<text class="tick" x="{x:.1f}" y="{top + height + 16}" text-anchor="middle">{label}</text>'
    yield f'<text x="{LEFT + WIDTH}" y="{top + height + 30}" text-anchor="end">step: the instruction that runs</text>'
    yield f'<text x="{LEFT - 7}" y="{top - 14}" text-anchor="end">bytes</text>'


def _step(most: int, ticks: int) -> int:
    return max(1, round(tick(max(most, 1), ticks)))


def _box(method_map: MemoryMap, memory: MemoryUsage, tensor: PlacedTensor, top: int, height: int) -> Iterator[str]:
    step, byte = WIDTH / (method_map.instructions + 2), height / memory.planned_nbytes
    x, width = LEFT + (tensor.first + 1) * step, (tensor.last - tensor.first + 1) * step
    y, tall = top + height - (tensor.offset + tensor.nbytes) * byte, tensor.nbytes * byte
    label = tensor.name or tensor.source.partition(" (")[0] or f"value {tensor.value}"
    told = ", ".join(part for part in (tensor.op, tensor.source) if part)
    at = f"bytes {tensor.offset:,} to {tensor.offset + tensor.nbytes:,}, steps {tensor.first} to {tensor.last}"
    kind = ' class="peak"' if tensor.at_peak else ""
    yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{tall:.1f}"{kind}>'
    yield f"<title>{svg_text(f'{label}: {told}, {at}')}</title></rect>"
    if tall >= 12 and width >= LETTER * len(label):
        yield f'<text class="in" x="{x + 3:.1f}" y="{y + tall / 2 + 4:.1f}">{svg_text(label)}</text>'
