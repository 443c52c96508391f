"""A delegate's alternatives: plans of the file that a runtime may run in its place.

    forward, whose delegate 0 is          delegraph.alternative/0/1/forward      delegraph.alternative/0/2/forward
    a blob for revision 2                 a blob for revision 1: a variant       the delegate's own graph: a fall-back

`delegraph.alternative/<delegate>/<place>/<method>`: places count in the order of preference, from 1 on; the delegate's
own blob is 0. Inputs and outputs are those of a call of the delegate. One that only calls a delegate of the same
backend is a *variant*, another blob for it; any other is a *fall-back*. ExecuTorch's runtime takes alternatives for
methods that nobody asks for. `inlining.py` puts them into the method's own plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from delegraph.lazy_dataclass import dataclass
from delegraph.program.schema import BackendDelegate, DelegateCall, ExecutionPlan, Program

__all__ = [
    "AlternativeOf",
    "alternative_of",
    "alternatives_of",
    "is_alternative",
    "is_reserved",
    "is_variant",
    "methods_of",
    "reasons_before",
]

PREFIX: Final = "delegraph.alternative/"


@dataclass(frozen=True, slots=True)
class AlternativeOf:
    """The delegate that an alternative stands for, by its index in a method, and the alternative's place among all of
    that delegate's."""

    method: str
    delegate: int
    place: int

    @property
    def plan_name(self) -> str:
        """The name of the alternative's plan."""
        return f"{PREFIX}{self.delegate}/{self.place}/{self.method}"


def is_reserved(name: str) -> bool:
    """Whether no method may be called so."""
    return name.startswith(PREFIX)


def is_alternative(plan: ExecutionPlan) -> bool:
    """Whether `plan` is no method, but stands for a delegate of one."""
    return is_reserved(plan.name)


def methods_of(program: Program) -> tuple[ExecutionPlan, ...]:
    """The plans of `program` that a caller may load."""
    return tuple(plan for plan in program.execution_plan if not is_alternative(plan))


def alternative_of(name: str) -> AlternativeOf | None:
    """The delegate for which the plan of this name stands; None if it is no alternative's name."""
    parts = name.removeprefix(PREFIX).split("/", 2)
    if not is_reserved(name) or len(parts) < 3 or not all(map(_is_count, parts[:2])):
        return None
    return AlternativeOf(parts[2], int(parts[0]), int(parts[1]))


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10 and str(int(text)) == text


def alternatives_of(program: Program) -> Mapping[str, Mapping[int, Sequence[ExecutionPlan]]]:
    """The alternatives of each method's delegates, by their indices, in the order of preference."""
    plans = filter(is_alternative, program.execution_plan)
    placed = [(of, plan) for plan in plans if (of := alternative_of(plan.name)) is not None]
    by_method: dict[str, dict[int, list[ExecutionPlan]]] = {}
    for of, plan in sorted(placed, key=lambda entry: entry[0].place):
        by_method.setdefault(of.method, {}).setdefault(of.delegate, []).append(plan)
    return MappingProxyType(by_method)


def reasons_before(
    delegate: BackendDelegate, alternatives: Sequence[ExecutionPlan], reason_against: Callable[[BackendDelegate], str]
) -> list[str]:
    """Why each of the delegate's own blob and its alternatives cannot run that stands before the first that can.

    `reason_against` says it of a blob, "" if it can. There are as many reasons as blobs and alternatives if none can.
    """
    reasons: list[str] = []
    for records in ((delegate,), *(plan.delegates for plan in alternatives)):
        reason = next(filter(None, map(reason_against, records)), "")
        if not reason:
            break
        reasons.append(reason)
    return reasons


def is_variant(alternative: ExecutionPlan, delegate: BackendDelegate) -> bool:
    """Whether `alternative` is another blob for the backend of `delegate`, and nothing else."""
    called = [instruction for chain in alternative.chains for instruction in chain.instructions]
    return (
        [record.id for record in alternative.delegates] == [delegate.id]
        and len(called) == 1
        and isinstance(called[0], DelegateCall)
    )
