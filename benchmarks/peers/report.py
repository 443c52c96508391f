"""`python -m benchmarks.peers.report [peers.json] [--into page.md]`: what `benchmarks.peers` measured -> tables, losses
first.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

from benchmarks.pages import markdown
from benchmarks.peers.chart import CHART, PAGE, chart
from benchmarks.processes import ROOT

OURS: Final = "delegraph"
PRECISIONS: Final = ("float32", "bfloat16", "int8", "int8_dynamic", "int4")
USABLE_DB: Final = 10.0
"""Results whose error is a third of the signal and more are of no use: such a contender does not count as a peer."""

Figures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A model, batch size and thread count in one precision: figures by peer, and the errors of those that failed."""

    name: str
    precision: str
    figures: Mapping[str, Figures]
    errors: Mapping[str, str]

    @property
    def best_peer(self) -> str | None:
        """The fastest of the others; None if there is none."""
        others = [peer for peer, found in self.figures.items() if found["db"] >= USABLE_DB and not _is_ours(peer)]
        return min(others, key=lambda peer: float(self.figures[peer]["ms"]), default=None)

    @property
    def ratio(self) -> float | None:
        """How many times as fast as the best peer we are."""
        if self.best_peer is None or OURS not in self.figures:
            return None
        return float(self.figures[self.best_peer]["ms"] / self.figures[OURS]["ms"])


def _is_ours(peer: str) -> bool:
    """`delegraph`, which is on `cpu`, or `delegraph on` another backend."""
    return peer.split(" on ")[0] == OURS


def on_the_faster(row: Row) -> Row:
    """The row of whoever takes, of our backends, the one that is faster for this model."""
    own = [found for peer, found in row.figures.items() if _is_ours(peer) and found["db"] >= USABLE_DB]
    others = {peer: found for peer, found in row.figures.items() if not _is_ours(peer)}
    faster = {OURS: min(own, key=lambda found: float(found["ms"]))} if own else {}
    return replace(row, figures=faster | others)


def rows(results: Figures) -> Iterator[Row]:
    """All that was measured."""
    for name, contenders in results["models"].items():
        for precision in PRECISIONS:
            ending = f", {precision}"
            found = {one.removesuffix(ending): figures for one, figures in contenders.items() if one.endswith(ending)}
            if found:
                ran = {peer: figures for peer, figures in found.items() if "ms" in figures}
                yield Row(name, precision, ran, {peer: one["error"] for peer, one in found.items() if "error" in one})


def summary(measured: list[Row]) -> list[list[str]]:
    """By precision: how many rows, the geometric mean of the ratios, how many are lost, the worst row."""
    table = [["precision", "rows", "geometric mean", "lost", "worst row"]]
    for precision in PRECISIONS:
        known = [(ratio, row) for row in measured if row.precision == precision and (ratio := row.ratio) is not None]
        if known:
            worst, at = min(known, key=lambda one: one[0])
            lost = sum(ratio < 1 for ratio, _ in known)
            mean = geometric_mean(ratio for ratio, _ in known)
            place = f"{worst:.2f}x: {at.name}, against {at.best_peer}"
            table.append([precision, str(len(known)), f"{mean:.2f}x", str(lost), place])
    return table


def against_float(measured: list[Row]) -> list[list[str]]:
    """int8 against the fastest peer in float32, worst first."""
    best = {
        row.name: float(row.figures[row.best_peer]["ms"])
        for row in measured
        if row.precision == "float32" and row.best_peer is not None
    }
    found = []
    for row in measured:
        if row.precision in ("int8", "int8_dynamic") and row.name in best and OURS in row.figures:
            ours = row.figures[OURS]
            found.append((best[row.name] / ours["ms"], row, ours["ms"]))
    table = [["model", "recipe", "ms", "fastest float peer", "ratio"]]
    for ratio, row, ms in sorted(found, key=lambda one: one[0]):
        table.append([row.name, row.precision, f"{ms:.3f}", f"{best[row.name]:.3f}", f"{ratio:.2f}x"])
    return table


def lost(measured: list[Row]) -> list[list[str]]:
    """The rows in which a peer is faster, worst first."""
    known = [(ratio, row) for row in measured if (ratio := row.ratio) is not None and ratio < 1]
    table = [["model", "precision", "ours, ms", "best peer, ms", "ratio"]]
    for ratio, row in sorted(known, key=lambda one: one[0]):
        assert row.best_peer is not None
        ours, best = row.figures[OURS]["ms"], row.figures[row.best_peer]["ms"]
        table.append([row.name, row.precision, f"{ours:.3f}", f"{row.best_peer} {best:.3f}", f"{ratio:.2f}x"])
    return table


