"""`delegraph quantize`: models and data as files and functions, what is written and said, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import delegraph
from delegraph.cli import main

MODEL = """
import torch
from torch import nn
from torch.export import Dim

def net():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).eval()
    return model, (torch.zeros(4, 16),), None, ({0: Dim("n", max=8)},)

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 4)

    def forward(self, x, factor):
        return self.linear(x) * factor

class Named(nn.Module):
    def forward(self, named):
        return named["a"] + 1

def scaled(): return Scaled().eval(), (torch.zeros(4, 16), torch.tensor(1.0))
def by_number(): return Scaled().eval(), (torch.zeros(4, 16), 2.0)
def named(): return Named(), ({"a": torch.zeros(4, 16)},)
def batches(): return [(torch.randn(4, 16),) for _ in range(3)]
def methods(): return {"one": net(), "two": (nn.Linear(4, 4), (torch.zeros(2, 4),))}
def of_methods(): return {"one": batches(), "two": [(torch.randn(2, 4),)]}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "model.py").write_text(MODEL)
    np.savez("calib.npz", np.random.default_rng(0).standard_normal((10, 16), dtype=np.float32))
    return tmp_path


def quantize(*words: str) -> int:
    return main(["quantize", *words])


def test_from_a_function_to_a_file_and_on_to_another(capsys: pytest.CaptureFixture[str]) -> None:
    assert quantize("model.py:net", "--data", "calib.npz", "-o", "q.pt2", "--report", "r.svg") == 0
    out, err = capsys.readouterr()
    assert "aten::linear" in out
    assert "in the end" in out
    assert "quantize of forward" in err
    assert Path("r.svg").read_text().startswith("<svg")
    assert "quantize_per_tensor" in str(torch.export.load("q.pt2").graph)
    assert main(["lower", "q.pt2", "-o", "q.pte"]) == 0
    assert delegraph.load("q.pte")(np.zeros((3, 16), np.float32)).shape == (3, 4)


def test_json_and_a_program_that_is_lowered_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--rule",
        "2=int8_weight_only",
        "--recipe",
        "int8{observer=minmax}",
        "--keep-float",
        "1",
        "--json",
        "--report",
        "r.json",
    )
    assert quantize("model.py:net", "--data", "model.py:batches", "-o", "q.pte", *words) == 0
    said = json.loads(capsys.readouterr().out)
    assert json.loads(Path("r.json").read_text()) == said
    assert said["nbytes"] == Path("q.pte").stat().st_size
    assert set(said["seconds"]) == {"export", "quantize"}
    method = said["methods"]["forward"]
    assert len(method["layers"]) == len(method["kept_float"]) == len(method["kept_layers"]) == 1
    assert delegraph.load("q.pte")(np.zeros((1, 16), np.float32)).shape == (1, 4)


def test_an_exported_program_and_several_methods() -> None:
    torch.export.save(torch.export.export(nn.Linear(16, 4), (torch.zeros(4, 16),)), "m.pt2")
    assert quantize("m.pt2", "--data", "calib.npz", "-o", "q.pt2") == 0
    assert quantize("m.pt2", "--recipe", "int8_weight_only", "-o", "q.pt2") == 0  # no data
    assert quantize("model.py:methods", "--data", "model.py:of_methods", "-o", "q.pte") == 0
    assert delegraph.load("q.pte", method="two")(np.zeros((2, 4), np.float32)).shape == (2, 4)


def test_arrays_of_another_order_of_bytes_and_single_numbers() -> None:
    x = np.random.default_rng(0).standard_normal((10, 16)).astype(">f4")
    np.savez("big.npz", x)
    assert quantize("model.py:net", "--data", "big.npz", "-o", "q.pt2") == 0
    np.savez("scaled.npz", factor=np.float32(3), x=x)
    assert quantize("model.py:scaled", "--data", "scaled.npz", "-o", "q.pt2") == 0
    assert delegraph.load(bytes(delegraph.lower(torch.export.load("q.pt2"))))(x[:4].astype("f4"), np.float32(3)).any()
    np.savez("number.npz", x=x, factor=2.0)
    assert quantize("model.py:by_number", "--data", "number.npz", "-o", "q.pt2") == 0


WRONG = {
    "write m.pt2, or m.pte": ("model.py:net", "-o", "m.onnx"),
    "--report r.png: write r.svg": ("model.py:net", "-o", "m.pt2", "--report", "r.png"),
    "write PATTERN=RECIPE": ("model.py:net", "-o", "m.pt2", "--rule", "float"),
    "there is no file no.pt2": ("no.pt2", "-o", "m.pt2"),
    "--data: no.npz: No such file": ("model.py:net", "-o", "m.pt2", "--data", "no.npz"),
    "--data: bad.npz is neither .npy nor .npz": ("model.py:net", "-o", "m.pt2", "--data", "bad.npz"),
    "the model takes input, the file has a, b": ("model.py:net", "-o", "m.pt2", "--data", "two.npz"),
    "calib.npz: named is a dict, which a .npz does not hold": ("model.py:named", "-o", "m.pt2", "--data", "calib.npz"),
    "one.npz: input has 0 dims, the model's example has 2": ("model.py:net", "-o", "m.pt2", "--data", "one.npz"),
    "words.npz: input is of NumPy's <U4": ("model.py:net", "-o", "m.pt2", "--data", "words.npz"),
    "argument --min-sqnr: nan is not a number of dB": ("model.py:net", "-o", "m.pt2", "--min-sqnr", "nan"),
    "fewer samples than the 4": ("model.py:net", "-o", "m.pt2", "--data", "few.npz"),
    "--data: cut.npz is neither .npy nor .npz": ("model.py:net", "-o", "m.pt2", "--data", "cut.npz"),
    "m.pt2: a .pt2 has one program, and there are one, two: write m.pte": ("model.py:methods", "-o", "m.pt2"),
    "argument --keep-float: few is not a number from 0 on": ("model.py:net", "-o", "m.pt2", "--keep-float", "few"),
    "there are several methods": ("model.py:methods", "-o", "m.pte", "--data", "calib.npz"),
}


@pytest.mark.parametrize(("message", "words"), WRONG.items())
def test_what_is_refused(message: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.npz").write_bytes(b"no archive")
    Path("cut.npz").write_bytes(b"PK\3\4, and no more of it")
    np.savez("two.npz", a=np.zeros((4, 16)), b=np.zeros(4))
    np.savez("one.npz", np.float32(1))
    np.savez("words.npz", np.full((4, 16), "word"))
    np.savez("few.npz", np.zeros((3, 16), np.float32))
    with pytest.raises(SystemExit) as exit_code:
        quantize(*words)
    assert exit_code.value.code == 2
    assert message in capsys.readouterr().err


def test_a_folder_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert quantize("model.py:net", "--recipe", "int8_weight_only", "-o", "no/q.pt2") == 1
    assert "there is no such folder to save 'q.pt2' in" in capsys.readouterr().err


def test_a_file_that_is_not_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.pt2").write_bytes(b"no archive")
    assert quantize("bad.pt2", "-o", "m.pt2") == 1
    assert "bad.pt2 is not what torch.export.save writes" in capsys.readouterr().err
