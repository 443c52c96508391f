"""`compare` and `delegraph compare`: a model by several backends and recipes, how fast and how exact each is."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import delegraph
from delegraph.aot import Recipe
from delegraph.aot.quantize.measurement.measure import sqnr
from delegraph.aot.quantize.recipes import Rules
from delegraph.cli import main
from delegraph.comparison.result import Compared, Comparison
from delegraph.comparison.timing import Times
from delegraph.errors import LoweringError, PluginError

pytestmark = pytest.mark.models

QUICK: Any = {"rounds": 2, "seconds": 0.01}
SHORT = ("--rounds", "2", "--seconds", "0.01")
MODEL = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).eval()
    return model, (torch.randn(4, 64),)

def batches(): return [(torch.randn(4, 64),) for _ in range(3)]
"""


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).eval()


def by_name(comparison: Comparison) -> dict[str, Compared]:
    return {one.name: one for one in comparison.candidates}


def test_backends_and_recipes() -> None:
    """Each pair is a program of its own, measured; the order is that of time, and what is exact is said."""
    torch.manual_seed(0)
    data, model = [(torch.randn(4, 64),) for _ in range(3)], net()
    compared = delegraph.compare(
        model, backends=["cpu", []], recipes=["float", "int8_weight_only"], calibration_data=data, **QUICK
    )
    found = by_name(compared)
    assert set(found) == {
        f"{on}, {recipe}" for on in ("cpu", "kernels alone") for recipe in ("float", "int8_weight_only")
    }
    assert [one.seconds for one in compared.candidates] == sorted(one.seconds for one in found.values())
    exact, rounded = found["cpu, float"], found["cpu, int8_weight_only"]
    assert exact.sqnr is not None and rounded.sqnr is not None
    assert exact.sqnr > 100 > 60 > rounded.sqnr > 30
    assert rounded.nbytes < exact.nbytes / 2
    assert exact.left_nodes == 0 < found["kernels alone, float"].left_nodes
    assert all(len(one.times["forward"].turns) == 2 for one in found.values() if one.times)
    assert compared.fastest(100).recipe == "float"
    assert compared.fastest() is compared.candidates[0]
    assert "1.00x" in str(compared) and "<table>" in compared._repr_html_()


def test_weights_alone_are_quantized_once_for_all_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are once for each, since every backend has a quantizer of its own."""
    asked: list[str] = []

    def counted(*args: Any, recipe: Rules, **settings: Any) -> Any:
        asked.append(recipe.default.name)
        return delegraph.quantize(*args, recipe=recipe, **settings)

    monkeypatch.setattr("delegraph.comparison.candidates.quantize", counted)
    recipes = ["float", "int8_weight_only", "int8_dynamic"]
    made = delegraph.compare(net(), (torch.randn(4, 64),), backends=["cpu", []], recipes=recipes, **QUICK).candidates
    assert len(made) == 6 and not [one.problem for one in made if one.problem]
    assert sorted(asked) == ["int8_dynamic", "int8_dynamic", "int8_weight_only"]


def test_two_recipes_of_one_name_are_two() -> None:
    recipes = [Recipe("mine", weight_bits=bits) for bits in (8, 4)]
    compared = delegraph.compare(net(), (torch.ones(4, 64),), backends=["cpu"], recipes=recipes, **QUICK)
    found = by_name(compared)
    eight, four = (found[f"cpu, mine{{weight_bits={bits}}}"] for bits in (8, 4))
    assert four.nbytes < 0.8 * eight.nbytes


def test_the_exactness_is_that_of_the_program_in_its_file() -> None:
    model, x = net(), torch.randn(4, 64)
    recipe: Any = {"2": "float", "default": "int8_weight_only"}
    (one,) = delegraph.compare(model, (x,), backends=["cpu"], recipes=[recipe], **QUICK).candidates
    assert one.lowered is not None and one.recipe == "2: float, default: int8_weight_only"
    result = delegraph.load(bytes(one.lowered))(x)
    assert one.sqnr == pytest.approx(sqnr((model(x).detach(), result)), abs=0.1)


def test_one_that_cannot_be_lowered_or_run_holds_nobody_up() -> None:
    compared = delegraph.compare(
        net(),
        (torch.ones(4, 64),),
        backends=["nobody", "cpu", ""],
        backend_options={"cpu": {"num_threads": -1}},
        **QUICK,
    )
    found = by_name(compared)
    assert "'nobody'" in found["nobody, float"].problem
    assert "CpuBackend's option num_threads must be 0 to 1024" in found["cpu, float"].problem
    assert compared.fastest() is found["kernels alone, float"]
    assert [bool(one.times) for one in compared.candidates] == [True, False, False]
    assert "cpu, float: method 'forward', delegate 0 (CpuBackend): CpuBackend's option" in str(compared)


@pytest.fixture
def in_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets processes begin with some code, as that of a plug-in that they load."""

    def begin_with(code: str) -> None:
        (tmp_path / "sitecustomize.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return begin_with


def test_what_a_plug_in_prints_is_no_result(in_every_process: Callable[[str], None]) -> None:
    in_every_process("import atexit; print('{\"a\": 1}', flush=True); atexit.register(print, 'bye', flush=True)")
    (one,) = delegraph.compare(net(), (torch.ones(4, 64),), backends=["cpu"], **QUICK).candidates
    assert one.problem == "" and one.times is not None


def test_one_that_hangs_or_ends_by_itself_holds_nobody_up(in_every_process: Callable[[str], None]) -> None:
    in_every_process(
        "import os, sys, time\n"
        "candidate = sys.argv[2].split(os.sep)[-2]\n"
        "if candidate == '0': time.sleep(600)\n"
        "if candidate == '1': os._exit(0)\n"
    )
    compared = delegraph.compare(
        net(),
        (torch.ones(4, 64),),
        backends=["cpu", "npu,cpu", ""],
        timeout=15,
        **QUICK,
    )
    problems = {one.problem for one in compared.candidates}
    assert problems == {"", "its process took more than 15 s and was ended", "ended with exit code 0"}


def test_options_go_to_whose_they_are() -> None:
    """`num_threads` is the CPU backend's, which kernels alone would refuse."""
    options = {"cpu": {"num_threads": 1, "optimization_level": "basic"}}
    compared = delegraph.compare(net(), (torch.ones(4, 64),), backends=["cpu", ""], backend_options=options, **QUICK)
    assert [one.problem for one in compared.candidates] == ["", ""]


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count: torch.Tensor
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor, *, step: int = 1) -> torch.Tensor:
        self.count.add_(step)
        return x + self.count


