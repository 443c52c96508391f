"""Saving: a file is there whole or not at all, with the mode that it had, and errors name what the user named."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from delegraph.program.files import atomic_file
from delegraph.program.files.atomic_file import write_atomically, write_together


@pytest.fixture(params=["unnamed", "named"], autouse=True)
def temporary(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test twice: with files that have no name before they are whole, and as if the system had none such."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    return str(request.param)


@pytest.fixture
def umask() -> Iterator[None]:
    """A umask that is nobody's default."""
    old = os.umask(0o026)
    yield
    os.umask(old)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_a_new_file_has_the_mode_that_open_gives(tmp_path: Path) -> None:
    write_atomically(tmp_path / "m.pte", [b"a", memoryview(b"b")])
    assert (tmp_path / "m.pte").read_bytes() == b"ab"
    assert mode(tmp_path / "m.pte") == 0o640
    assert os.listdir(tmp_path) == ["m.pte"]


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("kept", [0o600, 0o664, 0o755])
def test_a_replaced_file_keeps_its_mode(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "m.pte"
    path.write_bytes(b"old")
    path.chmod(kept)
    write_atomically(path, [b"new"])
    assert (path.read_bytes(), mode(path)) == (b"new", kept)
    assert os.listdir(tmp_path) == ["m.pte"]


def test_a_read_only_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(PermissionError, match=r"this file is read-only; remove it or make it writable: .*m\.pte'$"):
        write_atomically(path, [b"new"])
    assert (path.read_bytes(), mode(path), os.listdir(tmp_path)) == (b"old", 0o444, ["m.pte"])


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    where = re.escape(str(tmp_path / "no"))
    with pytest.raises(FileNotFoundError, match=f"no such folder to save 'm.pte' in; make it first: '{where}'$"):
        write_atomically(tmp_path / "no" / "m.pte", [b"new"])


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=f"Not a directory: '{re.escape(str(tmp_path / 'file'))}'$"):
        write_atomically(tmp_path / "file" / "m.pte", [b"new"])


def test_a_folder_as_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path))):
        write_atomically(tmp_path, [b"new"])


def test_the_longest_name_that_there_can_be(tmp_path: Path) -> None:
    path = tmp_path / ("n" * (os.pathconf(tmp_path, "PC_NAME_MAX") - 4) + ".pte")
    write_atomically(path, [b"new"])
    assert path.read_bytes() == b"new"


def test_a_failure_while_writing_names_the_file_and_leaves_the_old_one(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "m.pte").write_bytes(b"old")
    with pytest.raises(OSError, match=f"No space left on device: '{re.escape(str(tmp_path / 'm.pte'))}'$"):
        write_atomically(tmp_path / "m.pte", pieces())
    assert (tmp_path / "m.pte").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m.pte"]


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "m.pte", pieces())
    assert os.listdir(tmp_path) == []


def test_content_is_on_the_disk_before_the_name_and_the_name_on_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        synced.append(("folder" if is_folder else "file", (tmp_path / "m.pte").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(tmp_path / "m.pte", [b"new"])
    assert synced == [("file", False), ("folder", True)]


KILLED = """
import os, signal, sys
from delegraph.program.files import atomic_file
from delegraph.program.files.atomic_file import write_atomically, write_together

def pieces():
    yield bytes(1 << 20)
    os.kill(os.getpid(), signal.SIGKILL)

write_atomically(sys.argv[1], pieces())
"""


def test_a_killed_process_leaves_nothing(tmp_path: Path, temporary: str) -> None:
    if temporary == "named":
        pytest.skip("without unnamed files the kernel cannot clean up after a process")
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_WRONLY))
    except (AttributeError, OSError):
        pytest.skip("the file system of the temporary folder has no unnamed files")
    (tmp_path / "m.pte").write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "m.pte"], check=False)
    assert done.returncode < 0
    assert (tmp_path / "m.pte").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m.pte"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files to others")
def test_a_replaced_file_keeps_its_owner_and_group(tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    path.write_bytes(b"old")
    os.chown(path, 12345, 54321)
    path.chmod(0o640)
    write_atomically(path, [b"new"])
    status = path.stat()
    assert (path.read_bytes(), status.st_uid, status.st_gid, mode(path)) == (b"new", 12345, 54321, 0o640)


def test_an_owner_that_cannot_be_kept_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.pte").write_bytes(b"old")
    real = os.stat

    def of_somebody_else(path: object, **options: object) -> os.stat_result:
        status = real(path, **options)  # type: ignore[arg-type, call-overload]
        fields = list(status)
        if str(path).endswith("m.pte"):
            fields[4] = fields[5] = 12345
        return os.stat_result(fields)

    monkeypatch.setattr(os, "stat", of_somebody_else)
    monkeypatch.setattr(os, "chown", _refusing)
    write_atomically(tmp_path / "m.pte", [b"new"])
    assert (tmp_path / "m.pte").read_bytes() == b"new"


def _refusing(*_: object, **__: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


# ---- faults of the disk ----------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no disk that is always full")
def test_a_full_disk_is_told_with_the_name_of_the_file() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write_atomically("/dev/full", [bytes(1 << 20)])


LIMITED = """
import resource, signal, sys
from delegraph.program.files.atomic_file import write_together

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
write_together([(sys.argv[1], [b"new"]), (sys.argv[2], [bytes(int(sys.argv[3]))])])
"""


@pytest.mark.parametrize("nbytes", [1 << 20, 5000], ids=["written", "in the buffer until the end"])
def test_the_kernel_refuses_the_second_file_of_two(tmp_path: Path, nbytes: int) -> None:
    paths = [tmp_path / "m.ptd", tmp_path / "m.pte"]
    for path in paths:
        path.write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *paths, str(nbytes)], check=False, capture_output=True, text=True
    )
    assert done.stderr.endswith(f"File too large: '{paths[1]}'\n")
    assert [path.read_bytes() for path in paths] == [b"old", b"old"]
    assert sorted(os.listdir(tmp_path)) == ["m.ptd", "m.pte"]


