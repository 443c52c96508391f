"""`python -m benchmarks.openvino [--models a,b] [--into page.md]`: the backend on OpenVINO against `cpu` and OpenVINO.

The workers of `benchmarks.peers`: each contender in a process of its own, quantized by its own quantizer (OpenVINO by
NNCF, on its own conversion of the torch module), all loaded, then called in rounds, in another order each time. Files
are made two at a time before anything is measured (`--prepare`: and nothing is), and stay for later runs of the same
revision. Needs `make setup-peers`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks.models import MODELS
from benchmarks.pages import check_marks, markdown, put
from benchmarks.peers.contenders import PYTHON, Contender, machine, versions
from benchmarks.peers.measuring import measured
from benchmarks.peers.preparing import prepared
from benchmarks.processes import PEERS, ROOT

HERE: Final = "delegraph on openvino"
OTHERS: Final = ("delegraph", "OpenVINO")
PRECISIONS: Final = ("float32", "int8")
HEADER: Final = ("model", "threads", "`openvino`, ms", "`cpu`, ms", "OpenVINO, ms", "of the faster", "dB")
FILES: Final = ROOT / "build" / "openvino-files"

Figures = dict[Contender, dict[str, Any]]


def files(models: list[str]) -> dict[str, Figures]:
    """Each model's files, by its name; those of an earlier run of this revision are found."""
    those = [Contender(peer, precision) for peer in (HERE, *OTHERS) for precision in PRECISIONS]
    return {name: prepared(name, 1, those, FILES / name, patience=600, jobs=2) for name in models}


def measure(
    made: dict[str, Figures], threads: list[int], rounds: int, seconds: float
) -> dict[tuple[str, int], Figures]:
    """What each contender took, by model and number of threads."""
    return {
        (name, number): measured(found, FILES / name, number, rounds, seconds, prefix=[])
        for name, found in made.items()
        for number in threads
    }


def table(results: dict[tuple[str, int], Figures], precision: str) -> str:
    """The rows of one precision, the lost ones first: milliseconds, and how many times as fast as the faster other."""
    rows = []
    for (name, threads), figures in results.items():
        here, *others = (figures[Contender(peer, precision)] for peer in (HERE, *OTHERS))
        ran = [found["ms"] for found in others if "ms" in found]
        ratio = min(ran) / here["ms"] if ran and "ms" in here else 0.0
        cells = [_milliseconds(found) for found in (here, *others)]
        decibels = " / ".join(f"{found['db']:.0f}" if "ms" in found else "-" for found in (here, *others))
        rows.append((ratio, [name, str(threads), *cells, f"{ratio:.2f}x" if ratio else "-", decibels]))
    rows.sort(key=lambda row: row[0])
    return markdown([precision, *HEADER[1:]], [row for _, row in rows])


def _milliseconds(found: dict[str, Any]) -> str:
    return f"{found['ms']:.3f}" if "ms" in found else "failed"


def page(results: dict[tuple[str, int], Figures], rounds: int, seconds: float) -> str:
    """Both tables, and what they were measured on and with."""
    own, known = machine(), versions()
    used = ", ".join(f"{package} {known[package]}" for package in ("openvino", "nncf", "onnxruntime", "torch"))
    has = ", ".join(own["has"])
    told = (
        f"{own['processor']} ({has}), {own['cores']} cores; {used}, Python {known['Python']}. The best of {rounds} "
        f"interleaved rounds of {seconds:g} s each, the median of a round; dB: signal to error against eager's float32."
    )
    return "\n\n".join([told, *(table(results, precision) for precision in PRECISIONS)])


def main() -> int:
    """Measure, and print the tables or put them into a page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.openvino", description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each round")
    parser.add_argument(
        "--prepare", action="store_true", help="only make the files, of which a busy machine is no harm"
    )
    parser.add_argument("--into", type=Path, help="a page that gets the tables between its marks")
    options = parser.parse_args()
    if not PEERS.exists():
        print(f"missing: {PYTHON['OpenVINO']}; make setup-peers")
        return 1
    check_marks(options.into, "openvino")
    made = files(options.models.split(","))
    if options.prepare:
        return 0
    threads = [int(number) for number in options.threads.split(",")]
    results = measure(made, threads, options.rounds, options.seconds)
    for found in results.values():
        for one, figures in found.items():
            if "error" in figures:
                print(f"{one}: {figures['error']}", file=sys.stderr)
    text = page(results, options.rounds, options.seconds)
    if options.into is None:
        print(text)
    else:
        put(options.into, "openvino", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
