"""A program's files -> the same on a device, if what is installed there runs them; those before them are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from delegraph.errors import DeviceError
from delegraph.interfaces.stamp import BlobStamp, stamps_by_backend
from delegraph.plugins.discovery import HOST
from delegraph.program.alternatives import alternatives_of
from delegraph.program.files.deserialize import deserialize_program
from delegraph.program.files.file_digest import file_digest
from delegraph.program.schema import Program
from delegraph.remote.device import Device

__all__ = ["Pushed", "push", "rollback"]

_PYTHON: Final = (3, 11)
"""The oldest Python that Delegraph runs on: `requires-python` of its pyproject.toml."""

_TOLD: Final = ("error", "warning")
"""Severities of findings; notes are of plug-ins that the program does not need."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """The files there, those that are others now, the device's versions, and what `delegraph doctor` warns of."""

    targets: tuple[str, ...]
    changed: tuple[str, ...]
    versions: Mapping[str, str]
    warnings: tuple[str, ...]


def push(device: Device, program: Path, data: Sequence[Path], path: str, anyway: bool = False) -> Pushed:
    """Put a program and its external weights to `path` on the device: a file, or a folder that is there or ends in "/".

    First the versions there are looked at: Python, Delegraph, the backends of the file's delegates. Then the files are
    written under other names, `delegraph doctor` there looks at the program, and they replace the present ones, which
    are kept as `NAME.previous`, unless it finds an error in what the program needs; of all else it warns. With `anyway`
    they do in any case. Raises `DeviceError`, and `InvalidProgram` for a file that is none; the present file is then as
    it was.
    """
    files = [program, *data]
    names = [file.name for file in files]
    needs = deserialize_program(program.read_bytes())
    facts = device.ask("facts", path=path, names=names)
    problems = [*_of_versions(facts), *([] if anyway else _of_backends(needs, facts))]
    nbytes = sum(file.stat().st_size for file in files)
    if facts["free"] < nbytes:
        problems.append(f"{facts['targets'][0]}: {nbytes:,} bytes are needed, and {facts['free']:,} are free")
    if problems:
        raise DeviceError("\n  ".join([f"{device.host} cannot take {program.name}:", *problems]))
    digests = [file_digest(file) for file in files]
    told = device.ask("push", files, path=path, names=names, digests=digests, anyway=anyway)
    by_severity = {kind: [_line(each) for each in told["findings"] if each["severity"] == kind] for kind in _TOLD}
    if told["refused"]:
        lines = [f"{device.host} cannot run {program.name}, which was not replaced:", *map(_line, told["refused"])]
        raise DeviceError("\n  ".join(lines))
    warnings = tuple(line for lines in by_severity.values() for line in lines)
    return Pushed(tuple(told["targets"]), tuple(told["changed"]), _versions(facts), warnings)


def rollback(device: Device, names: Sequence[str], path: str) -> tuple[str, ...]:
    """Let the files of these names at `path` and those before them change places; the files. Raises `DeviceError`."""
    told = device.ask("rollback", path=path, names=list(names))
    return tuple(told["targets"])


def _of_versions(facts: Mapping[str, Any]) -> Iterator[str]:
    """The reasons against a Python and a Delegraph."""
    python = tuple(int(part) for part in facts["python"].split(".")[:2])
    if python < _PYTHON:
        yield f"its Python is {facts['python']}, and Delegraph needs 3.11 or newer; name another one: --python"
    if HOST not in facts["distributions"]:
        yield "its Python has no Delegraph; `delegraph bundle` gathers what to install, or name another one: --python"


def _of_backends(program: Program, facts: Mapping[str, Any]) -> Iterator[str]:
    """The backends that are not there. Whether those that are there take the blobs is what `delegraph doctor` tells."""
    if alternatives_of(program):
        return  # which backends it needs is what doctor finds out
    there = facts["plugins"].get("delegraph.backends", {})
    for backend, stamps in stamps_by_backend(program).items():
        if backend not in there:
            yield f"the backend {backend} is not installed there{_remedy(stamps)}"


def _remedy(stamps: Sequence[BlobStamp]) -> str:
    made_by = dict.fromkeys(f"{stamp.distribution}=={stamp.version}" for stamp in stamps)
    return f"; its blobs are by {', '.join(made_by)}" if made_by else ""


def _versions(facts: Mapping[str, Any]) -> dict[str, str]:
    machine = {"Python": f"{facts['python']} on {facts['system']} {facts['machine']}"}
    return {**machine, **dict(sorted(facts["distributions"].items()))}


def _line(finding: Mapping[str, str]) -> str:
    remedy = f"; {finding['remedy']}" if finding["remedy"] else ""
    return f"{finding['severity']}: {finding['subject']}: {finding['problem']}{remedy}"
