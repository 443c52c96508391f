"""`delegraph lower`: what factories may give, options, reports, and what is refused."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from delegraph.cli import main
from delegraph.interfaces import Partitioner
from delegraph.plugins.registry import PluginRegistry, default_registry, use_registry
from delegraph.program import debug_data_of, deserialize_flat_tensor, deserialize_program
from delegraph.program.schema import Program, Tensor, TensorShapeDynamism
from delegraph.program.user_metadata import user_metadata_of
from delegraph_partitioners import OperatorsPartitioner

Refused = Callable[..., str]

MODEL = '''
import torch
from torch.export import Dim

class Scale(torch.nn.Module):
    """Twice x, or scale times x."""
    def forward(self, x, scale=2.0):
        return (x * scale).relu()

x = torch.ones(2, 3)

def pair(): return Scale(), (x,)
def lone_tensor(): return Scale(), x
def with_kwargs(): return Scale(), (x,), {"scale": torch.tensor(3.0)}
def with_shapes(): return Scale(), (x,), None, {"x": {0: Dim("n", max=8)}}
def exported(): return torch.export.export(Scale(), (x,))
def methods(): return {"once": (Scale(), (x,)), "many": with_shapes(), "ready": exported()}
def linear(): return torch.nn.Linear(3, 2), (x,)
class Repeat(torch.nn.Module):
    def forward(self, x, times):
        return torch.repeat_interleave(x, times, dim=0)

def repeated(): return Repeat(), (x, torch.tensor([1, 2]))
def raises(): raise OSError("no weights here")
def nothing(): return None
def one(): return (Scale(),)
not_callable = 3
'''


@pytest.fixture(autouse=True)
def _core_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing but what the core itself installs; and in a folder with a model."""
    monkeypatch.setenv("DELEGRAPH_PLUGINS", "delegraph")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "model.py").write_text(MODEL)
    with use_registry(PluginRegistry.discover()):
        yield
    sys.modules.pop("model", None)


def lower(factory: str, *words: str) -> Program:
    assert main(["lower", f"model.py:{factory}", "-o", "m.pte", "--no-check-kernels", *words]) == 0
    return deserialize_program(Path("m.pte").read_bytes())


def input_tensors(program: Program) -> list[Tensor]:
    plan = program.execution_plan[0]
    return [value for index in plan.inputs if isinstance(value := plan.values[index], Tensor)]


@pytest.mark.parametrize("factory", ["pair", "lone_tensor", "exported"])
def test_one_method(factory: str) -> None:
    program = lower(factory)
    assert [plan.name for plan in program.execution_plan] == ["forward"]
    assert [tensor.sizes for tensor in input_tensors(program)] == [(2, 3)]


def test_debug_data_can_be_left_out() -> None:
    assert debug_data_of(lower("pair"))["forward"].nodes
    assert debug_data_of(lower("pair", "--no-debug-data")) == {}


def test_keyword_arguments() -> None:
    assert [tensor.sizes for tensor in input_tensors(lower("with_kwargs"))] == [(2, 3), ()]


def test_dynamic_shapes() -> None:
    (tensor,) = input_tensors(lower("with_shapes"))
    assert (tensor.sizes, tensor.shape_dynamism) == ((8, 3), TensorShapeDynamism.DYNAMIC_BOUND)


def test_a_bound_of_a_size_that_depends_on_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lower", "model.py:repeated", "-o", "m.pte", "--no-check-kernels"]) == 1
    line = re.search(r'"(model\.py:\d+)": 1024', capsys.readouterr().err)
    assert line is not None
    plan = lower("repeated", "--bound", f"{line[1]}=7").execution_plan[0]
    (output,) = (plan.values[index] for index in plan.outputs)
    assert isinstance(output, Tensor) and output.sizes == (7, 3)


def test_several_methods_and_one_of_them() -> None:
    assert [plan.name for plan in lower("methods").execution_plan] == ["many", "once", "ready"]
    assert [plan.name for plan in lower("methods", "--method", "once").execution_plan] == ["once"]


def test_a_single_method_takes_the_name() -> None:
    assert [plan.name for plan in lower("pair", "--method", "encode").execution_plan] == ["encode"]