def test_several_methods_states_and_bfloat16() -> None:
    """Each method has a time of its own; a state begins anew for the program and for torch, and stays the model's."""
    counter, narrow = Counter(), nn.Linear(4, 4).to(torch.bfloat16).eval()
    models, args = (
        {"count": counter, "narrow": narrow},
        {"count": (torch.ones(4),), "narrow": (torch.ones(2, 4).bfloat16(),)},
    )
    said: list[str] = []
    (one,) = delegraph.compare(
        models, args, {"count": {"step": 2}}, backends=["cpu"], progress=said.append, **QUICK
    ).candidates
    assert one.problem == "" and one.times is not None
    assert list(one.times) == ["count", "narrow"]
    assert one.sqnr is not None and one.sqnr > 40
    assert counter.count.tolist() == [0, 0, 0, 0]
    assert said[:2] == ["exporting count, narrow", "lowering cpu, float"]
    assert said[-1] == "measuring, round 2 of 2"


def test_a_program_is_run_on_what_it_was_exported_with() -> None:
    program = torch.export.export(net(), (torch.ones(4, 64),))
    (one,) = delegraph.compare(program, backends=["cpu"], **QUICK).candidates
    assert one.sqnr is not None and one.sqnr > 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backends": "cpu"}, "backends is a list of candidates"),
        ({"backends": []}, "backends is a list of candidates"),
        ({"backends": [{"cpu": {}}]}, "a candidate is <dict>, but it takes a list"),
        ({"backends": ["cpu"], "recipes": []}, "recipes one of recipes"),
        ({"backends": ["cpu"], "rounds": 0}, "rounds is 0"),
        ({"backends": ["cpu", ""], "backend_options": {"cqu": {}}}, "no candidate has such .* cpu; did you mean 'cpu'"),
        ({"backends": ["cpu"], "seconds": 0}, "seconds 0 and timeout 600.0; all are positive numbers"),
        ({"backends": ["cpu"], "timeout": math.inf}, "timeout inf; all are positive numbers"),
    ],
)
def test_what_cannot_be_compared(arguments: Any, message: str) -> None:
    with pytest.raises(LoweringError, match=message):
        delegraph.compare(net(), (torch.ones(4, 64),), **arguments)


