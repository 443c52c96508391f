"""`python -m benchmarks.peers.chart`: the chart in README, drawn of the float32 table of docs/benchmarks.md.

A column for each of some models, a bar for each runtime: milliseconds at a batch of 1 on one thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Final

from benchmarks.processes import ROOT

__all__ = ["CHART", "PAGE", "chart"]

PAGE: Final = ROOT / "docs" / "benchmarks.md"
CHART: Final = ROOT / "docs" / "pictures" / "cpu-float32.svg"

MODELS: Final = {
    "mobilenet_v2": "MobileNetV2",
    "resnet18": "ResNet-18",
    "vit_tiny": "ViT-Ti/16",
    "minilm": "MiniLM (BERT)",
    "llama": "Llama, 5M",
}
RUNTIMES: Final = {
    "eager PyTorch": ("eager",),
    "ExecuTorch, XNNPACK": ("XNNPACK",),
    "onnxruntime": ("onnxruntime", "onnxruntime, dynamo"),
    "OpenVINO": ("OpenVINO",),
    "Delegraph, cpu": ("delegraph",),
}
"""The name of a row, and the columns of the page of which the faster one counts."""

_LABEL, _COLUMN, _BAR, _ROW, _TOP = 150, 150, 92, 24, 58
_STYLE: Final = """<style>
text { font: 13px sans-serif; fill: #333 } .head { font-weight: bold } .bar { fill: #b4bcc4 } .ours { fill: #e0592a }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .bar { fill: #66707a } }
</style>"""


def chart(page: str) -> str:
    """The SVG of the tables in `page`."""
    table = dict(_float32(page))
    width, height = _LABEL + _COLUMN * len(MODELS), _TOP + _ROW * len(RUNTIMES) + 8
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">', _STYLE]
    title = "Milliseconds for one input in float32, one thread; shorter is faster"
    parts += [f"<title>{title}</title>", _text(0, 16, f"{title}. {_machine(page)}")]
    parts += [_text(0, _TOP + _ROW * row + 15, name) for row, name in enumerate(RUNTIMES)]
    for column, (model, name) in enumerate(MODELS.items()):
        parts += _column(_LABEL + _COLUMN * column, name, table[f"{model}, batch 1, 1 threads"])
    return "\n".join([*parts, "</svg>\n"])


def _column(x: int, name: str, cells: Mapping[str, str]) -> Iterator[str]:
    times = {runtime: min(float(cells[peer]) for peer in peers) for runtime, peers in RUNTIMES.items()}
    yield _text(x, _TOP - 12, name, ' class="head"')
    for row, (runtime, ms) in enumerate(times.items()):
        y, length = _TOP + _ROW * row, _BAR * ms / max(times.values())
        kind = "ours" if RUNTIMES[runtime] == ("delegraph",) else "bar"
        yield f'<rect class="{kind}" x="{x}" y="{y}" width="{length:.1f}" height="{_ROW - 4}"/>'
        yield _text(x + length + 4, y + 15, f"{ms:.1f}")


def _float32(page: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of the table of milliseconds, by model, each by peer."""
    section = page.partition("## Milliseconds: float32\n")[2].partition("\n## ")[0]
    head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in section.split("\n") if "|" in line)
    for name, *cells in rows:
        yield name, dict(zip(head[1:], cells, strict=True))


def _machine(page: str) -> str:
    found_in = re.search(r"^Revision \w+\. (.+?), \d+ cores \((.+?)\)\.", page, re.MULTILINE)
    assert found_in is not None
    processor = found_in[1].replace("(R)", "")
    return f"{processor}{' with AMX' if 'amx' in found_in[2] else ''}"


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y}"{more}>{escape(text)}</text>'


if __name__ == "__main__":
    CHART.write_text(chart(PAGE.read_text("utf-8")), "utf-8")