def test_an_importable_module() -> None:
    assert main(["lower", "model:pair", "-o", "m.pte", "--no-check-kernels"]) == 0
    assert Path("m.pte").exists()


def test_planners() -> None:
    greedy, naive = lower("pair"), lower("pair", "--planner", "naive")
    sizes = [program.execution_plan[0].non_const_buffer_sizes[1] for program in (greedy, naive)]
    assert sizes[0] < sizes[1]


def test_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    lower("pair")
    out, err = capsys.readouterr()
    assert "forward: 0 nodes in 0 delegates, 2 nodes left to kernels" in out
    assert f"m.pte: {Path('m.pte').stat().st_size:,} bytes; planned memory: " in out
    stages = [line.partition(":")[0] for line in err.splitlines()]
    assert stages[1:5] == [f"{stage} of forward" for stage in ("export", "quantize", "functional", "edge")]
    assert stages[-3:] == ["compile", "fallback", "assemble"]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    program = lower("pair", "--json")
    answer = json.loads(capsys.readouterr().out)
    assert (answer["file"], answer["nbytes"]) == ("m.pte", Path("m.pte").stat().st_size)
    assert answer["planned_nbytes"] == {"forward": sum(program.execution_plan[0].non_const_buffer_sizes)}
    assert {"export", "edge", "partition", "emit", "compile"} <= set(answer["seconds"])
    assert [entry["operator"] for entry in answer["report"]["methods"]["forward"]["leftovers"]] == [
        "aten::mul.Tensor",
        "aten::relu",
    ]


