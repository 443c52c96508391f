"""A method's delegates, each perhaps with alternatives -> the plan to run here, and what was chosen and why.

Of each delegate the first is taken that can run here: its own blob, then its alternatives in their order. One can whose
backends are installed, available, accept its stamps and initialise it; a fall-back on kernels always does.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from delegraph.errors import (
    BackendMissing,
    DelegateInvalidCompatibility,
    FallbackWarning,
    PluginError,
    RuntimeFault,
    printable,
    restated,
)
from delegraph.lazy_dataclass import dataclass, field
from delegraph.program.alternatives import is_variant, reasons_before
from delegraph.program.schema import BackendDelegate, ExecutionPlan
from delegraph.program.walk import Place

if TYPE_CHECKING:
    from delegraph.program.inlining import Origin
    from delegraph.runtime.resolution.backends import BackendRegistry

__all__ = ["Alternatives", "ChosenPlan", "DelegateChoice", "DelegatesFailed", "blobs_of", "choose"]

Alternatives: TypeAlias = Mapping[int, Sequence[ExecutionPlan]]
"""The alternatives of a method's delegates, by their index, in the order of preference."""


@dataclass(frozen=True, slots=True)
class DelegateChoice:
    """The blob or fall-back that a loaded method runs for one of its delegates, of those that the file offers.

    `delegate` is its index in the file's method, and `backend` its backend's id. `place` counts what the file offers:
    0 is the delegate's first blob. `variant` is the name of the blob, if it has one; "" for a fall-back, which runs on
    the backends `fallback`, and on kernels. `reasons` say why none of the places before it was taken.
    """

    delegate: int
    backend: str
    place: int = 0
    variant: str = ""
    fallback: tuple[str, ...] | None = None
    reasons: tuple[str, ...] = ()

    @property
    def is_fallback(self) -> bool:
        """Whether the delegate's own graph runs in its place."""
        return self.fallback is not None

    def __str__(self) -> str:
        what = f"its blob {self.variant!r}" if self.variant else f"blob {self.place}"
        if self.fallback is not None:
            what = f"its fall-back, on {' and '.join([*self.fallback, 'kernels'])}"
        why = "; ".join(self.reasons)
        return f"delegate {self.delegate} ({printable(self.backend)}) runs {what}" + (f": {why}" if why else "")


@dataclass(frozen=True, slots=True)
class ChosenPlan:
    """The plan to run, and for each delegate with alternatives what was chosen. `origins` say where the instructions of
    a plan come from that is not the file's own; `failed` why blobs were left that could not be initialised."""

    plan: ExecutionPlan
    choices: tuple[DelegateChoice, ...] = ()
    origins: Mapping[Place, Origin] = field(default_factory=dict)
    failed: Mapping[BackendDelegate, str] = field(default_factory=dict)


class DelegatesFailed(Exception):
    """Delegates that could not be initialised, and in whose place others can run."""

    def __init__(self, faults: Mapping[BackendDelegate, RuntimeFault]) -> None:
        super().__init__(*map(str, faults.values()))
        self.faults = faults


def choose(
    plan: ExecutionPlan,
    alternatives: Alternatives,
    registry: BackendRegistry,
    before: ChosenPlan | None = None,
    faults: Mapping[BackendDelegate, RuntimeFault] = MappingProxyType({}),
) -> ChosenPlan:
    """The plan to run of a method whose delegates have these alternatives.

    `faults` are of blobs that could not be initialised, of the plan that was chosen `before`. Warns, a
    `FallbackWarning`, of fall-backs that are new. Raises `BackendMissing`, `DelegateInvalidCompatibility` or one of
    the faults for a delegate of which nothing can run here, with all reasons.
    """
    choices, chosen = [], dict[int, ExecutionPlan]()
    failed = {**(before.failed if before else {}), **{record: str(fault) for record, fault in faults.items()}}
    for index in sorted(alternatives):
        reason_against = partial(_reason_against, registry, failed)
        reasons = reasons_before(plan.delegates[index], alternatives[index], reason_against)
        place = len(reasons)
        if place > len(alternatives[index]):
            raise _nothing_runs(plan, index, reasons, registry, faults)
        if place:
            chosen[index] = alternatives[index][place - 1]
        choices.append(_choice(plan, index, place, chosen.get(index), reasons))
    _warn(plan, [choice for choice in choices if before is None or choice not in before.choices])
    if not chosen:
        return ChosenPlan(plan, tuple(choices), failed=failed)
    from delegraph.program.inlining import inlined

    whole, origins = inlined(plan, chosen)
    return ChosenPlan(whole, tuple(choices), origins, failed)


