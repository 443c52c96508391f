"""Commands in a real terminal of 80 columns: no line is longer, and no word is broken that a pipe gets whole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pty = pytest.importorskip("pty", reason="Windows has no pseudo-terminals")
pytest.importorskip("rich")

pytestmark = pytest.mark.models

WIDTH = 80
MODEL = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.projection, self.normalization = nn.Linear(32, 32), nn.LayerNorm(32)

    def forward(self, x):
        return torch.special.gammaln(self.normalization(self.projection(x)).abs() + 1)


def model():
    return nn.Sequential(Attention(), Attention(), nn.Linear(32, 8)).eval(), (torch.randn(2, 32),)
"""
COMMANDS = """
from pathlib import Path

import delegraph, model, torch
from delegraph.cli import main
from delegraph.devtools import profile

lowered = [delegraph.lower(*model.model(), backends=backends) for backends in (["cpu"], [])]
for name, each in zip(("a.pte", "b.pte"), lowered):
    each.report.print()
    each.save(name)
profiled = profile("a.pte", [torch.zeros(2, 32).numpy()], seconds=0.2)
Path("profile.txt").write_text(str(profiled))  # what is said of a measurement is another in each run
profiled.print()
for command in (
    "inspect a.pte",
    "inspect b.pte --memory",
    "inspect a.pte --nodes",
    "diff a.pte b.pte",
    "doctor",
    "plugins list",
):
    print("$", command)
    main(command.split())
"""


def shown(folder: Path, terminal: bool) -> str:
    """What the commands print into a terminal, or into a pipe."""
    command = [sys.executable, "commands.py"]
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    environment |= {"TERM": "xterm", "NO_COLOR": "1"}
    if not terminal:
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        read = bytearray()
        try:
            while some := os.read(ours, 65536):
                read += some
        except OSError:  # Linux's way to say that the other side is closed
            pass
        finally:
            os.close(ours)
    assert process.returncode == 0, read.decode()
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", read.decode()).replace("\r\n", "\n")


@pytest.mark.docs
def test_whole_words_in_80_columns(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL, "utf-8")
    (tmp_path / "commands.py").write_text(COMMANDS, "utf-8")
    whole, fitted = shown(tmp_path, terminal=False), shown(tmp_path, terminal=True)
    assert [line for line in fitted.splitlines() if len(line) > WIDTH] == []
    whole += (tmp_path / "profile.txt").read_text()
    words = r"(?<![^\W_])[^\W\d_]+(?![^\W_])"  # hashes and times are another in each process
    assert set(re.findall(words, fitted)) - set(re.findall(words, whole)) == set()
    assert "aten_lgamma_" in fitted and "$ plugins list" in fitted