def latencies(measured: list[Row], precision: str) -> list[list[str]]:
    """Milliseconds of every peer."""
    chosen = [row for row in measured if row.precision == precision]
    peers = list(dict.fromkeys(peer for row in chosen for peer in (*row.figures, *row.errors)))
    table = [["model", *peers, "best peer / ours"]]
    for row in chosen:
        cells = [_milliseconds(row, peer) for peer in peers]
        table.append([row.name, *cells, "" if row.ratio is None else f"{row.ratio:.2f}x"])
    return table


def _milliseconds(row: Row, peer: str) -> str:
    if peer not in row.figures:
        return "fails" if peer in row.errors else ""
    figures = row.figures[peer]
    remark = f" ({figures['db']:.0f} dB)" if figures["db"] < USABLE_DB else ""
    return f"{figures['ms']:.3f}{remark}"


def costs(measured: list[Row]) -> list[list[str]]:
    """What else a row costs, at one thread: seconds to make it, MB of file and memory, seconds to the first result."""
    table = [["model", "precision", "peer", "made", "of it quantizing", "file", "first result", "peak", "to eager"]]
    for row in measured:
        if "1 threads" not in row.name:
            continue
        for peer, one in row.figures.items():
            cells = [f"{one['made_s']:.1f} s", f"{one['calibration_s']:.1f} s", f"{one['bytes'] / 1e6:.1f} MB"]
            cells += [f"{one['first_s']:.2f} s", f"{one['peak_mb']:.0f} MB", f"{one['db']:.0f} dB"]
            table.append([row.name.removesuffix(", 1 threads"), row.precision, peer, *cells])
    return table


def decoding(results: Figures) -> list[list[str]]:
    """Tokens a second of the small language model, and ours relative to each; other tokens than eager's are marked."""
    table = [["decode", "threads", "tokens a second", "ours / it"]]
    for threads, found in results.get("decode", {}).items():
        ours = found.get("delegraph, cpu", {}).get("per_second")
        for name, one in found.items():
            if "error" in one:
                table.append([name, threads.removesuffix(" threads"), "does not run", ""])
                continue
            remark = "" if one["tokens"] == found["eager"].get("tokens") else " (other tokens than eager)"
            ratio = f"{ours / one['per_second']:.2f}x" if ours else ""
            table.append([name, threads.removesuffix(" threads"), f"{one['per_second']:.0f}{remark}", ratio])
    return table


def failures(measured: list[Row]) -> list[list[str]]:
    """What does not run, and what it says."""
    table = [["model", "precision", "peer", "says"]]
    for row in measured:
        for peer, error in row.errors.items():
            text = _FOLDERS.sub("", " ".join(error.split())).replace("|", "/")
            table.append([row.name, row.precision, peer, text[:140]])
    return table


_FOLDERS: Final = re.compile(r"/(?:[^\s/]+/)+")
"""Of a path, all but the file's name: where it lay is this machine's business."""


def text(results: Figures) -> str:
    """All tables, with headings."""
    measured = list(rows(results))
    several = any(_is_ours(peer) and peer != OURS for row in measured for peer in row.figures)
    chosen = [on_the_faster(row) for row in measured] if several else []
    versions = ", ".join(f"{package} {number}" for package, number in sorted(results["versions"].items()))
    machine = results["machine"]
    sections = [
        ("In one table", summary(measured)),
        ("In one table: of our backends, the faster for a model", summary(chosen)),
        ("Lost rows, worst first", lost(measured)),
        ("Lost rows, worst first: of our backends, the faster for a model", lost(chosen)),
        ("int8 against the fastest peer in float32", against_float(measured)),
        ("Language model, token by token", decoding(results)),
        *((f"Milliseconds: {precision}", latencies(measured, precision)) for precision in PRECISIONS),
        ("What else it costs", costs(measured)),
        ("What does not run", failures(measured)),
    ]
    where = f"{machine['processor']}, {machine['cores']} cores ({', '.join(machine['has'])})"
    parts = [f"Revision {results['revision']}. {where}. {versions}."]
    for title, table in sections:
        if len(table) > 1:
            parts += [f"## {title}", markdown(table[0], table[1:])]
    return "\n\n".join(parts)


MARK: Final = "<!-- measured -->\n"
"""What is behind it in a page is replaced."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("json", type=Path, nargs="?", default=ROOT / "build" / "peers.json")
    parser.add_argument(
        "--into", type=Path, help="a page that gets the tables behind its mark; without, they are printed"
    )
    options = parser.parse_args()
    tables = text(json.loads(options.json.read_text()))
    if options.into is None:
        print(tables)
        return
    page, mark, _ = options.into.read_text().partition(MARK)
    if not mark:
        raise SystemExit(f"{options.into} has no line {MARK.strip()}")
    options.into.write_text(f"{page}{MARK}\n{tables}\n")
    if options.into.resolve() == PAGE:
        CHART.write_text(chart(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