def test_without_rich(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    lower("pair")
    out, err = capsys.readouterr()
    assert "aten::relu" in out
    assert "export of forward: " in err


def failure(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The message of a command that fails, without the stages that were done before."""
    assert main(["lower", *words, "-o", "m.pte"]) == 1
    assert not Path("m.pte").exists()
    return "\n".join(line for line in capsys.readouterr().err.splitlines() if not line.endswith(" s"))


def test_a_missing_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    message = failure(capsys, "model.py:pair")
    assert message.startswith("delegraph lower: 2 operators without a kernel in the kernel libraries")
    assert "model.py:8, in forward" in message


def test_a_backend_that_is_not_installed(capsys: pytest.CaptureFixture[str]) -> None:
    message = failure(capsys, "model.py:pair", "--backends", "npu")
    assert message.startswith("delegraph lower: no installed distribution offers 'npu' in delegraph.partitioners")


def test_a_planner_that_is_not_installed(capsys: pytest.CaptureFixture[str]) -> None:
    message = failure(capsys, "model.py:pair", "--no-check-kernels", "--planner", "gredy")
    assert "'gredy'" in message and "greedy" in message


def test_a_factory_that_raises(capsys: pytest.CaptureFixture[str]) -> None:
    assert failure(capsys, "model.py:raises") == "delegraph lower: model.py:raises raised OSError: no weights here"


def test_a_module_that_raises(capsys: pytest.CaptureFixture[str]) -> None:
    Path("model.py").write_text("import no_such_module")
    message = failure(capsys, "model.py:pair")
    assert message == "delegraph lower: importing model.py raised ModuleNotFoundError: No module named 'no_such_module'"


@pytest.mark.parametrize(("factory", "kind"), [("nothing", "NoneType"), ("one", "tuple of 1")])
def test_a_factory_that_gives_something_else(factory: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = failure(capsys, f"model.py:{factory}")
    assert message.startswith(f"delegraph lower: model.py:{factory}, method 'forward': expected (model, args), ")
    assert message.endswith(f"not {kind}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("model.py", "-o", "m.pte"), "'model.py' names no function: write MODEL.py:factory"),
        (("no.py:pair", "-o", "m.pte"), "no.py:pair: there is no file no.py"),
        (("model.py:pears", "-o", "m.pte"), "model.py has no function 'pears'"),
        (("model.py:not_callable", "-o", "m.pte"), "model.py has no function 'not_callable'"),
        (("model.py:methods", "-o", "m.pte", "--method", "two"), "gives no method 'two', but many, once, ready"),
        (("model.py:pair", "-o", "m.pte", "--bound", "m.py:3"), "m.py:3: write FILE.py:LINE=SIZE"),
        (("model.py:pair", "-o", "m.pte", "--bound", "m.py:3=0"), "0 is not a positive number"),
        (("model.py:pair",), "the following arguments are required: -o/--output"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], message: str, refused: Refused) -> None:
    assert message in refused("lower", *words, code=2)


def test_the_program_does_what_the_model_does() -> None:
    """With kernels that are given, since none are installed here."""
    from delegraph import load
    from delegraph.runtime import KernelLibrary

    kernels = KernelLibrary("numpy")

    @kernels.kernel("aten::mul.Scalar_out")
    @kernels.kernel("aten::mul.out")
    def mul(context: Any, a: Any, b: Any, out: Any) -> None:
        np.multiply(a, b, out=out)

    @kernels.kernel("aten::relu.out")
    def relu(context: Any, a: Any, out: Any) -> None:
        np.maximum(a, 0, out=out)

    lower("pair")
    x = torch.tensor([[1.0, -2.0, 3.0], [0.0, 5.0, -6.0]])
    assert (load("m.pte", kernels=[kernels])(x) == (2 * x).relu()).all()


def test_options_of_a_backend_on_the_command_line() -> None:
    asked: list[object] = []

    def npu(*, optimize: int = 1, mode: str = "small") -> Partitioner:
        asked.append((optimize, mode))
        return OperatorsPartitioner("Nobody", ["aten::nothing"])

    default_registry().register("partitioners", "npu", npu)
    lower("pair", "--backends", "npu{optimize=3,mode=fast}")
    assert asked == [(3, "fast")]


@pytest.mark.parametrize(
    ("backends", "message"),
    [
        ("npu{optimise=3}", "has no option 'optimise'; it has optimize; did you mean 'optimize'"),
        ("npu{optimize=", "character 14 is the end; expected a value"),
    ],
)
def test_options_that_a_backend_does_not_have(capsys: pytest.CaptureFixture[str], backends: str, message: str) -> None:
    def npu(*, optimize: int = 1) -> Partitioner:
        raise AssertionError("made")

    default_registry().register("partitioners", "npu", npu)
    assert message in failure(capsys, "model.py:pair", "--backends", backends)


@pytest.mark.parametrize(
    ("words", "files"),
    [
        ((), {"m.ptd": {"weight", "bias"}}),
        (("bias",), {"m.ptd": {"bias"}}),
        (("w*=big,*",), {"big.ptd": {"weight"}, "m.ptd": {"bias"}}),
        (("w*=big.ptd",), {"big.ptd": {"weight"}}),
    ],
)
def test_external_weights(
    words: tuple[str, ...], files: dict[str, set[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    lower("linear", "--external-weights", *words)
    told = capsys.readouterr().out
    assert {
        path.name: set(deserialize_flat_tensor(path.read_bytes()).named_data) for path in Path().glob("*.ptd")
    } == files
    assert all(f"{name}: {Path(name).stat().st_size:,} bytes of weights" in told for name in files)
    lower("linear", "--external-weights", *words, "--json")
    assert json.loads(capsys.readouterr().out)["data"].keys() == files.keys()


@pytest.mark.parametrize("words", ["=name", "w=../up", "a,,b", ""])
def test_patterns_that_are_none(words: str, refused: Refused) -> None:
    assert "write patterns of names, each with a file's name" in refused(
        "lower", "model.py:linear", "-o", "m.pte", "--external-weights", words, code=2
    )


def test_metadata() -> None:
    Path("labels.json").write_text('{"labels": ["cat", "dog"], "author": "Ada"}')
    program = lower("pair", "--metadata", "labels.json", "--metadata", "author=Eve", "--metadata", "version=1.10")
    assert user_metadata_of(program) == {"labels": ("cat", "dog"), "author": "Eve", "version": "1.10"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("labels.txt", "labels.txt: No such file or directory; write NAME=TEXT or a JSON file's name"),
        ("model.py", "model.py is not JSON"),
        ("list.json", "list.json: metadata is list; it is a mapping of names"),
    ],
)
def test_metadata_that_is_none(said: str, why: str, refused: Refused) -> None:
    Path("list.json").write_text('["cat"]')
    assert why in refused("lower", "model.py:pair", "-o", "m.pte", "--metadata", said, code=2)
