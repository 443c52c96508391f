"""An installation, and perhaps a program -> findings: what is wrong with the plug-ins, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from delegraph.interfaces.stamp import BlobStamp, read_stamp, stamps_by_backend, stamps_of
from delegraph.lazy_dataclass import dataclass, replace
from delegraph.plugins.check import CheckResult, Questions, check
from delegraph.plugins.discovery import (
    Offer,
    Selection,
    did_you_mean,
    normalised,
    scan,
    scan_undeduplicated,
    scan_unknown_groups,
)
from delegraph.plugins.hookspecs import GROUPS, group_named
from delegraph.plugins.inventory import Entry, OfferState, inventory, metadata_violation
from delegraph.plugins.missing import missing_remedy
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.alternatives import alternatives_of, is_variant, methods_of, reasons_before
from delegraph.program.kernel_calls import Need, kernel_key_text, needed_kernels

if TYPE_CHECKING:
    from delegraph.program.schema import BackendDelegate, ExecutionPlan, Program

__all__ = ["Finding", "Severity", "diagnose", "halves", "lone_half", "other_ids", "unknown_groups"]

Loads: TypeAlias = Mapping[tuple[str, int], Sequence[str]]
"""By method and delegate, the reasons against each place before the one that a load took."""

SLOW_IMPORT = 1.0
"""Seconds that loading a torch-free plug-in may take before it is worth a word: a cold start's budget is below that."""


class Severity(Enum):
    """ERROR: something does not work. WARNING: something will surprise. NOTE: good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: about whom, what, and what to do. `of_program`: about what the program needs that was asked
    about; such an error keeps it from running here, whatever else is wrong."""

    severity: Severity
    subject: str
    problem: str
    remedy: str = ""
    of_program: bool = False


def diagnose(
    environ: Mapping[str, str] | None = None,
    program: Program | None = None,
    limit: float = 60.0,
    loads: Loads = MappingProxyType({}),
) -> list[Finding]:
    """Everything that is wrong with the installed plug-ins, the worst first.

    Imports no plug-in here; each is loaded in another process within `limit` seconds. With a `program`, also what that
    needs and this installation lacks; `loads` are what loads of it told.
    """
    environ = os.environ if environ is None else environ
    entries = inventory(environ)
    stamps = stamps_by_backend(program) if program else {}
    plans = program.execution_plan if program else ()
    needs = sorted({need for plan in plans for need in needed_kernels(plan)})
    usable = [entry.offer for entry in entries if entry.state in (OfferState.OK, OfferState.CONFLICT)]
    skipped = () if _torch_is_installed() else tuple(o for o in usable if not group_named(o.group).torch_free)
    results = check((offer for offer in usable if offer not in skipped), limit, Questions(stamps, needs))
    findings = [
        *(replace(finding, of_program=program is not None) for finding in _of_environment(environ)),
        *_of_metadata(entries, {"delegraph.backends": stamps}),
        *_of_copies(Selection.from_environment(environ)),
        *unknown_groups(environ),
        *other_ids(results),
        *_of_skipped(skipped),
        *(finding for result in results for finding in _of_result(result)),
        *(replace(finding, of_program=True) for finding in _of_program(program, results, stamps, needs, loads)),
        *halves(entries),
    ]
    return sorted(findings, key=lambda finding: list(Severity).index(finding.severity))


def _of_environment(environ: Mapping[str, str]) -> Iterator[Finding]:
    for problem in Selection.from_environment(environ).unknown(scan()):
        yield Finding(
            Severity.ERROR, "environment", problem, "correct the variable; every use of plug-ins fails until then"
        )


def _of_metadata(entries: Iterable[Entry], asked: Mapping[str, Collection[str]]) -> Iterator[Finding]:
    """`asked`: the names of plug-ins by group without which the program does not run."""
    for entry in entries:
        if entry.state is OfferState.BROKEN:
            remedy = f"pip install --force-reinstall {entry.offer.distribution}, or remove its metadata"
            yield Finding(Severity.ERROR, str(entry.offer), entry.reason, remedy)
        elif entry.state is OfferState.CONFLICT:
            is_asked = entry.offer.name in asked.get(entry.offer.group, ())
            remedy = "choose one, or uninstall the other"
            yield Finding(Severity.ERROR, str(entry.offer), entry.reason, remedy, of_program=is_asked)


