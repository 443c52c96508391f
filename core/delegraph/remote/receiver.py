"""A request and files on standard input -> an answer and files on standard output. Its source is sent to a device.

    {"action": "push", "with": {…}, "sizes": [12, 7]}   a line, and the bytes of the files, one behind the other
    MARK {"answer": {…}, "sizes": [3]}                  a line, and the bytes of those that come back; or {"error": "…"}

It needs Python 3.8 and its standard library, so that it can tell of a Python that is too old, or has no Delegraph.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from importlib import metadata
from typing import IO, Any

__all__ = ["MARK"]

MARK = b"\x1edelegraph "
"""Before an answer: a shell's start-up files may print something first."""
_PREVIOUS = ".previous"
_FOLDER = "delegraph-device-"
_CHUNK = 2**20


class _Refused(Exception):
    """A request that cannot be done, in words for people."""


def _main() -> None:
    source = sys.stdin.buffer
    request = json.loads(source.readline())
    files: list[str] = []
    try:
        answer, files = _ACTIONS[request["action"]](source, request["sizes"], **request["with"])
        told = {"answer": answer, "sizes": [os.path.getsize(file) for file in files]}
    except _Refused as error:
        told = {"error": str(error)}
    except OSError as error:
        told = {"error": f"{error.filename or 'a file'}: {error.strerror or error}"}
    sys.stdout.buffer.write(MARK + json.dumps(told).encode() + b"\n")
    for file in files:
        with open(file, "rb") as content:
            shutil.copyfileobj(content, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _receive(source: IO[bytes], size: int, path: str) -> str:
    """Write the next `size` bytes to `path`, on the disk; their digest."""
    digest, left = hashlib.sha256(), size
    with open(path, "xb") as file:
        while left:
            piece = source.read(min(left, _CHUNK))
            if not piece:
                raise _Refused(f"the connection ended {left} bytes early")
            digest.update(piece)
            file.write(piece)
            left -= len(piece)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _targets(path: str, names: list[str]) -> list[str]:
    """The files that `path` means: in a folder, which ends with a slash or is there, the first has its own name."""
    path = os.path.expanduser(path or ".")
    first = os.path.realpath(os.path.join(path, names[0]) if path.endswith("/") or os.path.isdir(path) else path)
    return [first, *(os.path.join(os.path.dirname(first), name) for name in names[1:])]


def _beside(target: str) -> str:
    """A name that nobody has, in the target's folder."""
    return os.path.join(os.path.dirname(target), f".delegraph-{os.urandom(8).hex()}.tmp")


# ---- a program's file ------------------------------------------------------------------------------


def _facts(source: IO[bytes], sizes: list[int], path: str, names: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Tell of Python, distributions and plug-ins by group with their versions, and of the room where `path` is."""
    distributions: dict[str, str] = {}
    plugins: dict[str, dict[str, str]] = {}
    for installed in metadata.distributions():
        entries = [entry for entry in installed.entry_points if entry.group.startswith("delegraph.")]
        if entries or (installed.metadata["Name"] or "").lower() == "delegraph":
            distributions[installed.metadata["Name"]] = installed.version
        for entry in entries:
            plugins.setdefault(entry.group, {})[entry.name] = f"{installed.metadata['Name']} {installed.version}"
    targets = _targets(path, names)
    folder = os.path.dirname(targets[0])
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    there = {"targets": targets, "free": shutil.disk_usage(folder).free}
    machine = {"python": platform.python_version(), "system": platform.system(), "machine": platform.machine()}
    return {**machine, **there, "distributions": distributions, "plugins": plugins}, []


def _push(
    source: IO[bytes], sizes: list[int], path: str, names: list[str], digests: list[str], anyway: bool
) -> tuple[dict[str, Any], list[str]]:
    """Put files beside their targets, ask `delegraph doctor` about the first, and give all of them their names."""
    targets = _targets(path, names)
    os.makedirs(os.path.dirname(targets[0]), exist_ok=True)
    waiting = [_beside(target) for target in targets]
    try:
        for size, place, target, digest in zip(sizes, waiting, targets, digests):  # noqa: B905 - of Python 3.10
            try:
                arrived = _receive(source, size, place)
            except OSError as error:
                raise _Refused(f"{target}: {error.strerror}; the file that was there is as it was") from error
            if arrived != digest:
                raise _Refused(f"{target}: other bytes arrived than were sent; the file that was there is as it was")
        findings = _doctor(waiting[0])
        is_refused = not anyway and any(map(_keeps_from_running, findings))
        pairs = [] if is_refused else list(zip(waiting, targets))  # noqa: B905
        changed = [target for place, target in reversed(pairs) if _replace(place, target)]  # the program last
        reasons = [finding for finding in findings if is_refused and _keeps_from_running(finding)]
        return {"targets": targets, "findings": findings, "refused": reasons, "changed": changed}, []
    finally:
        for place in waiting:
            if os.path.exists(place):
                os.unlink(place)


def _keeps_from_running(finding: dict[str, Any]) -> bool:
    """Whether it is an error of what the program needs; an earlier Delegraph does not say which errors are."""
    return finding["severity"] == "error" and bool(finding.get("of_program", True))


def _doctor(program: str) -> list[dict[str, Any]]:
    """The findings of `delegraph doctor` on a file here."""
    done = subprocess.run(
        [sys.executable, "-m", "delegraph", "doctor", program, "--json"], capture_output=True, check=False
    )
    try:
        findings: list[dict[str, Any]] = json.loads(done.stdout)
    except ValueError:
        words = done.stderr.decode(errors="replace").strip().replace(program, "the file")
        raise _Refused(f"delegraph doctor fails there: {words.rpartition(chr(10))[2]}") from None
    return findings


def _replace(new: str, target: str) -> bool:
    """Give the file `new` the name `target`, whose present file is kept; whether that was another one."""
    if os.path.exists(target):
        if _digest(target) == _digest(new):
            return False
        shutil.copymode(target, new)
        spare = _beside(target)
        try:
            os.link(target, spare)
        except OSError:  # a file system without hard links
            shutil.copy2(target, spare)
        os.replace(spare, target + _PREVIOUS)
    os.replace(new, target)
    return True


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(_CHUNK), b""):
            digest.update(piece)
    return digest.hexdigest()


def _rollback(source: IO[bytes], sizes: list[int], path: str, names: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Let each file and the one before it change places."""
    targets = _targets(path, names)
    for target in targets:
        if not os.path.exists(target + _PREVIOUS):
            raise _Refused(f"there is no {target}{_PREVIOUS}: nothing was pushed over that file")
    for target in reversed(targets):
        spare = _beside(target)
        if os.path.exists(target):
            shutil.copy2(target, spare)
        os.replace(target + _PREVIOUS, target)
        if os.path.exists(spare):
            os.replace(spare, target + _PREVIOUS)
    return {"targets": targets}, []


# ---- commands on files of a session ----------------------------------------------------------------


def _make_folder(source: IO[bytes], sizes: list[int]) -> tuple[dict[str, Any], list[str]]:
    if importlib.util.find_spec("delegraph") is None:
        raise _Refused(f"{sys.executable} there has no Delegraph; name another one: --python, or DELEGRAPH_PYTHON")
    return {"folder": tempfile.mkdtemp(prefix=_FOLDER)}, []


def _remove_folder(source: IO[bytes], sizes: list[int], folder: str) -> tuple[dict[str, Any], list[str]]:
    if os.path.basename(folder).startswith(_FOLDER):
        shutil.rmtree(folder, ignore_errors=True)
    return {}, []


def _run(
    source: IO[bytes],
    sizes: list[int],
    folder: str,
    names: list[str],
    words: list[str],
    writes: list[str],
    timeout: float | None,
) -> tuple[dict[str, Any], list[str]]:
    """Write files into the folder and run `python -m delegraph WORDS` in it; those of `writes` go back."""
    for size, name in zip(sizes, names):  # noqa: B905
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        _receive(source, size, os.path.join(folder, name))
    for name in writes:
        place = os.path.join(folder, name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if os.path.exists(place):
            os.unlink(place)
    command = [sys.executable, "-m", "delegraph", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as process:
        threading.Thread(target=_end_with_input, args=(process,), daemon=True).start()
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            return {"code": None, "stdout": "", "stderr": "", "outputs": []}, []
    there = [name for name in writes if os.path.isfile(os.path.join(folder, name))]
    streams = {"stdout": stdout.decode(errors="replace"), "stderr": stderr.decode(errors="replace")}
    return {**streams, "code": process.returncode, "outputs": there}, [os.path.join(folder, name) for name in there]


def _end_with_input(process: subprocess.Popen[bytes]) -> None:
    """End `process` when the connection ends: whoever asked for it has stopped waiting."""
    os.read(0, 1)  # not `sys.stdin`, whose lock would be held when the interpreter ends
    process.kill()


_ACTIONS: dict[str, Any] = {
    "facts": _facts,
    "push": _push,
    "rollback": _rollback,
    "make_folder": _make_folder,
    "remove_folder": _remove_folder,
    "run": _run,
}

if __name__ == "__main__":
    _main()
