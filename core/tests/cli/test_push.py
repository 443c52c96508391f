"""`delegraph push` and `run --host`, through a program that does as ssh does and stays here; sshd: tests/platforms."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import delegraph
from delegraph.cli import main
from delegraph.cli.push import _parts
from delegraph.plugins.registry import PluginRegistry, use_registry

SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
[ "$2" = board ] || { echo "ssh: Could not resolve hostname $2" >&2; exit 255; }
cd "$HOME" && echo "Welcome to board" && DELEGRAPH_PLUGINS=$DEVICE_PLUGINS exec sh -c "$3"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder on the device `board`, which has the kernels of `portable` alone."""
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['torch'] = None  # which no device has\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("DELEGRAPH_SSH", f"{ssh} -p 2222")
    monkeypatch.setenv("DELEGRAPH_PYTHON", sys.executable)
    monkeypatch.setenv("DEVICE_PLUGINS", "delegraph-portable")
    return home


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return lowered(tmp_path / "m.pte", 1.0)


def lowered(path: Path, factor: float) -> Path:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * factor

    return saved(path, Scaled(), torch.ones(3))


def saved(path: Path, model: nn.Module, x: torch.Tensor) -> Path:
    with use_registry(PluginRegistry.discover()):
        delegraph.lower(model, (x,)).save(path)
    return path


