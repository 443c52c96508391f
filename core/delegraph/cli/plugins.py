"""`delegraph plugins list | show NAME | check [NAME] | doctor [m.pte]`: what is installed, and what is wrong with it.

None of them imports a plug-in into this process, but for `check NAME --run`, which hands over to a conformance kit.
Exit codes: 0 all is well, 1 something was found, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from delegraph.cli import numbers
from delegraph.errors import DelegraphError, PluginNotFound
from delegraph.plugins.deprecations import deprecated_uses
from delegraph.plugins.discovery import Offer, Selection, did_you_mean, scan, scan_unknown_groups
from delegraph.plugins.hookspecs import GROUPS
from delegraph.plugins.inventory import Entry, OfferState, inventory
from delegraph.plugins.source import Written, written
from delegraph.plugins.versions import api_text, mismatch
from delegraph.program.alternatives import alternatives_of
from delegraph.tables import Table, print_table, print_text

if TYPE_CHECKING:
    from delegraph.cli.plugin_trial import TrialResult
    from delegraph.plugins.check import CheckResult
    from delegraph.program.schema import Program

__all__ = ["add_doctor", "add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `plugins` and its commands to the command line."""
    parser = subparsers.add_parser("plugins", help="list, test and diagnose what is installed")
    commands = parser.add_subparsers(dest="plugins_command", required=True, metavar="list | show | check | doctor")
    listing = commands.add_parser("list", help="what is installed, told without importing it")
    listing.add_argument("--group", help="only this entry-point group, for example `backends`")
    show = commands.add_parser("show", help="all that is known of one plug-in")
    show.add_argument("name", help="its name, its id (`backends:Npu`) or its distribution")
    check = commands.add_parser("check", help="load plug-ins and try them out, in processes of their own")
    check.add_argument("name", nargs="?", help="its name, its id (`backends:Npu`) or its distribution; all if left out")
    check.add_argument(
        "--run",
        nargs=argparse.REMAINDER,
        dest="run_kit",
        metavar="…",
        help="prove it with the installed conformance kit, which the words behind are for: try `--run --help`",
    )
    _for_all(check, listing, show, check)
    add_doctor(commands)


