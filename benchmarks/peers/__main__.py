"""`python -m benchmarks.peers [--models a,b] [--peers "a;b"] …`: every peer in one run, each in a process of its own.

    prepare   model -> file, kept for later runs              seconds, bytes
    load      all of one model, one after the other           seconds to the first result, dB to eager's
    rounds    in turn, in another order each time: calls      the median of each round; the best round counts
    decode    a small language model, token by token          tokens a second, the best of as many rounds

Each row that was measured is written down at once: a run that was stopped goes on where it was, as long as the
revision is the same. `benchmarks.peers.report` makes the page.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Final

from benchmarks import decode
from benchmarks.peers.contenders import PYTHON, Contender, contenders, machine, revision, versions
from benchmarks.peers.measuring import measured
from benchmarks.peers.preparing import prepared
from benchmarks.processes import ROOT

FILES: Final = ROOT / "build" / "peers-files"
DECODE: Final = "decode"
"""The model whose row says tokens a second."""

Results = dict[str, Any]


def rows(options: argparse.Namespace) -> list[tuple[str, int, list[Contender]]]:
    """(model, batch, contenders) of all that is asked for."""
    found = []
    for batch in map(int, options.batches.split(",")):
        precisions = options.precisions if batch == 1 else options.batched_precisions
        found += [(name, batch, contenders(name, options.peers, precisions)) for name in _models(options)]
    return found


def _models(options: argparse.Namespace) -> list[str]:
    return [name for name in options.models.split(",") if name != DECODE]


def prepare(options: argparse.Namespace) -> None:
    """Make all files."""
    for name, batch, those in rows(options):
        made = prepared(name, batch, those, FILES / f"{name}, batch {batch}", options.patience, options.jobs)
        print(f"{name}, batch {batch}: made {sum('error' not in found for found in made.values())} of {len(made)}")


def measure(options: argparse.Namespace, results: Results) -> None:
    """Measure what the results lack, and write it down, until the time for it is over."""
    end = time.monotonic() + 60 * options.minutes
    for name, batch, those in rows(options):
        if time.monotonic() > end:
            print(f"{name}, batch {batch}, and what comes behind it: the next run's")
            return
        folder = FILES / f"{name}, batch {batch}"
        made = prepared(name, batch, those, folder, options.patience, options.jobs)
        for threads in map(int, options.threads.split(",")):
            row = results["models"].setdefault(f"{name}, batch {batch}, {threads} threads", {})
            missing = {one: found for one, found in made.items() if str(one) not in row}
            if not missing:
                continue
            print(f"{name}, batch {batch}, {threads} threads", flush=True)
            figures = measured(missing, folder, threads, options.rounds, options.seconds, options.prefix.split())
            row |= {str(one): found for one, found in figures.items()}
            _write(options.json, results)
            for one, found in figures.items():
                shown = found.get("error") or f"{found['ms']:9.3f} ms {found['db']:5.0f} dB {found['made_s']:6.1f} s"
                print(f"  {one!s:32} {shown}", flush=True)


def generate(options: argparse.Namespace, results: Results) -> None:
    """The same for tokens a second, the best of rounds in which all take their turn; reference kernels, a hundred times
    as slow, are `benchmarks.decode`'s alone."""
    for threads in map(int, options.threads.split(",")):
        row = results.setdefault("decode", {}).setdefault(f"{threads} threads", {})
        missing = [one for one in decode.peers(threads) if "portable" not in one and one not in row]
        rounds = [decode.measured(threads, missing) for _ in range(options.rounds)]
        row |= {one: max((found[one] for found in rounds), key=_per_second) for one in missing}
        _write(options.json, results)
        for name in missing:
            print(f"decode, {threads} threads, {name}: {_per_second(row[name]):.0f} tokens a second", flush=True)


def _per_second(figures: dict[str, Any]) -> float:
    return float(figures.get("per_second", 0))


def begun(path: Path) -> Results:
    """What an earlier run of this revision has measured; that of another one is put aside."""
    results: Results = json.loads(path.read_text()) if path.exists() else {}
    if results and results.get("revision") != revision():
        path.rename(path.with_stem(f"{path.stem}-{results.get('revision', 'earlier')}"))
        results = {}
    return {"models": {}} | results | {"revision": revision(), "versions": versions(), "machine": machine()}


def _write(path: Path, results: Results) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1))


def main() -> int:
    from benchmarks.peers.models import MODELS

    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join([*MODELS, DECODE]))
    parser.add_argument(
        "--peers", default="", help="separated by semicolons, or all; without, those that are ready in seconds"
    )
    parser.add_argument("--precisions", default="float32,bfloat16,int8,int8_dynamic,int4")
    parser.add_argument("--batched-precisions", default="float32,int8", help="of batches larger than 1")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.15, help="of each round")
    parser.add_argument("--patience", type=float, default=60, help="seconds that a peer may take to make its files")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no other model is begun")
    parser.add_argument("--jobs", type=int, default=2, help="peers that make their files at a time")
    parser.add_argument(
        "--prepare", action="store_true", help="only make the files, of which a busy machine is no harm"
    )
    parser.add_argument("--prefix", default="", help="what workers are run by, such as 'chrt -f 40'")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "peers.json")
    options = parser.parse_args()
    missing = {str(PYTHON[one.peer]) for _, _, those in rows(options) for one in those if not PYTHON[one.peer].exists()}
    if missing or (options.prefix and shutil.which(options.prefix.split()[0]) is None):
        print(f"missing: {', '.join(missing) or options.prefix}; make setup-peers setup-executorch")
        return 1
    if options.prepare:
        prepare(options)
        return 0
    results = begun(options.json)
    measure(options, results)
    if DECODE in options.models.split(","):
        generate(options, results)
    print(f"written: {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
