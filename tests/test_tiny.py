"""The whole product in under five seconds: lower, save, load and run where torch cannot be imported, compare."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import delegraph

ROOT = Path(__file__).parents[1]

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))

    def forward(self, x, *, scale):
        return {"logits": self.layers(x) * scale, "norm": x.norm(dim=-1)}

def make():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(3, 8),), {"scale": torch.rand(4)}
"""

RUN = """
import sys
import numpy as np
import delegraph

given = np.load("inputs.npz")
result = delegraph.load("model.pte")(given["x"], scale=given["scale"])
np.savez("outputs.npz", **result)
assert "torch" not in sys.modules
"""


@pytest.mark.parametrize("backends", [[], ["cpu"]])
def test_lower_save_load_run_compare(backends: list[str], tmp_path: Path) -> None:
    names: dict[str, object] = {}
    exec(MODEL, names)
    model, args, kwargs = names["make"]()  # type: ignore[operator]
    lowered = delegraph.lower(model, args, kwargs, backends=backends)
    assert bool(lowered.report.methods["forward"].delegates) == bool(backends)
    lowered.save(tmp_path / "model.pte")

    np.savez(tmp_path / "inputs.npz", x=args[0].numpy(), scale=kwargs["scale"].numpy())
    (tmp_path / "run.py").write_text(RUN)
    without_torch("run.py", folder=tmp_path)
    got = np.load(tmp_path / "outputs.npz")
    with torch.no_grad():
        wanted = model(*args, **kwargs)
    assert set(got) == set(wanted) == {"logits", "norm"}
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value.numpy(), rtol=1e-5, atol=1e-6)


def test_the_same_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from delegraph.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("tiny_model.py").write_text(MODEL)
    assert main(["lower", "tiny_model.py:make", "--backends", "cpu", "-o", "model.pte"]) == 0
    model, (x,), kwargs = sys.modules.pop("tiny_model").make()
    np.savez("inputs.npz", x=x.numpy(), scale=kwargs["scale"].numpy())
    command = ROOT / "core" / "delegraph" / "__main__.py"
    words = ["run", "model.pte", "--inputs", "inputs.npz", "--output", "outputs.npz", "--json"]
    without_torch(command, *words, folder=tmp_path)
    with torch.no_grad():
        wanted = model(x, **kwargs).values()
    for got, value in zip(np.load("outputs.npz").values(), wanted, strict=True):
        np.testing.assert_allclose(got, value.numpy(), rtol=1e-5, atol=1e-6)


def without_torch(script: str | Path, *words: str, folder: Path) -> None:
    command: list[str | Path] = [sys.executable, ROOT / "examples" / "without_torch.py", script, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