def add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `doctor`, which stands among all commands as well: who looks for it may not know what a plug-in is."""
    doctor = commands.add_parser("doctor", help="find out what is wrong, here or with a program here")
    doctor.add_argument("program", nargs="?", help="a .pte: also tell what it needs that is not here")
    doctor.add_argument(
        "--devices", action="store_true", help="instead, what devices are here, who drives them, and what to install"
    )
    doctor.set_defaults(plugins_command="doctor")
    _for_all(doctor, doctor)


def _for_all(loading: argparse.ArgumentParser, *commands: argparse.ArgumentParser) -> None:
    """The options of every command, and of the one that loads plug-ins."""
    loading.add_argument(
        "--timeout", type=numbers.seconds, default=60.0, help="seconds that a plug-in may take to load"
    )
    for command in commands:
        command.add_argument("--json", action="store_true", help="print JSON")
        command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    try:
        if getattr(args, "run_kit", None) is not None:
            return _prove(args.name, args.run_kit)
        answer = _COMMANDS[args.plugins_command](args)
    except (DelegraphError, OSError) as error:
        print(f"delegraph plugins {args.plugins_command}: {error}", file=sys.stderr)
        return 2
    if args.json:
        json.dump(answer.rows, sys.stdout, indent=2)
        print()
        return answer.code
    if answer.columns:
        print_table(
            Table("", answer.columns, [tuple(str(row[name]) for name in answer.columns) for row in answer.rows])
        )
    for detail in answer.details if answer.rows else [answer.nothing]:
        print_text(detail)
    return answer.code


@dataclass(frozen=True, slots=True)
class _Answer:
    """Rows for JSON, of which the `columns` make a table (none: no table); then the texts too long for one."""

    rows: Sequence[dict[str, object]]
    code: int
    columns: tuple[str, ...] = ()
    details: Sequence[str] = ()
    nothing: str = "no plug-ins are installed"


def _list(args: argparse.Namespace) -> _Answer:
    from delegraph.plugins.hookspecs import group_named

    group = group_named(args.group).name if args.group else None
    entries = [entry for entry in inventory(os.environ) if group in (None, entry.offer.group)]
    sources = [written(entry.offer) for entry in entries]
    versions = [_of_api(entry, source) for entry, source in zip(entries, sources, strict=True)]
    too_new = any(mismatch(source.api) for source in sources)
    faulty = too_new or any(entry.state in (OfferState.BROKEN, OfferState.CONFLICT) for entry in entries)
    unknown = Selection.from_environment(os.environ).unknown(scan())
    for problem in unknown:
        print(problem, file=sys.stderr)
    reasons = [f"{entry.offer.id}: {entry.reason}" for entry in entries if entry.reason]
    columns = ("group", "name", "distribution", "version", "api", "value", "state")
    rows = [{**_row(entry), "api": api_text(source.api)} for entry, source in zip(entries, sources, strict=True)]
    details = [*reasons, *(told for telling in versions for told in telling)]
    return _Answer(rows, int(faulty or bool(unknown)), columns, details)


def _of_api(entry: Entry, source: Written) -> list[str]:
    """Remarks on the plug-in API that an entry needs, and on the deprecated parts that it uses."""
    uses = deprecated_uses(entry.offer.group, source.hooks)
    told = [*filter(None, [mismatch(source.api)]), *(f"{row}, says {entry.offer.provider}'s source" for row in uses)]
    return [f"{entry.offer.id}: {text}" for text in told]


def _show(args: argparse.Namespace) -> _Answer:
    rows = []
    for entry in _named(args.name):
        group = GROUPS[entry.offer.group]
        hooks = [group.text(hook) for hook in group.hook_names]
        about = {"object": group.form.value, "hooks": hooks, "torch_free": group.torch_free}
        rows.append({**_row(entry), "location": entry.offer.location, **about})
    details = [
        "\n".join(f"{key:13} {_flat(value)}" for key, value in row.items() if value != "") + "\n" for row in rows
    ]
    return _Answer(rows, 0, details=details)


def _check(args: argparse.Namespace) -> _Answer:
    from delegraph.plugins.check import check

    entries = [
        e for e in (_named(args.name) if args.name else inventory(os.environ)) if e.state is not OfferState.DISABLED
    ]
    results = check([entry.offer for entry in entries], args.timeout)
    sound = [result.offer for result in results if not result.error and not result.unavailable]
    rows = [
        {
            "plugin": result.offer.id,
            "distribution": result.offer.provider,
            "result": result.kind or ("unavailable" if result.unavailable else "ok"),
            "seconds": round(result.seconds, 3),
            "detail": result.error or result.unavailable,
        }
        for result in results
    ]
    problems = [*_misnamed(args.name), *_lone_halves(entries), *_other_ids(results), *_trials(sound, args.timeout)]
    details = [f"\n{row['plugin']}: {row['detail']}" for row in [*rows, *problems] if row["detail"]]
    columns = ("plugin", "distribution", "result", "seconds")
    bad = any(result.error for result in results) or any(row["result"] not in ("ok", "unavailable") for row in problems)
    return _Answer([*rows, *problems], int(bad), columns, details)


def _prove(name: str | None, arguments: Sequence[str]) -> int:
    """Hand over to the conformance kit. Raises `PluginNotFound` where there is none, or nothing to prove."""
    from delegraph.plugins.registry import default_registry

    registry = default_registry()
    kits = registry.names("conformance_kits")
    if not kits:
        raise PluginNotFound(
            "no conformance kit is installed\n  what to do: install delegraph-testkit, which comes with Delegraph's"
            " sources in plugins/testkit, and run this again"
        )
    if name is None:
        raise PluginNotFound("say what to prove: `delegraph plugins check NAME --run`")
    code: int = registry.load("conformance_kits", kits[0])(name, arguments)
    return code


def _misnamed(name: str | None) -> list[dict[str, object]]:
    """Entry points in groups that do not exist: theirs, or everybody's."""
    strange = [offer for offer in scan_unknown_groups() if name is None or offer.is_called(name)]
    return [
        _told(offer, "no such group", f"there is no group {offer.group}{did_you_mean(offer.group, GROUPS)}")
        for offer in strange
    ]


def _lone_halves(entries: Sequence[Entry]) -> list[dict[str, object]]:
    """The entries whose backend has no other half, wherever that would be installed."""
    from delegraph.plugins.doctor import halves

    lone = {finding.subject: finding for finding in halves(inventory(os.environ))}
    return [
        _told(entry.offer, "one half", lone[entry.offer.name].problem)
        for entry in entries
        if entry.offer.group in ("delegraph.lowerings", "delegraph.backends") and entry.offer.name in lone
    ]


