"""Saving: a file is there whole or not at all, with the mode that it had, and errors name what the user named."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from delegraph.program.atomic_file import write_atomically


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
    with pytest.raises(FileNotFoundError, match=f"No such file or directory: '{re.escape(str(tmp_path / 'no'))}'$"):
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
from delegraph.program.atomic_file import write_atomically

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