def test_a_list_of_batches_for_several_methods_is_refused() -> None:
    models, x = {"a": net(), "b": net()}, (torch.randn(4, 64),)
    with pytest.raises(LoweringError, match=r"there are several methods \(a, b\): write \{method"):
        delegraph.compare(models, {"a": x, "b": x}, backends=["cpu"], recipes=["int8"], calibration_data=[x])


def test_backends_that_are_written_wrongly_end_it() -> None:
    with pytest.raises(PluginError, match="character 5"):
        delegraph.compare(net(), (torch.ones(4, 64),), backends=["cpu{"], **QUICK)


# ---- what is said of it --------------------------------------------------------------------------------------------


def measured(name: str, *turns: float, sqnr: float | None = None) -> Compared:
    times = {"forward": Times(turns, 0.1, 0.2, None)}
    return Compared(name, "float", lowered=None, times=times, sqnr=sqnr, nbytes=1000)


def test_near_ties_are_called_so() -> None:
    """Rounds of 0.9 to 1.1 say nothing about 5 per cent, and those of 0.99 to 1.01 do."""
    wide = Comparison([measured("a", 0.9, 1.0, 1.1), measured("b", 1.05, 1.05, 1.05)])
    narrow = Comparison([measured("a", 0.99, 1.0, 1.01), measured("b", 1.05, 1.05, 1.05)])
    assert "a, float and b, float differ by no more than their own rounds do." in str(wide)
    assert "differ" not in str(narrow)


def test_the_fastest_that_is_near_enough() -> None:
    candidates = [measured("a", 1.0, sqnr=20.0), measured("b", 2.0, sqnr=math.inf), measured("c", 3.0)]
    comparison = Comparison([*candidates, Compared("d", "int8", problem="could not")])
    assert [comparison.fastest(db).backends for db in (None, 20, 20.1)] == ["a", "a", "b"]
    with pytest.raises(
        LoweringError, match=r"what the model does to within 30 dB\n  a, float: 20.0 dB\n  d, int8: could"
    ):
        Comparison([candidates[0], comparison.candidates[-1]]).fastest(30)
    assert json.loads(json.dumps(comparison.to_json(), allow_nan=False))["candidates"][1]["sqnr"] == "inf"


# ---- the command line ----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def compare(*words: str) -> int:
    return main(["compare", "model.py:net", *SHORT, *words])


@pytest.mark.usefixtures("folder")
def test_a_table_and_the_fastest_ones_file(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--backends", "cpu{opset=21}", "--backends", "", "--recipe", "int8", "--data", "model.py:batches")
    assert compare(*words, "-o", "best.pte") == 0
    out, err = capsys.readouterr()
    assert "cpu{opset=21}, int8" in out  # an option that it does not have is that candidate's problem
    assert "measuring, round 2 of 2" in err
    assert "best.pte: kernels alone, int8;" in out
    assert delegraph.load("best.pte")(np.zeros((4, 64), np.float32)).shape == (4, 8)


@pytest.mark.usefixtures("folder")
def test_json_and_none_that_is_near_enough(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--backends", "cpu", "--recipe", "int4_weight_only", "--backend-options", "cpu{num_threads=1}", "--json")
    assert compare(*words, "--timeout", "60", "--min-sqnr", "60", "-o", "best.pte") == 1
    out, err = capsys.readouterr()
    (one,) = json.loads(out)["candidates"]
    assert (one["backends"], one["recipe"], one["problem"]) == ("cpu", "int4_weight_only", "")
    assert 0 < one["methods"]["forward"]["seconds"] < 1
    assert 10 < one["sqnr"] < 60
    assert "to within 60 dB\n  cpu, int4_weight_only: " in err
    assert not Path("best.pte").exists()


@pytest.mark.usefixtures("folder")
def test_where_none_can_be_run_each_says_why_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("--backends", "cup", "--backends", "npu{x=1}") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "no candidate could be lowered and run\n  cup, float: " in err
    assert err.count("did you mean 'cpu'") == err.count("has no option 'x'") == 1
    assert "measuring" not in err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--backends", "cpu", "--rounds", "0"),
        ("--backends", "cpu", "--seconds", "-1"),
        ("--backends", "cpu", "--seconds", "nan"),
        ("--backends", "cpu", "--min-sqnr", "nan"),
        ("--backends", "cpu", "--timeout", "0"),
    ],
)
def test_wrong_usage(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        compare(*words)
    assert caught.value.code == 2