def _other_ids(results: Sequence[CheckResult]) -> list[dict[str, object]]:
    """The partitioners whose delegates are for an id that no lowering has, wherever that would be installed."""
    from delegraph.plugins.check import CheckResult
    from delegraph.plugins.doctor import other_ids

    known = [CheckResult(entry.offer) for entry in inventory(os.environ) if entry.offer.group == "delegraph.lowerings"]
    asking = [result for result in results if result.backend_id]
    wrong = {finding.subject: finding.problem for finding in other_ids([*asking, *known])}
    return [_told(r.offer, "another id", wrong[str(r.offer)]) for r in asking if str(r.offer) in wrong]


def _trials(sound: Sequence[Offer], limit: float) -> list[dict[str, object]]:
    """The results of small models, lowered onto the partitioners' backends, and run."""
    from importlib.util import find_spec

    from delegraph.cli.plugin_trial import try_out

    partitioners = [offer for offer in sound if offer.group == "delegraph.partitioners"]
    if find_spec("torch") is None:
        return [_told(offer, "ok", "it was not tried out: torch is not installed") for offer in partitioners]
    trials = try_out(partitioners, limit)
    return [_told(trial.offer, *_verdict(trial)) for trial in trials]


def _verdict(trial: TrialResult) -> tuple[str, str]:
    if trial.error:
        return "trial failed", trial.error
    return ("unavailable", trial.unavailable) if trial.unavailable else ("ok", trial.told)


def _told(offer: Offer, result: str, detail: str) -> dict[str, object]:
    distribution = offer.provider
    return {"plugin": offer.id, "distribution": distribution, "result": result, "seconds": "", "detail": detail}


def _devices(args: argparse.Namespace) -> _Answer:
    """The devices in a table, and behind it the remedies; then backends that find no device."""
    from delegraph.plugins.devices import device_rows

    if args.program:
        raise PluginNotFound("say either a program or --devices: a program's needs are not looked at with it")
    rows = device_rows(limit=args.timeout)
    usable = [row for row in rows if row.kind or row.state == "ready"]
    details = [f"\n{row.backend}: {row.remark or row.fix}" for row in usable if row.remark or row.fix]
    details += [f"{row.backend} finds no device here: {row.state}" for row in rows if row not in usable]
    shown = [asdict(row) for row in (rows if args.json else usable)]
    return _Answer(shown, 0, ("kind", "device", "backend", "state"), details, nothing="no backend is installed")


def _doctor(args: argparse.Namespace) -> _Answer:
    from delegraph.cli.load_trial import reasons_of_loads
    from delegraph.plugins.doctor import Severity, diagnose

    if args.devices:
        return _devices(args)
    program = _read(args.program) if args.program else None
    loads = reasons_of_loads(args.program, args.timeout) if program and alternatives_of(program) else {}
    findings = diagnose(program=program, limit=args.timeout, loads=loads)
    rows = [{**asdict(finding), "severity": finding.severity.value} for finding in findings]
    details = [
        f"{finding.severity.value}: {finding.subject}\n  {finding.problem}"
        + (f"\n  what to do: {finding.remedy}" if finding.remedy else "")
        for finding in findings
    ]
    serious = any(finding.severity is not Severity.NOTE for finding in findings)
    verdict = f"{args.program} finds here all that it needs" if args.program else "all is well"
    return _Answer(rows, int(serious), details=details if serious else [*details, verdict], nothing=verdict)


_COMMANDS = {"list": _list, "show": _show, "check": _check, "doctor": _doctor}


def _read(path: str) -> Program:
    from delegraph.program.files.deserialize import deserialize_program

    with open(path, "rb") as file:
        return deserialize_program(file.read())


def _named(name: str) -> list[Entry]:
    entries = inventory(os.environ)
    matches = [entry for entry in entries if entry.offer.is_called(name)]
    if not matches and not any(offer.is_called(name) for offer in scan_unknown_groups()):
        names = {text for entry in entries for text in (entry.offer.name, entry.offer.distribution)}
        raise PluginNotFound(f"nothing installed is called {name!r}{did_you_mean(name, sorted(names))}")
    return matches


def _row(entry: Entry) -> dict[str, object]:
    offer = entry.offer
    return {
        "group": offer.group,
        "name": offer.name,
        "distribution": offer.distribution,
        "version": offer.version,
        "value": offer.value,
        "state": entry.state.value,
        "reason": entry.reason,
    }


def _flat(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
