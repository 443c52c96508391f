"""How much of many architectures the CPU backend takes: delegates and leftovers by model, then the reasons by number.

`PYTHONPATH=build/zoo python -m tests.zoo.coverage` lowers every model of the catalog that torch exports; words on the
command line choose models by name (`timm`, `swin`). What a model gave is kept in build/coverage, so that a run can be
broken off; `--again` lowers anew what was not one delegate with nothing left, `--all` everything.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from tests.zoo.architecture import Architecture
from tests.zoo.catalog import catalog

import delegraph

LIMIT = 120
"""Seconds of processor time for one model: other work on the machine does not count."""

RESULTS = Path("build/coverage")


@dataclass(slots=True)
class Result:
    """What became of one architecture: `problem` says why it has no program, where it has none."""

    name: str
    exported: bool = False
    delegates: int = 0
    leftovers: dict[str, int] = field(default_factory=dict)
    """"operator: reason" -> how many nodes."""
    problem: str = ""
    seconds: float = 0.0

    @property
    def whole(self) -> bool:
        return self.exported and not self.problem and self.delegates == 1 and not self.leftovers


def measure(architecture: Architecture) -> Result:
    """Make, export and lower one architecture; whatever it raises is in the result."""
    result, start = Result(architecture.name), time.process_time()
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        torch.manual_seed(0)
        program = exported(architecture)
        result.exported = True
        start = time.process_time()
        report = delegraph.lower(program, backends=["cpu"], bounds=architecture.bounds).report.methods["forward"]
    except Exception as problem:  # whatever a model, torch or lowering raises is what is to be counted
        lines = str(problem).splitlines() or [""]
        where = traceback.extract_tb(problem.__traceback__)[-1]
        result.problem = f"{type(problem).__name__}: {lines[0][:160]} ({Path(where.filename).name}:{where.lineno})"
    else:
        result.delegates = len(report.delegates)
        reasons = (f"{left.operator}: {'; '.join(left.reasons.values())}" for left in report.leftovers)
        result.leftovers = dict(Counter(reasons))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    result.seconds = time.process_time() - start
    return result


def exported(architecture: Architecture) -> torch.export.ExportedProgram:
    """The program of `architecture`, kept beside the results: exporting takes longer than lowering."""
    file = RESULTS / f"{_file_name(architecture)}.pt2"
    if file.exists():
        with suppress(RuntimeError):  # a result of a class that is only known once its model is imported
            return torch.export.load(file)
    model, inputs = architecture.make()
    with torch.no_grad():
        program = torch.export.export(model, (), dict(inputs))
    torch.export.save(program, file)
    return program


def summary(results: Iterable[Result]) -> str:
    """The count, the models that are not whole, and the reasons by the number of models that they cut."""
    results = list(results)
    exporting = [result for result in results if result.exported]
    broken = [result for result in exporting if not result.whole]
    by_reason = Counter(reason for result in broken for reason in result.leftovers)
    lines = [f"{result.name:50} {result.delegates:3} delegates, {sum(result.leftovers.values()):4} left over  "
             f"{result.problem}" for result in broken]  # fmt: skip
    lines += ["", *(f"{count:4} models: {reason}" for reason, count in by_reason.most_common())]
    whole = len(exporting) - len(broken)
    return "\n".join([*lines, "", f"{whole} of {len(exporting)} are one delegate with nothing left over"
                      f" ({len(results) - len(exporting)} more do not export)"])  # fmt: skip


def _file_name(architecture: Architecture) -> str:
    return architecture.name.replace(": ", "-").replace("/", "_")


def _known(architecture: Architecture) -> Result | None:
    file = RESULTS / f"{_file_name(architecture)}.json"
    return Result(**json.loads(file.read_text())) if file.exists() else None


def _too_long(*_: object) -> None:
    raise TimeoutError(f"longer than {LIMIT} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="lower only models with one of these in their names")
    parser.add_argument("--again", action="store_true", help="lower anew what exported and was cut or failed")
    parser.add_argument("--all", action="store_true", help="lower everything anew")
    options = parser.parse_args()
    signal.signal(signal.SIGPROF, _too_long)
    RESULTS.mkdir(parents=True, exist_ok=True)
    results = []
    for architecture in catalog():
        if options.words and not any(word in architecture.name for word in options.words):
            continue
        result = _known(architecture)
        if result is None or options.all or (options.again and result.exported and not result.whole):
            with warnings.catch_warnings(action="ignore"):
                result = measure(architecture)
            (RESULTS / f"{_file_name(architecture)}.json").write_text(json.dumps(asdict(result)))
            left = sum(result.leftovers.values())
            print(
                f"{result.name:50} {result.delegates:3} {left:4} {result.seconds:5.1f} s {result.problem}", flush=True
            )
        results.append(result)
    print(summary(results))


if __name__ == "__main__":
    main()