# ---- several files together ------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "m.ptd", tmp_path / "m.pte"


def contents(pair: tuple[Path, Path]) -> list[bytes | None]:
    return [path.read_bytes() if path.exists() else None for path in pair]


def test_a_pair_is_replaced(pair: tuple[Path, Path]) -> None:
    for content in (b"old", b"new"):
        write_together([(path, [content, path.suffix.encode()]) for path in pair])
        assert contents(pair) == [content + b".ptd", content + b".pte"]
    assert len(os.listdir(pair[0].parent)) == 2


@pytest.mark.parametrize("old", [b"old", None])
def test_a_second_name_that_is_refused_takes_the_first_one_back(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, old: bytes | None
) -> None:
    for path in pair if old else ():
        path.write_bytes(b"old")
    real = os.replace

    def replace(source: str, target: str) -> None:
        if target == str(pair[1]):
            raise PermissionError(errno.EACCES, "Permission denied", source, None, target)
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(PermissionError, match=f"Permission denied: '{re.escape(str(pair[1]))}'$"):
        write_together([(path, [b"new"]) for path in pair])
    assert contents(pair) == [old, old]
    assert len(os.listdir(pair[0].parent)) == (2 if old else 0)


def test_a_read_only_program_leaves_the_data_as_they_were(pair: tuple[Path, Path]) -> None:
    for path in pair:
        path.write_bytes(b"old")
    pair[1].chmod(0o444)
    with pytest.raises(PermissionError, match="this file is read-only"):
        write_together([(path, [b"new"]) for path in pair])
    assert contents(pair) == [b"old", b"old"]


KILLED_BETWEEN = """
import os, signal, sys
from delegraph.program.files.atomic_file import write_together

if sys.argv[3] == "named":
    del os.O_TMPFILE
replace = os.replace

def replaced(source, target):
    replace(source, target)
    os.kill(os.getpid(), signal.SIGKILL)

os.replace = replaced
write_together([(path, [b"new"]) for path in sys.argv[1:3]])
"""


def test_what_a_killed_process_left_goes_with_the_next_save(
    pair: tuple[Path, Path], temporary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in pair:
        path.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", KILLED_BETWEEN, *pair, temporary], check=False)
    assert done.returncode < 0
    assert contents(pair) == [b"new", b"old"]
    left = {name for name in os.listdir(pair[0].parent) if name not in ("m.pte", "m.ptd")}
    assert left and all(re.fullmatch(r"\.delegraph-[0-9a-f]{16}\.tmp", name) for name in left)
    with open(pair[0].parent / ".delegraph-0123456789abcdef.tmp", "wb") as used:
        assert atomic_file._lock(used.fileno())
        write_atomically(pair[1], [b"newer"])
        assert left <= set(os.listdir(pair[0].parent)), "what is new may be somebody's who is about to lock it"
        monkeypatch.setattr(atomic_file, "_SETTLED_SECONDS", -1)
        write_atomically(pair[1], [b"newest"])
        assert set(os.listdir(pair[0].parent)) == {"m.pte", "m.ptd", os.path.basename(used.name)}


class System:
    """The system calls of saving; the call `number` fails with `error`."""

    CALLS = ("open", "fsync", "replace", "link", "unlink", "stat", "chmod", "access", "scandir", "close")

    def __init__(self, number: int, error: BaseException) -> None:
        self.left, self.error, self.failed = number, error, ""

    @contextmanager
    def in_place(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in self.CALLS:
                patch.setattr(os, name, partial(self._call, name, getattr(os, name)))
            yield

    def _call(self, name: str, function: Callable[..., object], *args: object, **kwargs: object) -> object:
        self.left -= 1
        if self.left == -1:
            self.failed = name
            raise self.error
        return function(*args, **kwargs)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()], ids=["EIO", "^C"])
def test_whichever_call_of_the_system_fails(pair: tuple[Path, Path], error: BaseException) -> None:
    """Each in its turn: both files are the old ones or both the new ones, and nothing else is left in the folder."""
    for number in count():
        for path in pair:
            path.write_bytes(b"old")
        system = System(number, error)
        with suppress(OSError, KeyboardInterrupt), system.in_place():
            write_together([(path, [b"new"]) for path in pair])
        content, where = contents(pair), f"call {number}, {system.failed}"
        assert content in ([b"old", b"old"], [b"new", b"new"]), where
        left = set(os.listdir(pair[0].parent)) - {"m.pte", "m.ptd"}
        assert not left or system.failed == "unlink", f"{where}: {left}"
        for name in left:
            os.unlink(pair[0].parent / name)
        if not system.failed:
            break
    assert content == [b"new", b"new"]
    assert number > 15, "that many calls there are"
