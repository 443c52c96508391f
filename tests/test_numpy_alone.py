"""On a device NumPy is enough: what pip brings there, and programs that run where nothing else is."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tools.distributions import ROOT
from torch import nn

import delegraph

RUN = """
import sys
for name in ("pluggy", "importlib_metadata", "ml_dtypes", "rich", "torch", "packaging", "scipy"):
    sys.modules[name] = None  # as where it is not installed
import numpy as np
import delegraph
for file in sys.argv[1:]:
    saved = np.load(file + ".npz")
    np.testing.assert_allclose(delegraph.load(file)(saved["x"]), saved["y"], rtol=1e-4, atol=1e-5)
"""


def run(*files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def saved(model: Any, x: torch.Tensor, file: Path, backends: list[str]) -> Path:
    program = delegraph.lower(model, (x,), backends=backends)
    program.save(file)
    np.savez(f"{file}.npz", x=x.numpy(), y=delegraph.load(file)(x.numpy()))
    return file


@pytest.mark.parametrize(
    ("folder", "brought"),
    [
        (".", ["numpy"]),
        ("plugins/portable", ["delegraph", "numpy"]),
        ("backends/cpu", ["delegraph", "numpy", "onnxruntime"]),
    ],
)
def test_pip_brings_numpy_alone(folder: str, brought: list[str]) -> None:
    lines = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    assert sorted(line.partition(">")[0] for line in lines) == brought
    assert all("<" in line for line in lines), "each is bounded"


def test_floats_and_integers_run_where_numpy_is_alone(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5)).eval()
    x = torch.randn(1, 3, 8, 8)
    quantized = delegraph.quantize(net, [(x,)], backends=["npu"])
    files = [
        saved(net, x, tmp_path / "kernels.pte", []),
        saved(net, x, tmp_path / "cpu.pte", ["cpu"]),
        saved(quantized, x, tmp_path / "integers.pte", []),
    ]
    done = run(*files)
    assert done.returncode == 0, done.stderr


def test_a_program_that_needs_more_says_what(tmp_path: Path) -> None:
    program = delegraph.lower(nn.Linear(4, 4).to(torch.bfloat16), (torch.ones(1, 4, dtype=torch.bfloat16),))
    program.save(tmp_path / "halves.pte")
    np.savez(tmp_path / "halves.pte.npz", x=np.ones((1, 4)), y=0)
    done = run(tmp_path / "halves.pte")
    last = done.stderr.strip().splitlines()[-1]
    assert "NotSupported" in done.stderr, done.stderr
    assert "needs the package 'ml_dtypes', which is not installed here; pip install ml_dtypes" in last


def test_tools_need_pluggy_and_say_so(tmp_path: Path) -> None:
    file = saved(nn.ReLU(), torch.randn(3), tmp_path / "relu.pte", [])
    tool = tmp_path / "site" / "acme_tool-1.0.dist-info"
    tool.mkdir(parents=True)
    tool.joinpath("METADATA").write_text("Name: acme-tool\nVersion: 1.0\n")
    tool.joinpath("entry_points.txt").write_text("[delegraph.plugins]\nacme = acme_tool:Tool\n")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({str(tool.parent)!r})\n{RUN}", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = "PluginWarning: going on without the tools acme: pluggy is not installed: pip install 'delegraph[tools]'"
    assert done.stderr.count(told) == 1
