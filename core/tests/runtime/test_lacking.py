"""What the system lacks is told as such: memory, a package, file descriptors, the byte order of files."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from delegraph.errors import AccessFailed, MemoryAllocationFailed, NotSupported, RuntimeFault
from delegraph.program import Program, serialize_program
from delegraph.program.flat_tensor import FlatTensor, serialize_flat_tensor
from delegraph.runtime import Runtime
from delegraph.runtime.lacking import lacking


@pytest.mark.parametrize(
    ("error", "fault", "told"),
    [
        (MemoryError(), MemoryAllocationFailed, "did not give the memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), MemoryAllocationFailed, "did not give the memory"),
        (ImportError("libx.so: failed to map segment from shared object"), MemoryAllocationFailed, "did not give"),
        (ModuleNotFoundError("no", name="ml_dtypes.x"), NotSupported, "needs the package 'ml_dtypes'.*pip install"),
        (OSError(errno.EMFILE, "Too many open files"), AccessFailed, "Too many open files: each loaded file keeps"),
    ],
    ids=["memory", "system", "library", "package", "files"],
)
def test_what_is_lacking(error: Exception, fault: type[RuntimeFault], told: str) -> None:
    with pytest.raises(fault, match=told):
        raise lacking(error) or error


@pytest.mark.parametrize("error", [ValueError("x"), OSError(errno.ENOENT, "No such file"), ImportError("x")], ids=str)
def test_nothing_is_lacking(error: Exception) -> None:
    assert lacking(error) is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_limit_of_open_files(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.pte").write_bytes(serialize_program(Program(())))
    script = (
        "import pathlib, resource, sys\nfrom delegraph.runtime import Runtime, data_loader\n"
        "data_loader.COPIED_BYTES = 0  # however small, they are mapped\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (24, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "kept = [Runtime.get().load_program(path) for path in pathlib.Path(sys.argv[1]).iterdir()]"
    )
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "AccessFailed" in run.stderr and "limit (ulimit -n)" in run.stderr, run.stderr


def test_big_endian_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = serialize_program(Program(()))
    monkeypatch.setattr(sys, "byteorder", "big")
    for call in (
        lambda: Runtime.get().load_program(content),
        lambda: serialize_program(Program(())),
        lambda: serialize_flat_tensor(FlatTensor({})),
    ):
        with pytest.raises(NotSupported, match="this machine is big-endian"):
            call()
