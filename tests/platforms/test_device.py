"""A device behind OpenSSH's server, on loopback: as `core/tests/cli/test_push.py`, which has none.

The server has a configuration, a key and a port of its own, and takes the key of this test alone.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.platforms.programs import save

SSHD = Path("/usr/sbin/sshd")

pytestmark = [
    pytest.mark.platforms,
    pytest.mark.skipif(not SSHD.exists(), reason="there is no /usr/sbin/sshd: apt-get install openssh-server"),
]

MODEL = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).eval(), (torch.randn(4, 64),)

def batches():
    return [(torch.randn(4, 64),) for _ in range(3)]
"""


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of the device; `--ssh` reaches it."""
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "ListenAddress": f"127.0.0.1:{port}",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "user.pub",
        "PidFile": "none",
        "PasswordAuthentication": "no",
        "StrictModes": "no",
        "UsePAM": "no",
    }
    (folder / "config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # where a server of root's drops its rights
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "config"], stderr=log)
    options = ("StrictHostKeyChecking=no", f"UserKnownHostsFile={folder}/known", "IdentitiesOnly=yes", "LogLevel=ERROR")
    reaching = f"ssh -p {port} -i {folder}/user {' '.join(f'-o {option}' for option in options)}"
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DELEGRAPH_SSH", reaching)
            patch.setenv("DELEGRAPH_PYTHON", _python(folder))
            name = f"{getpass.getuser()}@127.0.0.1"
            for _ in range(100):
                if subprocess.run([*reaching.split(), name, "true"], capture_output=True, check=False).returncode == 0:
                    break
                time.sleep(0.1)
            else:
                pytest.fail((folder / "log").read_text())
            yield name
    finally:
        server.terminate()
        server.wait()


def _python(folder: Path) -> str:
    """An interpreter as on a device: without torch, and with three plug-ins."""
    (folder / "sitecustomize.py").write_text("import sys; sys.modules['torch'] = None")
    plugins = "DELEGRAPH_PLUGINS=delegraph-portable,delegraph-cpu,delegraph-npu"
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={folder} {plugins} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return str(script)


def delegraph(*words: object, code: int = 0) -> str:
    """Run the command line in a process of its own; what it printed."""
    command = [sys.executable, "-m", "delegraph", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{done.stdout}{done.stderr}"
    return done.stderr if code else done.stdout


def test_a_program_is_pushed_run_and_brought_back(board: str, tmp_path: Path) -> None:
    for name in ("cpu", "npu"):
        save(name, tmp_path)
    there = tmp_path / "models"
    for name in ("cpu", "npu"):
        (tmp_path / f"{name}.pte").replace(tmp_path / "m.pte")
        told = delegraph("push", tmp_path / "m.pte", f"{board}:{there}/")
        assert f"{board}:{there}/m.pte is there now" in told
    assert (there / "m.pte").read_bytes() == (tmp_path / "m.pte").read_bytes()
    assert "is the one before" in delegraph("push", "--rollback", "m.pte", f"{board}:{there}/")
    assert (there / "m.pte.previous").read_bytes() == (tmp_path / "m.pte").read_bytes()
    run = ("run", "--host", board, tmp_path / "m.pte", "--output", tmp_path / "there.npz", "--json")
    assert json.loads(delegraph(*run))["latency_seconds"]["repeat"] == 10
    delegraph("run", tmp_path / "m.pte", "--output", tmp_path / "here.npz")
    here, away = np.load(tmp_path / "here.npz"), np.load(tmp_path / "there.npz")
    np.testing.assert_array_equal(here["output_0"], away["output_0"])


def test_large_files_arrive(board: str, tmp_path: Path) -> None:
    save("float_cnn", tmp_path)
    content = (tmp_path / "float_cnn.pte").read_bytes()
    (tmp_path / "big.ptd").write_bytes(os.urandom(2**24))
    delegraph("push", tmp_path / "float_cnn.pte", "--data", tmp_path / "big.ptd", f"{board}:{tmp_path}/there/")
    assert (tmp_path / "there/float_cnn.pte").read_bytes() == content
    assert (tmp_path / "there/big.ptd").read_bytes() == (tmp_path / "big.ptd").read_bytes()


def test_candidates_are_compared_there(board: str, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    best = tmp_path / "best.pte"
    words = ["--backends", "cpu", "--backends", "", "--recipe", "float", "--recipe", "int8_dynamic", "-o", best]
    quick = ["--rounds", "2", "--seconds", "0.05", "--json"]
    told = json.loads(delegraph("compare", f"{tmp_path}/model.py:make", *words, *quick, "--host", board))
    assert len(told["candidates"]) == 4
    assert all(len(row["methods"]["forward"]["turns"]) == 2 for row in told["candidates"]), told
    assert all(row["sqnr"] is None or float(row["sqnr"]) > 20 for row in told["candidates"])
    assert best.exists()


def test_hosts_that_are_not_there(board: str, tmp_path: Path) -> None:
    save("float_cnn", tmp_path)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        ssh = f"ssh -p {nobody.getsockname()[1]} -o BatchMode=yes"
        told = delegraph("push", tmp_path / "float_cnn.pte", f"{board}:there/", "--ssh", ssh, code=1)
    assert f"{board} cannot be reached: ssh: connect to host 127.0.0.1 port" in told
    told = delegraph("push", tmp_path / "float_cnn.pte", f"{board}:there/", "--python", "python2.2", code=1)
    assert f"{board} has no python2.2 (" in told
    told = delegraph("compare", "x.py:make", "--backends", "", "--host", "-x", code=2)
    assert "expected one argument" in told