def blobs_of(plan: ExecutionPlan, alternatives: Alternatives) -> frozenset[BackendDelegate]:
    """The blobs of all that may run for delegates with alternatives."""
    own = [plan.delegates[index] for index in alternatives]
    return frozenset(own).union(*(other.delegates for others in alternatives.values() for other in others))


def _reason_against(registry: BackendRegistry, failed: Mapping[BackendDelegate, str], record: BackendDelegate) -> str:
    """Why a blob cannot run here; "" if it can."""
    from delegraph.interfaces.stamp import read_stamp
    from delegraph.runtime.resolution.delegates import absence_of, check_stamp

    if record in failed:
        stamp = read_stamp(record.compile_specs) or "a blob without a stamp"
        return f"the backend failed on {stamp}: {failed[record]}"
    try:
        absence = absence_of(record, registry)
        if absence is None:
            check_stamp(registry.get(record.id), record)
    except (PluginError, DelegateInvalidCompatibility) as error:
        return str(error)
    return absence or ""


def _choice(
    plan: ExecutionPlan, index: int, place: int, taken: ExecutionPlan | None, reasons: Sequence[str]
) -> DelegateChoice:
    from delegraph.interfaces.stamp import read_stamp

    record, fallback = plan.delegates[index], None
    if taken is not None and not is_variant(taken, record):
        fallback = tuple(dict.fromkeys(other.id for other in taken.delegates))
    blob = record if taken is None or fallback is not None else taken.delegates[0]
    stamp = read_stamp(blob.compile_specs) if fallback is None else None
    return DelegateChoice(index, record.id, place, stamp.variant if stamp else "", fallback, tuple(reasons))


def _nothing_runs(
    plan: ExecutionPlan,
    index: int,
    reasons: Sequence[str],
    registry: BackendRegistry,
    faults: Mapping[BackendDelegate, RuntimeFault],
) -> RuntimeFault:
    record = plan.delegates[index]
    told = "".join(f"\n  {reason}" for reason in reasons)
    text = (
        f"method {plan.name!r}, delegate {index} ({printable(record.id)}): nothing that the program has for it can run"
        f" here:{told}"
    )
    if faults:
        return restated(next(iter(faults.values())), text)
    from delegraph.runtime.resolution.delegates import absence_of

    try:
        absent = absence_of(record, registry) is not None
    except PluginError:
        absent = True
    return BackendMissing(text) if absent else DelegateInvalidCompatibility(text)


def _warn(plan: ExecutionPlan, choices: Sequence[DelegateChoice]) -> None:
    """One warning for all fall-backs of a method, each reason once."""
    fallen = [choice for choice in choices if choice.is_fallback]
    if fallen:
        reasons = dict.fromkeys(reason for choice in fallen for reason in choice.reasons)
        numbers = ", ".join(str(choice.delegate) for choice in fallen)
        ids = " and ".join(dict.fromkeys(printable(choice.backend) for choice in fallen))
        warnings.warn(
            f"method {plan.name!r}: delegates {numbers}, of {ids}, run their fall-backs here, which are slower: "
            + "; ".join(reasons),
            FallbackWarning,
            stacklevel=1,
        )
