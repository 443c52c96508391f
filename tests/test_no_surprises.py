"""Lowering, loading and running open no socket, start no process and write no file, as Python and Linux see it.

Each backend does all three in a process of its own, in a home and a folder for temporary files that are empty, and are
so afterwards.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.models

NAMES = ("aten", "cpu", "dsp", "npu", "openvino", "portable")
BACKENDS = [pytest.param(name, marks=[] if name == "cpu" else pytest.mark.long) for name in NAMES]

SCRIPT = """
import os, sys

WATCHED = ("socket.", "subprocess.", "os.fork", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.startfile",
           "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
asked, begun = os.environ["ASKED"], True
temporary = os.devnull, "/dev/shm/delegraph-"  # memory, while something is lowered

def watch(event, arguments):
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES
    if not begun or not (writes or event.startswith(WATCHED)):
        return
    if event in ("os.remove", "os.rmdir") and arguments[1] != -1:  # in a folder that was opened
        return
    if event == "open" and isinstance(arguments[0], int):  # what was opened before
        return
    paths = [os.fsdecode(argument) for argument in arguments if isinstance(argument, (str, bytes))]
    if any(path.startswith((os.path.dirname(asked), os.environ["TMPDIR"], *temporary)) for path in paths):
        return
    import traceback
    print("SURPRISE", event, arguments, "".join(traceback.format_stack(limit=12)), file=sys.stderr)

sys.addaudithook(watch)

import numpy as np
import torch
import delegraph

name = sys.argv[1]
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 16))
x = torch.randn(2, 3, 8, 8)
if name in ("npu", "dsp"):
    lowered = delegraph.lower(delegraph.quantize(model.eval(), [(x,)], backends=[name]), backends=[name])
else:
    lowered = delegraph.lower(model.eval(), (x,), backends=[name] if name in ("cpu", "openvino") else [])
lowered.save(asked)
program = delegraph.load(asked, kernels=[name] if name in ("aten", "portable") else None)
for _ in range(3):
    result = program(x.numpy())
assert isinstance(result, np.ndarray) and result.shape == (2, 16)
begun = False
"""


def environment(folder: Path) -> dict[str, str]:
    """Everybody's own variables, but for those that would keep an engine's telemetry off."""
    home, temporary = folder / "home", folder / "temporary"
    (folder / "asked").mkdir()
    home.mkdir()
    temporary.mkdir()
    kept = {name: value for name, value in os.environ.items() if "TELEMETRY" not in name and name != "CI"}
    own = {"HOME": str(home), "TMPDIR": str(temporary), "ASKED": str(folder / "asked" / "m.pte")}
    own |= {"PYTHONDONTWRITEBYTECODE": "1"}
    # torch names its cache in a variable, which this process has from other tests
    return {name: value for name, value in kept.items() if not name.startswith(("XDG_", "TORCHINDUCTOR_"))} | own


def require_clean(folder: Path) -> None:
    left = [path for name in ("home", "temporary") for path in (folder / name).rglob("*")]
    # torch makes an empty folder where its compiler, which nobody asks, would keep something
    assert not [path for path in left if not path.name.startswith("torchinductor_")]


@pytest.mark.parametrize("backend", BACKENDS)
def test_as_python_sees_it(backend: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, backend]
    done = subprocess.run(command, env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "SURPRISE" not in done.stderr, done.stderr
    require_clean(tmp_path)


CALLS = (
    "%network,fork,vfork,clone,clone3,execve,open,openat,creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat"
)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace, which tells what engines ask of Linux, is missing")
@pytest.mark.parametrize("backend", BACKENDS)
def test_as_linux_sees_it(backend: str, tmp_path: Path) -> None:
    log = tmp_path / "strace"
    command = ["strace", "-f", "-qq", "-e", f"trace={CALLS}", "-o", str(log), sys.executable, "-c", SCRIPT, backend]
    done = subprocess.run(command, env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, check=False)
    if "PTRACE" in done.stderr:
        pytest.skip("strace may not watch a process here")
    assert done.returncode == 0, done.stderr
    first, *calls = log.read_text().splitlines()
    assert "execve" in first
    surprises = [call for call in calls if not is_expected(call, tmp_path)]
    assert not surprises, "\n".join(surprises)
    require_clean(tmp_path)


def is_expected(call: str, folder: Path) -> bool:
    """Whether a line of strace's is of a thread, a file that is read, or a file that was asked for or is temporary."""
    if re.search(r"resumed>|--- SIG|\+\+\+ ", call):
        return True
    if "AF_UNIX" in call and re.search(r"\b(socket|connect)\(", call):
        # The C library asks nscd, if there is one, for the user's name, after which torch names that folder.
        return "connect" not in call or "/nscd/" in call
    # memory, while something is lowered; Python's multiprocessing, which torchao imports, tries whether it has locks
    if "/dev/shm/delegraph-" in call or "/dev/shm/sem." in call:
        return True
    if re.search(r"\b(clone3?)\(", call):
        return "CLONE_THREAD" in call
    if re.search(r"\b(open|openat)\(", call):
        return "O_RDONLY" in call or str(folder) in call or f'"{os.devnull}"' in call or "O_PATH" in call
    if re.search(r"\bunlinkat\(\d+, ", call):  # in a folder that was opened
        return True
    return bool(re.search(r"\b(rename|unlink|mkdir)", call)) and str(folder) in call
