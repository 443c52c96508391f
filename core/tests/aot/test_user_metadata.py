"""`lower(…, metadata=…)`: in the file, in `MethodMeta`, in `inspect` and `diff`; and no run or weight depends on it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import delegraph
from delegraph.aot import ExecutorchBackendConfig
from delegraph.cli import main
from delegraph.errors import InvalidProgram, LoweringError

X = torch.ones(2, 3)
SAID = {"author": "Ada", "labels": ["cat", "dog"], "top1": 71.9}
READ = {**SAID, "labels": ("cat", "dog")}

DEVICE = """
import sys
sys.modules["torch"] = None
import delegraph, numpy
run = delegraph.load("m.pte")
assert run(numpy.ones((2, 3), numpy.float32)).tolist() == [[2] * 3] * 2
print(run.metadata.user_metadata()["labels"], run.program.user_metadata["author"])
"""


class Twice(torch.nn.Module):
    """A model whose results nothing of this changes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.fixture
def pte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    delegraph.lower(Twice(), (X,), metadata=SAID).save("m.pte")
    return "m.pte"


def test_a_device_reads_it_without_torch(pte: str) -> None:
    done = subprocess.run([sys.executable, "-c", DEVICE], capture_output=True, text=True, check=True)
    assert done.stdout == "('cat', 'dog') Ada\n"


def test_it_belongs_to_the_configuration_too() -> None:
    edge = delegraph.to_edge(torch.export.export(Twice(), (X,)))
    bytes_of = lambda **said: edge.to_executorch(ExecutorchBackendConfig(**said)).buffer  # noqa: E731
    assert delegraph.load(bytes_of(metadata=SAID)).metadata.user_metadata() == READ
    assert delegraph.load(bytes_of()).metadata.user_metadata() == {}


def test_what_no_program_takes_is_refused_before_anything_is_exported() -> None:
    class Unexportable(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise AssertionError("was exported")

    with pytest.raises(LoweringError, match=r"metadata\['labels'\] is or has a dict; a value is a text"):
        delegraph.lower(Unexportable(), (X,), metadata={"labels": {0: "cat"}})  # type: ignore[dict-item]


def test_damage_is_found(pte: str) -> None:
    content = Path(pte).read_bytes()
    damaged = content.replace(b'"author":"Ada"', b'"author":"Eve"')
    with pytest.raises(InvalidProgram, match="damaged"):
        delegraph.load(damaged)


def test_weights_beside_the_program_fit_whatever_is_said(tmp_path: Path) -> None:
    config, model = ExecutorchBackendConfig(external_constants=True), torch.nn.Linear(3, 2).eval()
    delegraph.lower(model, (X,), config=config).save(tmp_path / "a.pte")
    other = delegraph.lower(model, (X,), config=config, metadata=SAID)
    (data,) = tmp_path.glob("*.ptd")
    assert delegraph.load(bytes(other), data_path=data)(X).shape == (2, 2)


def test_inspect_shows_it(pte: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", pte]) == 0
    out = capsys.readouterr().out
    assert "what the author says" in out and "cat, dog" in out
    assert main(["inspect", pte, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metadata"] == SAID


def test_diff_tells_what_else_is_said(pte: str, capsys: pytest.CaptureFixture[str]) -> None:
    delegraph.lower(Twice(), (X,), metadata={"author": "Eve", "labels": ["cat", "dog"]}).save("n.pte")
    assert main(["diff", pte, "n.pte", "--json"]) == 1
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert [tuple(change.values()) for change in changes] == [
        ("metadata", "author", "Ada", "Eve", ""),
        ("metadata", "top1", "71.9", "", ""),
    ]
