"""Requests, a line of JSON each -> answers, a line of JSON each: the process in which a plug-in is tried.

    python -m delegraph_testkit.worker              with torch: programs are lowered, and checks of the half that lowers
    python -m delegraph_testkit.worker without-torch   torch cannot be imported: checks of the half that runs

A plug-in may hang, crash or write to standard output; `WorkerProcess` is the other end.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from delegraph.devtools import serve
from delegraph.errors import cause_of
from delegraph_testkit.bench import Bench
from delegraph_testkit.checks import Check
from delegraph_testkit.no_torch import make_torch_unimportable
from delegraph_testkit.outcomes import Declined, Level, Outcome, Unclaimed
from delegraph_testkit.subject import Subject

__all__ = ["InThisProcess", "answer"]


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The result of lowering a program, or of a check, and its time; or the smallest part with a check's fault."""
    start = perf_counter()
    bench = Bench(Subject.from_mapping(request["subject"]), Path(request["folder"]))
    if "lower" in request:
        return {"error": _lower(bench, request["lower"]), "seconds": perf_counter() - start}
    if "repro" in request:
        return {"told": _write_repro(bench, _check(request["check"]), request)}
    outcome, detail = _perform(bench, _check(request["check"]))
    return {"outcome": outcome.value, "detail": detail, "seconds": perf_counter() - start}


def _lower(bench: Bench, program: str) -> str:
    """Store a program; "" or why that failed."""
    from delegraph_testkit.lowering import store

    try:
        store(bench, program)
    except Exception as error:
        return f"{program} cannot be lowered: {cause_of(error)}"
    return ""


def _write_repro(bench: Bench, check: Check, request: Mapping[str, Any]) -> str:
    """The smallest part that shows the fault of a check; or why there is none."""
    from delegraph_testkit.repros import write_repro

    try:
        return write_repro(bench.subject, check, Path(request["repro"]), request["limit"])
    except Exception as error:
        return f"none could be cut out: {cause_of(error)}"


def _perform(bench: Bench, check: Check) -> tuple[Outcome, str]:
    """The outcome of a check whose programs have been lowered."""
    try:
        return Outcome.PASSED, _run(bench, check) or ""
    except Declined as answer:
        return Outcome.DECLINED, str(answer)
    except Unclaimed as answer:
        return Outcome.UNCLAIMED, str(answer)
    except AssertionError as fault:
        return Outcome.FAILED, str(fault)
    except Exception as fault:
        return Outcome.FAILED, cause_of(fault)


def _run(bench: Bench, check: Check) -> Any:
    function = check.resolve()
    if not check.programs:
        return function(bench, *check.arguments)
    stored = [bench.stored(name) for name in check.programs]
    taken = [program for program in stored if program.facts.taken] if len(stored) > 1 else stored
    if not taken:
        reasons = "; ".join(f"{program.name}: {program.facts.why_left}" for program in stored)
        raise AssertionError(f"it takes nothing of the kit's programs, so that nothing can be tried: {reasons}")
    told = [function(bench, program, *check.arguments) for program in taken]
    return "; ".join(filter(None, told))


class InThisProcess:
    """In the place of a `WorkerProcess`: nothing protects the caller, and nothing has to be started."""

    def ask(self, request: Mapping[str, Any], limit: float) -> dict[str, Any]:
        return answer(request)

    def close(self) -> None:
        pass


def _import_torch() -> None:
    import delegraph_testkit.lowering
    import delegraph_testkit.partition_checks  # noqa: F401


def _check(fields: dict[str, Any]) -> Check:
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return Check(**{**fields, **lists, "level": Level(fields["level"])})


if __name__ == "__main__":
    serve(answer, make_torch_unimportable if "without-torch" in sys.argv[1:] else _import_torch)
