"""`delegraph.load(…, isolated=True)`: the same numbers, from a process that opens nothing, and whose death is told."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import delegraph
from delegraph.cli import main
from delegraph.errors import (
    Cancelled,
    DelegraphError,
    Internal,
    InvalidArgument,
    InvalidState,
    InvalidType,
    LimitExceeded,
    NotSupported,
)
from delegraph.runtime import Limits
from delegraph.runtime.isolation import sandbox

pytestmark = pytest.mark.models

STRANGER = """
import ctypes, os, socket, subprocess, time
import numpy as np
from delegraph.runtime import KernelLibrary

library = KernelLibrary("stranger")

def attempt(action):
    try:
        action()
    except OSError as error:
        return error.errno
    return 0

def fork():
    if not os.fork():
        os._exit(0)

WAYS = [
    lambda: open("/etc/hostname").close(), lambda: open("written", "w").close(), lambda: socket.socket().close(),
    fork, lambda: subprocess.run(["true"]), lambda: os.kill(os.getppid(), 0), lambda: os.unlink("/nothing"),
]

@library.kernel("aten::sin.out")
def sin(context, x, out):
    what = int(x.flat[0])
    if what == 1:
        ctypes.string_at(0)
    if what == 2:
        os._exit(3)
    if what == 3:
        time.sleep(600)
    if what == 4:
        print("printed")
    if what == 5:
        os.write(1, b"not a frame")
    if what == 6:
        raise ValueError("\\x1b[31mred")
    out[...] = 0
    out.flat[:len(WAYS)] = [attempt(way) for way in WAYS] if what == 7 else what
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program whose kernel does as its input says."""
    information = tmp_path / "site" / "stranger-1.dist-info"
    information.mkdir(parents=True)
    (tmp_path / "site" / "stranger.py").write_text(STRANGER)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[delegraph.kernels]\nstranger = stranger:library\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    path = tmp_path / "sin.pte"

    class Sin(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x)

    delegraph.lower(Sin(), (torch.zeros(8),)).save(path)
    return path


def told(what: int) -> np.ndarray[Any, Any]:
    return np.full(8, what, np.float32)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_what_a_run_can_do_to_others(stranger: Path, tmp_path: Path) -> None:
    with delegraph.load(stranger, isolated=True, kernels=["stranger"]) as model:
        if sys.platform != "linux":
            assert "there is no seccomp" in model.lacking
            pytest.skip("only Linux has seccomp")
        assert not model.lacking
        np.testing.assert_array_equal(model(told(7))[:7], np.full(7, 1))  # EPERM
    assert not (tmp_path / "written").exists()


def test_deaths(stranger: Path) -> None:
    cases: dict[int, str] = {1: "ended by SIGSEGV", 2: "ended with code 3"}
    for what, text in cases.items():
        model = delegraph.load(stranger, isolated=True, kernels=["stranger"])
        assert model(told(0))[0] == 0
        with pytest.raises(Internal, match=text):
            model(told(what))
        with pytest.raises(InvalidState, match="has ended; load it again"):
            model(told(0))
        assert is_gone(model.pid)


def test_threads_that_call_it_wait_for_each_other(stranger: Path) -> None:
    with delegraph.load(stranger, isolated=True, kernels=["stranger"]) as model, ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda what: model(told(what))[0], [0, 4, 5, 8, 9] * 8))
        assert results == [0, 4, 5, 8, 9] * 8
        with pytest.raises(NotSupported, match=r"runs in its callers' threads: await asyncio\.to_thread"):
            model["forward"].submit(told(0))


def test_what_is_printed_is_no_reply_and_errors_are_text(stranger: Path) -> None:
    with delegraph.load(stranger, isolated=True, kernels=["stranger"]) as model:
        assert model(told(4))[0] == 4
        assert model(told(5))[0] == 5
        with pytest.raises(InvalidArgument, match=r"ValueError: \\x1b\[31mred"):
            model(told(6))
        assert model(told(0))[0] == 0  # it goes on after an error


def test_time_and_cancelling(stranger: Path) -> None:
    limited = delegraph.load(stranger, isolated=True, kernels=["stranger"], limits=Limits(seconds=2))
    with pytest.raises(LimitExceeded, match="seconds, its limit"):
        limited(told(3))
    assert is_gone(limited.pid)
    model = delegraph.load(stranger, isolated=True, kernels=["stranger"])

    def cancel_when_it_runs() -> None:
        while not model.cancel():
            time.sleep(0.01)

    threading.Thread(target=cancel_when_it_runs).start()
    with pytest.raises(Cancelled):
        model(told(3))
    assert is_gone(model.pid)


def test_it_ends_with_its_last_reference_and_when_it_is_closed(stranger: Path) -> None:
    model = delegraph.load(stranger, isolated=True, kernels=["stranger"])
    pid = model.pid
    del model
    assert is_gone(pid)
    closed = delegraph.load(stranger, isolated=True, kernels=["stranger"])
    closed.close()
    closed.close()
    assert is_gone(closed.pid)


@pytest.mark.parametrize("backend", ["kernels", "cpu", "openvino", "npu"])
def test_numbers(backend: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 16)).eval(),
        torch.randn(2, 3, 8, 8),
    )
    backends = [] if backend == "kernels" else [backend]
    if backend == "npu":
        lowered = delegraph.lower(delegraph.quantize(model, [(x,)], backends=backends), backends=backends)
    else:
        lowered = delegraph.lower(model, (x,), backends=backends)
    expected = delegraph.load(bytes(lowered))(x.numpy())
    with delegraph.load(bytes(lowered), isolated=True) as isolated:
        for _ in range(3):
            np.testing.assert_array_equal(isolated(x.numpy()), expected)
        assert isinstance(isolated(x), torch.Tensor)
        assert isolated.methods == ("forward",)
        assert isolated.metadata.num_inputs() == 1


def test_large_tensors_structures_and_state(tmp_path: Path) -> None:
    class Counter(nn.Module):
        count: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
            self.count += 1
            return {"sum": x + y, "count": self.count + 0}

    x = torch.arange(2**22, dtype=torch.float32)  # 16 MiB, more than a pipe holds
    delegraph.lower(Counter(), (x, x)).save(tmp_path / "m.pte")
    with delegraph.load(tmp_path / "m.pte", isolated=True) as model:
        for step in (1, 2):
            result = model(x.numpy(), y=x.numpy())
            np.testing.assert_array_equal(result["sum"], 2 * x.numpy())
            assert result["count"] == step
        assert list(model.state) == ["count"]
        assert model.state["count"] == 2
        model.state["count"] = np.array([7], np.float32)
        assert model(x.numpy(), x.numpy())["count"] == 8
        model.state.reset()
        assert model(x.numpy(), x.numpy())["count"] == 1
        with pytest.raises(KeyError):
            model.state["nothing"]
        with pytest.raises(InvalidArgument, match="method 'forward' takes"):
            model()
        with pytest.raises(InvalidArgument, match="is isolated, and has no out="):
            model(x.numpy(), x.numpy(), out={"sum": None, "count": None})


def test_what_does_not_load(stranger: Path, tmp_path: Path) -> None:
    with pytest.raises(DelegraphError, match=r"not a \.pte"):
        delegraph.load(b"nothing" * 100, isolated=True)
    with pytest.raises(InvalidType, match="is of this process; an isolated program takes names"):
        delegraph.load(stranger, isolated=True, kernels=[object()])  # type: ignore[call-overload]
    with pytest.raises(DelegraphError, match="no-such-library"):
        delegraph.load(stranger, isolated=True, kernels=["no-such-library"])


def test_on_the_command_line(stranger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", str(stranger), "--isolated", "--kernels", "stranger", "--inputs", "zeros", "--repeat", "1"]
    assert main([*command, "--json"]) == 0
    told_of_it = json.loads(capsys.readouterr().out)
    assert told_of_it["outputs"] == [{"dtype": "float32", "shape": [8], "first": [0.0] * 8}]
    assert told_of_it["peak_memory_nbytes"] is None
    with pytest.raises(SystemExit, match="2"):
        main([*command, "--trace"])
    assert "--trace has no use with --isolated" in capsys.readouterr().err


def test_without_seccomp_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "m68k")
    assert sandbox.restrict(sandbox.Allowed.NOTHING) == f"there is no seccomp on {sys.platform} (m68k)"