@pytest.fixture
def says(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The output of a command that ends with a code: what it printed, or said of an error."""

    def run(*words: object, code: int = 0) -> str:
        assert main([str(word) for word in words]) == code
        out, err = capsys.readouterr()
        return err if code else out

    return run


def test_a_program_arrives_and_the_one_before_it_is_kept(home: Path, model: Path, says: Callable[..., str]) -> None:
    told = says("push", model, "board:models/")
    assert told.startswith(f"Python {sys.version.split()[0]} on ")
    assert f"board:{home}/models/m.pte is there now" in told
    first = model.read_bytes()
    assert "was there already" in says("push", model, "board:models/")
    assert os.listdir(home / "models") == ["m.pte"]
    (home / "models/m.pte").chmod(0o640)
    lowered(model, 2.0)
    pushed = json.loads(says("push", model, "board:models", "--json"))
    assert pushed["changed"] == pushed["targets"] == [f"{home}/models/m.pte"]
    assert (home / "models/m.pte").read_bytes() == model.read_bytes()
    assert (home / "models/m.pte").stat().st_mode & 0o777 == 0o640
    assert (home / "models/m.pte.previous").read_bytes() == first
    assert "is the one before" in says("push", "--rollback", model, "board:models/")
    assert (home / "models/m.pte").read_bytes() == first
    assert (home / "models/m.pte.previous").read_bytes() == model.read_bytes()
    assert sorted(os.listdir(home / "models")) == ["m.pte", "m.pte.previous"]


def test_external_weights_go_with_it(home: Path, model: Path, tmp_path: Path, says: Callable[..., str]) -> None:
    data = tmp_path / "m.ptd"
    for content in (b"old", b"new"):
        data.write_bytes(content)
        lowered(model, len(content) + content[0])
        says("push", model, "--data", data, "board:models/")
    assert (home / "models/m.ptd").read_bytes() == b"new"
    says("push", "--rollback", model, "--data", data, "board:models/m.pte")
    assert (home / "models/m.ptd").read_bytes() == b"old"


def test_what_was_never_replaced_is_not_brought_back(home: Path, model: Path, says: Callable[..., str]) -> None:
    told = says("push", "--rollback", model, "board:", code=1)
    assert f"there is no {home}/m.pte.previous: nothing was pushed over that file" in told


def test_a_backend_that_is_not_there_is_told_before_anything_is_sent(
    home: Path, pte: str, says: Callable[..., str]
) -> None:
    told = says("push", pte, "board:models/", code=1)
    assert "board cannot take " in told
    assert "the backend Negator is not installed there; its blobs are by acme==1.2" in told
    assert os.listdir(home) == []


def test_the_doctor_there_has_the_last_word(
    home: Path, model: Path, says: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    says("push", model, "board:")
    before = (home / "m.pte").read_bytes()
    lowered(model, 3.0)
    monkeypatch.setenv("DEVICE_PLUGINS", "delegraph-npu")
    told = says("push", model, "board:", code=1)
    assert "board cannot run m.pte, which was not replaced:\n  error: aten::mul.Scalar_out: the program needs" in told
    assert (home / "m.pte").read_bytes() == before and os.listdir(home) == ["m.pte"]
    assert "error: aten::mul.Scalar_out" in says("push", model, "board:", "--anyway")
    assert (home / "m.pte").read_bytes() == model.read_bytes()


def test_what_is_wrong_with_other_plugins_there_is_told_and_nothing_more(
    home: Path, model: Path, says: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = home.parent / "acme_broken-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-broken\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[delegraph.backends]\nAcmeNpu = acme_that_is_not_there:backend\n")
    monkeypatch.setenv("DEVICE_PLUGINS", "delegraph-portable,acme-broken")
    told = says("push", model, "board:")
    assert "error: backends:AcmeNpu of acme-broken 1.0" in told
    assert f"board:{home}/m.pte is there now" in told


def python(home: Path, text: str) -> Path:
    """An interpreter of the device that is a script."""
    script = home.parent / "python"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    return script


def test_a_file_that_does_not_fit_leaves_the_old_one(home: Path, model: Path, says: Callable[..., str]) -> None:
    says("push", model, "board:")
    before = (home / "m.pte").read_bytes()
    saved(model, nn.Linear(300, 300), torch.ones(1, 300))
    small = python(home, f'ulimit -f 64; exec "{sys.executable}" "$@"')
    told = says("push", model, "board:", "--python", small, code=1)
    assert f"{home}/m.pte: File too large; the file that was there is as it was" in told
    assert (home / "m.pte").read_bytes() == before and os.listdir(home) == ["m.pte"]


def test_room_is_looked_at_first(home: Path, model: Path, says: Callable[..., str]) -> None:
    full = "import shutil, runpy, sys; shutil.disk_usage = lambda path: shutil._ntuple_diskusage(9, 9, 0)"
    script = home.parent / "full.py"
    script.write_text(f"{full}\nsys.argv = sys.argv[1:]\nexec(sys.argv[1])\n")
    told = says("push", model, "board:", "--python", python(home, f'exec "{sys.executable}" "{script}" "$@"'), code=1)
    assert "bytes are needed, and 0 are free" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["elsewhere:"], "elsewhere cannot be reached: ssh: Could not resolve hostname elsewhere; try `ssh elsewhere"),
        (["board:", "--python", "~/none/python3"], "board has no ~/none/python3 ("),
        (["board:", "--python", "false"], "board: false ended with code 1"),
        (["board:", "--ssh", "no-such-ssh -v"], "no-such-ssh cannot be run: No such file or directory; install"),
        (["-oProxyCommand=x:"], "'-oProxyCommand=x' is no host; write it as ssh takes it, such as user@board"),
    ],
)
def test_devices_that_do_not_answer(
    home: Path, model: Path, says: Callable[..., str], words: list[str], told: str
) -> None:
    assert told in says("push", *words[1:], "--", model, words[0], code=1)


def test_versions_that_do_not_fit(home: Path, model: Path, says: Callable[..., str]) -> None:
    old = home.parent / "old.py"
    old.write_text(
        "import platform, sys\nfrom importlib import metadata\n"
        "platform.python_version = lambda: '3.9.2'\nmetadata.distributions = lambda: []\n"
        "sys.argv = sys.argv[1:]\nexec(sys.argv[1])\n"
    )
    script = python(home, f'exec "{sys.executable}" "{old}" "$@"')
    told = says("push", model, "board:", "--python", script, code=1)
    assert "its Python is 3.9.2, and Delegraph needs 3.11 or newer; name another one: --python" in told
    assert "its Python has no Delegraph; `delegraph bundle` gathers what to install" in told


def test_a_doctor_that_fails(home: Path, model: Path, says: Callable[..., str]) -> None:
    script = python(home, f'[ "$1" = -c ] || exit 3; export PYTHONHOME=; exec "{sys.executable}" "$@"')
    body = "import sys; sys.executable = '/bin/false'\nsys.argv = sys.argv[1:]\nexec(sys.argv[1])\n"
    (home.parent / "body.py").write_text(body)
    script = python(home, f'exec "{sys.executable}" "{home.parent}/body.py" "$@"')
    assert "board: delegraph doctor fails there: " in says("push", model, "board:", "--python", script, code=1)
    assert os.listdir(home) == []


def test_a_connection_that_ends_early(home: Path, model: Path, says: Callable[..., str]) -> None:
    cutting = home.parent / "cutting"
    cutting.write_text(
        '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\ncd "$HOME" && dd bs=1 count=500 2>/dev/null | sh -c "$3"\n'
    )
    cutting.chmod(0o755)
    told = says("push", model, "board:", "--ssh", cutting, code=1)
    assert "the connection ended " in told and "bytes early" in told
    assert os.listdir(home) == []


def test_a_target_without_a_host(model: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["push", str(model), "models/"])
    assert _parts("me@[fe80::1]:m/") == ("me@fe80::1", "m/")
    assert _parts("board:") == ("board", "")


# ---- run -------------------------------------------------------------------------------------------


def test_a_run_there_is_a_run_here(home: Path, model: Path, tmp_path: Path, says: Callable[..., str]) -> None:
    lowered(model, 2.0)
    np.save(tmp_path / "x.npy", np.array([1, 2, 3], np.float32))
    files = ["--output", tmp_path / "o", "--output-dir", tmp_path / "apart", "--json-file", tmp_path / "t.json"]
    inputs = ["--inputs", tmp_path / "x.npy", "--repeat", "2", "--kernels", "portable"]
    told = json.loads(says("run", "--host", "board", model, *inputs, *files, "--json"))
    assert told["outputs"][0]["first"] == [2, 4, 6]
    assert told["latency_seconds"]["repeat"] == 2
    assert json.loads((tmp_path / "t.json").read_text())["outputs"] == told["outputs"]
    assert np.load(tmp_path / "o.npz")["output_0"].tolist() == [2, 4, 6]
    assert np.load(tmp_path / "apart" / "output_0.npy").tolist() == [2, 4, 6]
    packed = ["--inputs", tmp_path / "o.npz", "--check"]
    assert "output 0: float32[3]  4, 8, 12" in says("run", "--host", "board", model, *packed)


def test_a_failure_there_names_the_file_here(home: Path, model: Path, says: Callable[..., str]) -> None:
    model.write_bytes(b"nothing")
    told = says("run", "--host", "board", model, code=1)
    assert told.startswith(f"delegraph run: {model}: ")


def test_folders_on_devices_are_removed(home: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(home))
    assert main(["run", "--host", "board", str(model), "--repeat", "1"]) == 0
    assert os.listdir(home) == []


def test_a_run_ends_with_its_connection(home: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(home))
    repeat = 10**9 + os.getpid()
    words = ["run", "--host", "board", str(model), "--repeat", str(repeat)]
    with subprocess.Popen([sys.executable, "-m", "delegraph", *words], stderr=subprocess.PIPE, text=True) as here:
        try:
            until(lambda: here.poll() is not None or f"--repeat={repeat}" in processes())
        finally:
            here.send_signal(signal.SIGINT)
        assert here.communicate()[1] == "delegraph run: stopped\n"
        assert here.returncode == 130
    until(lambda: f"--repeat={repeat}" not in processes())
    assert os.listdir(home) == []


def processes() -> str:
    every, whole_lines = "-e", "-ww"  # where standard input is a terminal, `ps` cuts lines at its width
    return subprocess.run(["ps", every, whole_lines, "-o", "args"], capture_output=True, text=True, check=True).stdout


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_python_without_delegraph_is_told(home: Path, model: Path, says: Callable[..., str]) -> None:
    script = python(home, f'exec "{sys.executable}" -S "$@"')
    told = says("run", "--host", "board", model, "--python", script, code=1)
    assert "there has no Delegraph; name another one: --python, or DELEGRAPH_PYTHON" in told


def test_a_python_that_speaks_is_no_answer(home: Path, model: Path, says: Callable[..., str]) -> None:
    script = python(home, "echo hello; exit 0")
    assert f"board: {script} ended with code 0" in says("run", "--host", "board", model, "--python", script, code=1)
