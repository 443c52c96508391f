"""A check that has a fault -> the smallest part of one of its models that shows it, as a folder with a script."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import delegraph
from delegraph_testkit.checks import Check
from delegraph_testkit.lowering import asked_for, quantized_as_claimed
from delegraph_testkit.models import Example, example
from delegraph_testkit.operator_samples import operator_examples
from delegraph_testkit.outcomes import Level
from delegraph_testkit.subject import Subject

__all__ = ["write_repro"]

_FEW: Final = 3
"""Calls that a line names."""


def write_repro(subject: Subject, check: Check, folder: Path, limit: float) -> str:
    """The calls and the folders of the first of its models in which the subject, a backend or a partitioner, computes
    otherwise than torch, refuses or ends; "" if it does so in none, beside no other backend. `limit` is seconds for
    each trial. Raises `delegraph.DelegraphError`."""
    for source in _examples(check):
        programs = quantized_as_claimed(subject, source)
        debugged = delegraph.debug(
            dict(programs or source.modules),
            None if programs else {method: calls[0] for method, calls in source.calls.items()},
            backends=[asked_for(subject)],
            dynamic_shapes=None if programs else dict(source.dynamic_shapes) or None,
            folder=folder,
            timeout=limit,
        )
        if debugged.faults:
            return "; ".join(map(_told, debugged.faults))
    return ""


def _examples(check: Check) -> Iterable[Example]:
    if check.level is Level.OPERATORS:
        return operator_examples(*check.arguments)
    return map(example, dict.fromkeys(name.partition("@")[0] for name in check.programs))


def _told(fault: delegraph.Fault) -> str:
    calls = [call.operator for call in fault.calls]
    more = f" and {len(calls) - _FEW} more" if len(calls) > _FEW else ""
    return f"{fault.verdict.kind.value} of {', '.join(calls[:_FEW]) or fault.method}{more}: {fault.folder}/repro.py"