def _of_copies(selection: Selection) -> Iterator[Finding]:
    """Distributions whose metadata is on the path more than once: the code that runs may be of another copy."""
    copies: dict[str, dict[tuple[str, str], list[Offer]]] = {}
    for offer in filter(selection.admits, scan_undeduplicated()):
        places = copies.setdefault(normalised(offer.distribution), {})
        places.setdefault((os.path.realpath(offer.location), offer.version), []).append(offer)
    for places in copies.values():
        (first, *_), *others = places.values()
        for copy, *_ in others:
            problem = f"its metadata is there twice: {_place(first)}, which is found first, and {_place(copy)}"
            stale = [place for place in (copy, first) if _is_stale(places, place)]
            remedy = f"remove the stale one, {_place(stale[0])}" if stale else "remove the one that you do not use"
            harmless = first.version == copy.version and not stale
            yield Finding(Severity.NOTE if harmless else Severity.WARNING, first.distribution, problem, remedy)


def _is_stale(places: Mapping[tuple[str, str], Sequence[Offer]], place: Offer) -> bool:
    return any(metadata_violation(offer) for offer in places[os.path.realpath(place.location), place.version])


def _place(offer: Offer) -> str:
    return f"{offer.version} in {offer.location}"


def halves(entries: Iterable[Entry]) -> Iterator[Finding]:
    """Backends that have one half and not the other."""
    there = {(entry.offer.group, entry.offer.name) for entry in entries if entry.state is not OfferState.DISABLED}
    for group, name in sorted(there):
        finding = lone_half(group, name, there)
        if finding is not None:
            yield finding


def lone_half(group: str, name: str, there: Collection[tuple[str, str]]) -> Finding | None:
    """The finding on the half of a backend that `group` has, if the other one is not `there`, among (group, name)."""
    other, effect = _OTHER_HALF.get(group, ("", ""))
    if not other or (other, name) in there:
        return None
    similar = did_you_mean(name, [known for where, known in there if where == other])
    remedy = _ONE_ID if similar else "install the distribution that has the other half"
    return Finding(Severity.ERROR, name, f"it is in {group} but not in {other}: {effect}{similar}", remedy)


_OTHER_HALF: Final = {
    "delegraph.lowerings": ("delegraph.backends", "what is lowered to it cannot run here"),
    "delegraph.backends": ("delegraph.lowerings", "nothing can be lowered to it here"),
}
"""Group of one half -> that of the other, and what it means that this is missing."""


def other_ids(results: Iterable[CheckResult]) -> Iterator[Finding]:
    """Partitioners whose delegates are for a backend that nobody can lower to: their halves have different ids."""
    results = list(results)
    ids = {result.offer.name for result in results if result.offer.group == "delegraph.lowerings"}
    for result in results:
        backend_id = result.backend_id
        if backend_id and backend_id not in ids:
            similar = did_you_mean(backend_id, ids)
            problem = f"its delegates are for the backend {backend_id!r}, which is not in delegraph.lowerings{similar}"
            remedy = f"install the distribution that lowers to {backend_id}"
            yield Finding(Severity.ERROR, str(result.offer), problem, _ONE_ID if similar else remedy)


_ONE_ID = (
    "its authors give the backend one id: in the partitioner's DelegationSpec, in delegraph.lowerings and in"
    " delegraph.backends; then pip install it again"
)


