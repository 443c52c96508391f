"""A mapped file is written to, or cut, while its bytes are in use: they stay, or `AccessFailed` says that they did not.

Where a page that is gone could be read, a case runs in a process of its own, which that would end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from delegraph.errors import AccessFailed
from delegraph.runtime import MmapDataLoader
from delegraph.runtime.leases import LOCK, Lease

DATA = bytes(range(256)) * 256


def leases_work(folder: Path) -> bool:
    """Whether this system and the file system of `folder` give leases."""
    try:
        from fcntl import F_RDLCK, F_SETLEASE, fcntl

        (folder / "leased").touch()
        with open(folder / "leased", "rb") as file:
            fcntl(file, F_SETLEASE, F_RDLCK)
    except (ImportError, OSError):
        return False
    return sys.platform == "linux"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is mapped, however small it is."""
    monkeypatch.setattr("delegraph.runtime.data_loader.COPIED_BYTES", 0)
    (tmp_path / "data").write_bytes(DATA)
    return tmp_path / "data"


@pytest.fixture
def leased(path: Path) -> Path:
    if not leases_work(path.parent):
        pytest.skip("neither this system nor this file system tells before a file is written to")
    return path


def run(script: str, path: Path) -> str:
    """What the script prints, which ends as it should. It has the path, the data, `opened()` and `bytes_of(loader)`."""
    begin = f"""
import fcntl, os, resource, signal, sys, threading, time
import delegraph.runtime.data_loader as data_loader
from delegraph.errors import AccessFailed
data_loader.COPIED_BYTES = 0
path, data = sys.argv[1], bytes(range(256)) * {len(DATA) // 256}
opened = lambda: data_loader.MmapDataLoader(path)
bytes_of = lambda loader: bytes(loader.load(0, len(data)))
"""
    command = [sys.executable, "-c", begin + script, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.strip()


CHANGES = {
    "cut": "os.truncate(path, 0)",
    "cut through a descriptor": "file = open(path, 'r+b'); file.truncate(5000); file.close()",
    "written over": "open(path, 'wb').write(b'x' * len(data))",
    "written into": "file = open(path, 'r+b'); file.write(b'x'); file.close()",
}


@pytest.mark.parametrize("change", CHANGES)
def test_views_stay_as_they_were(leased: Path, change: str) -> None:
    script = f"""
loaders = opened(), opened()
views = [loader.load(0, len(data)) for loader in loaders]
done = threading.Event()
def read():
    while not done.is_set():
        assert views[0] == data
reader = threading.Thread(target=read)
reader.start()
{CHANGES[change]}
assert os.path.getsize(path) != len(data) or open(path, "rb").read() != data
done.set()
reader.join()
for loader, view in zip(loaders, views):
    assert view == data == bytes_of(loader)
    loader.release(view)  # there is nowhere to read it from again
    assert view == data
print("done")
"""
    assert run(script, leased) == "done"


def test_a_file_that_somebody_is_writing_is_copied(leased: Path) -> None:
    script = """
writer = open(path, "r+b")
loader = opened()
writer.truncate(0)
print(bytes_of(loader) == data)
"""
    assert run(script, leased) == "True"


def test_one_descriptor_and_none_behind_a_copy(leased: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    loaders = [MmapDataLoader(leased) for _ in range(5)]
    assert descriptors() == before + 1  # all have one mapping
    with open(leased, "r+b"), LOCK:  # which the thread that copies has, until it has copied all
        assert descriptors() == before + 1
    assert [bytes(loader.load(0, len(DATA))) for loader in loaders] == [DATA] * 5
    loaders.append(MmapDataLoader(leased))
    loaders.clear()
    assert descriptors() == before


def test_no_room_for_a_copy(leased: Path) -> None:
    """Who wants to write gets in all the same, and the next use says so."""
    script = """
os.truncate(path, 2**28)
loader = opened()
assert bytes_of(loader) == data
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + 2**26
resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
os.truncate(path, 0)
try:
    loader.load(0, 1)
except AccessFailed as error:
    print(error)
"""
    assert "the file was changed while it was in use; load it again" in run(script, leased)


def test_a_fork_has_a_lease_of_its_own(leased: Path) -> None:
    script = """
loader = opened()
view = loader.load(0, len(data))
ready, go = os.pipe(), os.pipe()
child = os.fork()
if not child:
    loader.require_unchanged()
    os.write(ready[1], b"x")
    os.read(go[0], 1)
    os._exit(view != data)
os.read(ready[0], 1)
os.truncate(path, 0)
os.write(go[1], b"x")
assert view == data
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(script, leased) == "0"


def test_a_fork_that_comes_too_late_is_told(leased: Path) -> None:
    script = """
loader = opened()
ready = os.pipe()
child = os.fork()
if not child:
    os.read(ready[0], 1)
    try:
        loader.load(0, 1)
    except AccessFailed as error:
        print(error, flush=True)
    os._exit(0)
os.truncate(path, 0)
os.write(ready[1], b"x")
os.waitpid(child, 0)
"""
    assert "the file was changed while it was in use" in run(script, leased)


def test_a_fork_keeps_no_lease_for_a_parent_that_has_ended(leased: Path) -> None:
    """Nobody would give it back, and who writes would wait for the system's 45 seconds."""
    script = """
loader = opened()
go = os.pipe()
child = os.fork()
if not child:
    os.close(go[1])
    os.read(go[0], 1)  # until the parent ends, and closes what it has
    for _ in range(600):
        try:
            os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except BlockingIOError:  # there is a lease
            time.sleep(0.05)
        else:
            print("done", flush=True)
            break
    os._exit(0)
"""
    assert run(script, leased) == "done"


def test_the_hosts_own_signals_are_left_alone(leased: Path) -> None:
    script = """
seen = []
for name in (signal.SIGURG, signal.SIGIO):
    signal.signal(name, lambda number, frame: seen.append(number))
loader = opened()
os.truncate(path, 0)
assert bytes_of(loader) == data and not seen
for number in (signal.SIGURG, signal.SIGIO):
    os.kill(os.getpid(), number)
assert seen == [signal.SIGURG, signal.SIGIO] and not signal.pthread_sigmask(signal.SIG_BLOCK, ())
print("done")
"""
    assert run(script, leased) == "done"


def test_where_there_are_no_leases(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegraph.runtime.mapped_file.take_lease", lambda holder: Lease.REFUSED)
    loader = MmapDataLoader(path)
    assert bytes(loader.load(0, len(DATA))) == DATA
    os.truncate(path, 50)
    with pytest.raises(AccessFailed, match="the file was changed while it was in use; load it again, and replace"):
        loader.load(0, 50)
