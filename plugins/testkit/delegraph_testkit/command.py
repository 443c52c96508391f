"""`delegraph plugins check NAME --run …` -> the checks run, a report, and an exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from delegraph.errors import DelegraphError
from delegraph_testkit.checks import checks_of, is_claimed
from delegraph_testkit.claims import Claims
from delegraph_testkit.outcomes import Level
from delegraph_testkit.progress import told
from delegraph_testkit.proposal import proposed
from delegraph_testkit.report import ConformanceReport
from delegraph_testkit.session import Session
from delegraph_testkit.subject import Kind, Subject, subjects_called

__all__ = ["main", "prove"]


def main(name: str, arguments: Sequence[str]) -> int:
    """Prove the plug-ins called `name`; 0 if nothing counts against it, 1 if something does, 2 for wrong usage, and
    130 after Ctrl-C, when reports are of what was run until then."""
    args = _parser().parse_args(arguments)
    level, every_operator = Level[args.level.upper()], args.every_operator or args.propose
    faults = 0
    try:
        for subject in subjects_called(name, Claims.read(args.claims) if args.claims else None):
            report, ended = prove(subject, level, args.only, every_operator, args.timeout, args.repro)
            _show(report)
            if args.propose and subject.kind in (Kind.BACKEND, Kind.KERNELS):
                args.propose.write_text(proposed(report), "utf-8")
            if args.report:
                print("written:", *report.write(args.report))
            if ended:
                return 130
            faults += len(report.faults)
    except DelegraphError as error:
        print(f"delegraph plugins check {name} --run: {error}", file=sys.stderr)
        return 2
    return int(faults > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="delegraph plugins check NAME --run", description="Prove a plug-in.")
    levels = [str(level) for level in Level]
    parser.add_argument("--level", choices=levels, default=levels[-1], help="how far; it needs those before it")
    parser.add_argument("--only", default="", help="only checks whose name contains this")
    parser.add_argument("--claims", type=Path, help="a conformance.toml (default: beside the plug-in's __init__.py)")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="write the report there: .md, .json and .svg")
    parser.add_argument("--every-operator", action="store_true", help="try those that are not claimed, too")
    parser.add_argument(
        "--propose", type=Path, metavar="FILE", help="try every operator; write what may be claimed there"
    )
    parser.add_argument(
        "--repro",
        type=Path,
        metavar="FOLDER",
        help="of each fault in what is computed, write the smallest part of a model that shows it there, as a script",
    )
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds that a check may take")
    return parser


def prove(
    subject: Subject,
    level: Level = Level.MODELS,
    only: str = "",
    every_operator: object = False,
    limit: float = 120.0,
    repros: Path | None = None,
) -> tuple[ConformanceReport, bool]:
    """Run the checks of `subject` up to `level`: the report, and whether Ctrl-C ended it before all were run. On
    standard error how far it is, and a line for each fault. See `Session`.
    """
    due = [
        check
        for check in checks_of(subject)
        if check.level <= level and only in check.id and (every_operator or is_claimed(check, subject.claims))
    ]
    with Session(subject, limit, repros=repros) as session:
        try:
            for result in told(session.results(due), len(due), subject.name):
                if result.is_fault:
                    print(f"{result.outcome.value}: {result.check}: {result.detail}", file=sys.stderr)
        except KeyboardInterrupt:
            return session.report(), True
        return session.report(), False


def _show(report: ConformanceReport) -> None:
    print(f"{report.subject.kind.value} {report.subject.name} of {report.provider}: {report.verdict}")
    for level in report.planned:
        counts = report.counts(level)
        told = ", ".join(f"{counts[outcome]:,} {outcome.value}" for outcome in counts if counts[outcome])
        print(f"  {level!s:10} {report.planned[level]:5,} checks: {told}")