def unknown_groups(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Entry points in groups that do not exist, so that nobody finds them."""
    selection = Selection.from_environment(environ)
    for offer in filter(selection.admits, scan_unknown_groups()):
        problem = f"there is no entry-point group {offer.group}{did_you_mean(offer.group, GROUPS)}"
        yield Finding(
            Severity.ERROR, str(offer), problem, "its authors correct the group's name, then: pip install it again"
        )


def _of_skipped(skipped: Sequence[Offer]) -> Iterator[Finding]:
    if skipped:
        named = ", ".join(offer.id for offer in skipped)
        yield Finding(Severity.NOTE, "torch", f"it is not installed, so these were not tested: {named}")


def _of_result(result: CheckResult) -> Iterator[Finding]:
    subject = str(result.offer)
    if result.error:
        problem, _, remedy = result.error.partition("\n  what to do: ")
        yield Finding(Severity.ERROR, subject, problem.removeprefix(f"cannot load plug-in {subject}: "), remedy)
    if result.unavailable:
        yield Finding(Severity.NOTE, subject, f"it cannot be used here: {result.unavailable}")
    for told in result.deprecated:
        remedy = f"nothing yet; its authors follow, and then: pip install --upgrade {result.offer.distribution}"
        yield Finding(
            Severity.NOTE, subject, told.removeprefix(f"{result.offer.id} of {result.offer.provider}: "), remedy
        )
    if result.seconds > SLOW_IMPORT and group_named(result.offer.group).torch_free:
        # A note, for a busy machine takes as long, and the exit code says whether the program can run.
        yield Finding(Severity.NOTE, subject, f"loading it takes {result.seconds:.1f} s", "its authors import less")


# ---- the needs of a program ----------------------------------------------------------------------------


def _of_program(
    program: Program | None,
    results: Sequence[CheckResult],
    stamps: Mapping[str, Sequence[BlobStamp]],
    needs: Sequence[Need],
    loads: Loads,
) -> Iterator[Finding]:
    """Findings on all that would run here: of a delegate with alternatives, the first for which nothing is lacking."""
    if program is None:
        return
    backends = {r.offer.name: r for r in results if r.offer.group == "delegraph.backends"}
    alternatives = alternatives_of(program)
    running: list[BackendDelegate] = []
    plans = list(methods_of(program))
    fallen: dict[tuple[str, str], list[str]] = {}
    for plan in methods_of(program):
        for index, record in enumerate(plan.delegates):
            others = alternatives.get(plan.name, {}).get(index, ())
            reasons = reasons_before(record, others, partial(_reason_against, backends, stamps)) if others else []
            reasons = max(reasons, list(loads.get((plan.name, index), ())), key=len)  # an init fails in loads alone
            if not reasons or len(reasons) > len(others):
                running.append(record)
                continue
            taken = others[len(reasons) - 1]
            running += taken.delegates
            plans.append(taken)
            told = f"delegate {index} of {plan.name!r}"
            fallen.setdefault((_what_runs(taken, record), "; ".join(dict.fromkeys(reasons))), []).append(told)
    yield from _of_fallen(fallen)
    used = stamps_of(running)
    yield from _of_backends(backends, used, stamps)
    yield from _of_kernels(results, needs, {need for plan in plans for need in needed_kernels(plan)})


def _reason_against(
    backends: Mapping[str, CheckResult], stamps: Mapping[str, Sequence[BlobStamp]], record: BackendDelegate
) -> str:
    """Why a blob would not run here; "" if it would."""
    result = backends.get(record.id)
    if result is None:
        return f"the backend {record.id} is not installed"
    if result.error or result.unavailable:
        return f"the backend {record.id} cannot be used here: {result.error or result.unavailable}"
    stamp = read_stamp(record.compile_specs)
    verdicts = dict(zip(stamps[record.id], result.verdicts, strict=False))
    answer, _, reason = ("ok" if stamp is None else verdicts.get(stamp, "ok")).partition(": ")
    return "" if answer == "ok" else f"{result.offer.provider} answers {answer.upper()} to {stamp}: {reason}"


def _what_runs(taken: ExecutionPlan, record: BackendDelegate) -> str:
    if is_variant(taken, record):
        stamp = read_stamp(taken.delegates[0].compile_specs)
        return f"its blob {stamp.variant!r}" if stamp else "another blob of it"
    return f"its fall-back, on {' and '.join([*dict.fromkeys(other.id for other in taken.delegates), 'kernels'])}"


def _of_fallen(fallen: Mapping[tuple[str, str], Sequence[str]]) -> Iterator[Finding]:
    for (what, reason), delegates in fallen.items():
        problem = f"{', '.join(delegates)}: {what}, would run here: {reason}"
        if what.startswith("its fall-back"):
            remedy = "install what is missing, or go on: the model runs, but slower"
            yield Finding(Severity.WARNING, "fall-back", problem, remedy)
        else:
            yield Finding(Severity.NOTE, "variant", problem)


def _of_backends(
    backends: Mapping[str, CheckResult],
    used: Mapping[str, Sequence[BlobStamp]],
    stamps: Mapping[str, Sequence[BlobStamp]],
) -> Iterator[Finding]:
    """Findings on the backends of blobs that would run here; `stamps` are those that were asked about."""
    for backend, made_by in used.items():
        result = backends.get(backend)
        if result is None:
            remedy = missing_remedy(backend, next(iter(made_by), None), PluginRegistry(scan()))
            problem = f"the program needs the backend {backend}, which is not installed"
            yield Finding(Severity.ERROR, backend, problem, remedy)
            continue
        if result.error:
            problem = f"the program needs the backend {backend}, and {result.offer} cannot be loaded"
            yield Finding(Severity.ERROR, backend, problem, "see what is said of it")
        if result.unavailable:
            problem = f"the program needs the backend {backend}, whose device cannot be used here: {result.unavailable}"
            yield Finding(Severity.ERROR, backend, problem)
        yield from _of_stamps(result, stamps[backend], made_by)


def _of_kernels(results: Sequence[CheckResult], needs: Sequence[Need], needed: Collection[Need]) -> Iterator[Finding]:
    """The kernels for which loading would fail: no library has them, or several have and no order was given. Of the
    `needs` that were asked about those that are `needed`."""
    told: set[str] = set()
    libraries = [result for result in results if result.ranks]
    for index, (op, key) in enumerate(needs):
        having = [result for result in libraries if result.ranks[index]]
        asked = [result for result in having if not result.on_request]
        best = [result for result in asked if result.ranks[index] == "partial"] or asked
        if op in told or len(best) == 1 or (op, key) not in needed:
            continue
        told.add(op)
        named = ", ".join(f'"{result.offer.name}"' for result in best or having)
        need = f"the program needs {op} on {kernel_key_text(key)}"
        if best:
            problem = f"{need}, and {len(best)} installed kernel libraries have it, none of them before the others"
            yield Finding(Severity.ERROR, op, problem, f"give an order, kernels=[{named}], or uninstall one")
        elif having:
            problem = f"{need}, and only libraries have it that are asked where they are named"
            yield Finding(Severity.ERROR, op, problem, f"name it, kernels=[{named}], with the others that are needed")
        else:
            narrower = [result.offer.name for result in results if op in result.operators]
            partly = f"; {', '.join(narrower)} has it for other dtypes or dim orders" if narrower else ""
            problem = f"{need}, and no installed kernel library has it{partly}"
            yield Finding(Severity.ERROR, op, problem, "install a kernel library that does")


def _of_stamps(result: CheckResult, asked: Sequence[BlobStamp], made_by: Sequence[BlobStamp]) -> Iterator[Finding]:
    for stamp, verdict in zip(asked, result.verdicts, strict=False):
        if stamp not in made_by:
            continue
        answer, _, reason = verdict.partition(": ")
        if answer != "ok":
            problem = f"{result.offer.provider} answers {answer.upper()} to {stamp}: {reason}"
            remedy = f"lower the model again, or install {stamp.distribution}=={stamp.version}"
            yield Finding(Severity.ERROR, stamp.backend, problem, remedy)
        elif (stamp.distribution, stamp.version) != (result.offer.distribution, result.offer.version):
            problem = f"{stamp}; installed is {result.offer.provider}, which accepts it"
            yield Finding(Severity.NOTE, stamp.backend, problem)


def _torch_is_installed() -> bool:
    from importlib.util import find_spec

    return find_spec("torch") is not None
