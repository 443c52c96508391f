"""What Delegraph logs, under which names; and that it costs no import, and says nothing unasked."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import delegraph
from delegraph.logs import write_to_stderr

X = torch.ones(2, 3)


class Twice(torch.nn.Module):
    """A model that kernels run."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.fixture(scope="module")
def pte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "m.pte"
    delegraph.lower(Twice(), (X,)).save(path)
    return path


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    return [(record.name, record.levelname, record.getMessage()) for record in caplog.records]


def test_lowering_and_loading_tell_what_they_did(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.INFO, "delegraph")
    lowered = delegraph.lower(Twice(), (X,))
    lowered.save(tmp_path / "m.pte")
    delegraph.load(tmp_path / "m.pte")
    names = [name for name, _, _ in said(caplog)]
    assert names == [
        *("delegraph.aot.lower", "delegraph.aot.emission.manager"),
        *("delegraph.runtime.program", "delegraph.runtime.loading"),
    ]
    messages = [message for _, _, message in said(caplog)]
    assert repr(lowered.report) in messages[0]
    assert messages[1] == f"wrote {tmp_path / 'm.pte'}"
    assert messages[2] == f"opened {tmp_path / 'm.pte'}: {(tmp_path / 'm.pte').stat().st_size} bytes"
    assert messages[3].startswith("loaded method forward in ") and messages[3].endswith(", 0 delegates, 1 kernels")
    assert {Path(record.pathname).name for record in caplog.records} == {
        *("lower.py", "manager.py", "program.py", "loading.py"),
    }, "who logs is the caller"


def test_details_are_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "delegraph.aot")
    delegraph.lower(Twice(), (X,))
    stages = [message for name, _, message in said(caplog) if name == "delegraph.aot.pipeline"]
    assert stages[0].startswith("stage settings of forward: ") and stages[-1].startswith("stage assemble of forward: ")


def test_a_run_logs_nothing(caplog: pytest.LogCaptureFixture, pte: Path) -> None:
    run = delegraph.load(pte)
    caplog.set_level(logging.DEBUG, "delegraph")
    run(X)
    assert said(caplog) == []


LOAD = "import sys, delegraph; delegraph.load(sys.argv[1]); print('logging' in sys.modules)"
OWN = "import logging, sys, delegraph; logging.basicConfig(format='mine: %(name)s'); delegraph.load(sys.argv[1])"


def run(code: str, pte: Path, levels: str = "") -> Any:
    environ = {**os.environ, "DELEGRAPH_LOG": levels}
    return subprocess.run([sys.executable, "-c", code, pte], capture_output=True, text=True, check=True, env=environ)


def test_loading_imports_no_logging_unless_it_is_asked_for(pte: Path) -> None:
    done = run(LOAD, pte)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_the_variable_writes_to_standard_error(pte: Path) -> None:
    done = run(LOAD, pte, "delegraph=error,delegraph.runtime=info")
    assert done.stdout == "True\n"
    assert [line.split()[2:4] for line in done.stderr.splitlines()] == [
        ["INFO", "delegraph.runtime.program:"],
        ["INFO", "delegraph.runtime.loading:"],
    ]
    assert " DEBUG delegraph.plugins.loader: loaded plug-in kernels:" in run(LOAD, pte, "debug").stderr


def test_handlers_of_the_program_get_it_instead(pte: Path) -> None:
    assert run(OWN, pte, "INFO").stderr == "mine: delegraph.runtime.program\nmine: delegraph.runtime.loading\n"


def test_what_is_no_level_is_left_out_with_a_warning(pte: Path) -> None:
    with pytest.warns(
        RuntimeWarning, match=r"DELEGRAPH_LOG has 'loud', which is left out: write a level \(debug, info"
    ):
        write_to_stderr("loud, ")
    done = run(LOAD, pte, "delegraph=verbose")
    assert "DELEGRAPH_LOG has 'delegraph=verbose'" in done.stderr and done.stdout == "True\n"


def test_the_version_is_the_distribution_s() -> None:
    from importlib.metadata import version

    assert delegraph.__version__ == version("delegraph")
    packed = (
        "import importlib.metadata as m\ndef version(name): raise m.PackageNotFoundError(name)\nm.version = version\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{packed}import delegraph; print(delegraph.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "0+unknown\n"
