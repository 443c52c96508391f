"""The commonest slips -> messages that say what, where, why and what next: a row each."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import delegraph
from delegraph.aot import ExecutorchBackendConfig
from delegraph.aot.export import export_method, export_requests
from delegraph.aot.export_checks import check_mode
from delegraph.errors import DelegraphError


class Scaled(torch.nn.Module):
    """A model of one argument."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Branching(torch.nn.Module):
    """A model that goes another way for other values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x


class Pair(torch.nn.Module):
    """A model of one argument that has two tensors."""

    def forward(self, p: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return p[0] + p[1]


class InNumPy(torch.nn.Module):
    """A model that leaves torch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.sin(x.numpy()))


@dataclass
class Box:
    """Nothing that torch knows."""

    content: torch.Tensor


class Boxed(torch.nn.Module):
    """A model that gives a box."""

    def forward(self, x: torch.Tensor) -> Box:
        return Box(x * 2)


class Named(torch.nn.Module):
    """A layer under another name."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x))


def _at_the_same_time(run: Any) -> None:
    """Call while another thread's call, which a tool holds up, is not at its end."""
    inside, done = threading.Event(), threading.Event()

    def other(self: Any) -> None:
        with self._alone:
            inside.set()
            done.wait()

    thread = threading.Thread(target=other, args=[run["forward"].method])
    thread.start()
    inside.wait()
    try:
        run(ARRAY)
    finally:
        done.set()
        thread.join()


def _scripted(here: Here) -> torch.nn.Module:
    with warnings.catch_warnings(action="ignore"):  # torch says that TorchScript is deprecated
        return torch.jit.trace(here.model, (here.x,))  # type: ignore[no-any-return, no-untyped-call]


@dataclass(frozen=True)
class Here:
    """The fixtures of the slips."""

    model: torch.nn.Module
    x: torch.Tensor
    lowered: Any
    run: Any
    varying: Any
    pair: Any
    folder: Path

    def weights(self, name: str, backends: list[str]) -> Path:
        """A program whose weights lie beside it, and `other.ptd` of another one."""
        for model, file, tag in ((torch.nn.Linear(3, 2), name, name), (Named(), "other_program", "other")):
            config = ExecutorchBackendConfig(external_constants={"*": tag})
            delegraph.lower(model.eval(), (self.x,), backends=backends, config=config).save(self.folder / f"{file}.pte")
        return self.folder / f"{name}.pte"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Here:
    model, x, folder = Scaled().eval(), torch.ones(4, 3), tmp_path_factory.mktemp("slips")
    lowered = delegraph.lower(model, (x,))
    (folder / "notes.txt").write_text("these are notes, and not a program" * 9)
    (folder / "empty.pte").touch()
    torch.save(model.state_dict(), folder / "weights.pt")
    varying = delegraph.lower(model, (x,), dynamic_shapes={0: torch.export.Dim("batch", max=16)})
    programs = (lowered, varying, delegraph.lower(Pair(), ((x, x),)))
    return Here(model, x, lowered, *(delegraph.load(bytes(program)) for program in programs), folder)


Slip = tuple[Callable[[Here], Any], tuple[str, ...]]

ARRAY = np.ones((4, 3), np.float32)

SLIPS: dict[str, Slip] = {
    "a shape instead of a tuple": (
        lambda h: delegraph.lower(h.model, h.x.numel()),  # type: ignore[arg-type]
        ("example arguments are a tuple, not int", "for one argument write (x,)"),
    ),
    "no arguments": (
        lambda h: delegraph.lower(h.model),
        ("an nn.Module needs example arguments to be exported: lower(model, (x,))",),
    ),
    "too few": (
        lambda h: delegraph.lower(h.model, ()),
        ("Scaled.forward takes (x: ", "do not fit: missing a required argument: 'x'"),
    ),
    "too many": (
        lambda h: delegraph.lower(h.model, (h.x, h.x)),
        ("Scaled.forward takes (x: ", "do not fit: too many positional arguments"),
    ),
    "an array instead of a tensor": (
        lambda h: delegraph.lower(h.model, (ARRAY,)),
        ("example argument 0 is a NumPy ndarray", "torch.from_numpy(array)"),
    ),
    "a class instead of a model": (
        lambda h: delegraph.lower(Scaled, (h.x,)),  # type: ignore[arg-type]
        ("not the class Scaled; make one, Scaled(…)",),
    ),
    "a dict as config": (
        lambda h: delegraph.lower(h.model, (h.x,), config={}),  # type: ignore[arg-type]
        ("config is dict; it takes a LoweringConfig",),
    ),
    "a name instead of a list of backends": (
        lambda h: delegraph.lower(h.model, (h.x,), backends="cpu"),
        ("backends is a list, in order of priority: write backends=['cpu']",),
    ),
    "a backend that is not installed": (
        lambda h: delegraph.lower(h.model, (h.x,), backends=["qnnn"]),
        ("no installed distribution offers 'qnnn'", "install the distribution that offers this one", "README"),
    ),
    "a folder that is not there": (
        lambda h: h.lowered.save(h.folder / "missing" / "m.pte"),
        ("there is no such folder to save 'm.pte' in; make it first", "missing"),
    ),
    "a folder to save as": (lambda h: h.lowered.save(h.folder), ("this is a folder; name a file in it",)),
    "a model in training mode": (
        lambda h: delegraph.lower(torch.nn.Sequential(h.model, torch.nn.Dropout()).train(), (h.x,)),
        ("the model is in training mode, in which 1 (Dropout) computes something else", "call model.eval()"),
    ),
    "statistics in training mode": (
        lambda h: delegraph.lower(torch.nn.BatchNorm1d(3).train(), (h.x,)),
        ("in training mode, in which BatchNorm1d computes something else",),
    ),
    "a shape instead of a tensor": (
        lambda h: delegraph.lower(h.model, (4, 3)),
        ("too many positional arguments; these are numbers", "write (torch.randn(4, 3),)"),
    ),
    "an example of another shape": (
        lambda h: delegraph.lower(torch.nn.Linear(5, 2).eval(), (h.x,)),
        ("the model itself fails on the example arguments", "(4x3 and 5x2)"),
    ),
    "a file's name instead of a model": (
        lambda h: delegraph.lower("m.pt2", (h.x,)),  # type: ignore[arg-type]
        ("not str; load the model from its file first: torch.export.load(path)",),
    ),
    "a state dict instead of a model": (
        lambda h: delegraph.lower(torch.nn.Linear(3, 2).state_dict(), (h.x,)),  # type: ignore[arg-type]
        ("not Tensor; a state dict is loaded into a model first",),
    ),
    "a function instead of a model": (
        lambda h: delegraph.lower(torch.relu, (h.x,)),  # type: ignore[arg-type]
        ("write it as the forward of an nn.Module",),
    ),
    "TorchScript": (
        lambda h: delegraph.lower(_scripted(h), (h.x,)),
        ("is TorchScript, which cannot be exported; give the nn.Module that it was made of",),
    ),
    "a branch on a value": (
        lambda h: delegraph.lower(Branching().eval(), (h.x,)),
        ("the way through the model depends on values that it computes", "torch.cond"),
    ),
    "dynamic shapes of another argument": (
        lambda h: delegraph.lower(h.model, (h.x,), dynamic_shapes={"y": {0: torch.export.Dim("n", max=9)}}),
        ("dynamic_shapes has 'y', and the arguments are x", "{'x': {0: Dim('batch', max=16)}}"),
    ),
    "a dim that no argument has": (
        lambda h: delegraph.lower(h.model, (h.x,), dynamic_shapes={2: torch.export.Dim("n", max=9)}),
        ("has dim 2 of every tensor, and the example arguments have at most 2 dims, which count from 0",),
    ),
    "nothing to quantize by": (
        lambda h: delegraph.quantize(h.model),
        ("give calibration_data=[(x,), …], typical inputs, or args=(x,)",),
    ),
    "labels in the calibration data": (
        lambda h: delegraph.quantize(h.model, [(h.x, torch.tensor(1))]),
        ("too many positional arguments", "the example is calibration batch 0", "arguments alone, without labels"),
    ),
    "a file that is not there": (
        lambda h: delegraph.load(h.folder / "m.pte"),
        ("m.pte: cannot be opened: No such file or directory",),
    ),
    "a folder instead of a file": (lambda h: delegraph.load(str(h.folder)), ("cannot be opened: Is a directory",)),
    "a file that is not a program": (
        lambda h: delegraph.load(h.folder / "notes.txt"),
        ("notes.txt: not a .pte: bytes 4 to 8 are b'e ar', not b'ET12'",),
    ),
    "torch's file instead of a program": (
        lambda h: delegraph.load(h.folder / "weights.pt"),
        ("weights.pt: not a .pte", "it is an archive, as torch.save and torch.export.save write them"),
    ),
    "an empty file": (
        lambda h: delegraph.load(h.folder / "empty.pte"),
        ("empty.pte: cannot be mapped: the file is empty",),
    ),
    "a model to load": (lambda h: delegraph.load(h.model), ("got Scaled; a model is lowered first",)),
    "a lowered model to load": (lambda h: delegraph.load(h.lowered), ("got Lowered; save it, .save(path)",)),
    "a call without arguments": (lambda h: h.run(), ("method 'forward' takes (x), got (): x missing",)),
    "a call with too many": (lambda h: h.run(ARRAY, ARRAY), ("takes (x), got (*, *): 2 by position, and it takes 1",)),
    "an argument by another name": (
        lambda h: h.run(y=ARRAY),
        ("method 'forward' takes (x), and has no argument 'y'",),
    ),
    "a tuple for one argument": (
        lambda h: h.run((ARRAY,)),
        ("x: expected float32[4, 3], got tuple of 1 arrays; pass each as", "run(*values)"),
    ),
    "another dtype": (
        lambda h: h.run(ARRAY.astype(np.float64)),
        ("x: expected float32[4, 3], got dtype float64", "pass array.astype('float32')"),
    ),
    "another shape": (lambda h: h.run(ARRAY.T), ("x: expected float32[4, 3], got shape [3, 4]", "dim 0 is 3")),
    "a size that was fixed": (
        lambda h: h.run(ARRAY[:2]),
        ("dim 0 is 2, and 4 in every call; to let it vary, lower the model with dynamic_shapes={0: Dim(…, max=…)}",),
    ),
    "a size beyond its bound": (
        lambda h: h.varying(np.ones((17, 3), np.float32)),
        ("x: expected float32[batch in 0..16, 3], got shape [17, 3]: dim 0 (batch) is 17, allowed is 0..16",),
    ),
    "numbers for an array": (
        lambda h: h.run([[1.0] * 3] * 4),
        ("x: expected float32[4, 3], got list; pass numpy.asarray(values, 'float32')",),
    ),
    "a mapping for one argument": (
        lambda h: h.run({"x": ARRAY}),
        ("x: expected float32[4, 3], got dict of 'x'; pass what is in it by name: run(**values)",),
    ),
    "text for an array": (
        lambda h: h.run("an image"),
        ("x: expected float32[4, 3], got str: 'an image'; pass an array",),
    ),
    "nothing for an array": (lambda h: h.run(None), ("x: expected float32[4, 3], got NoneType: None",)),
    "an array of objects": (
        lambda h: h.run(ARRAY.astype(object)),
        ("got dtype object", "pass array.astype('float32')"),
    ),
    "two arguments for a pair": (
        lambda h: h.pair(ARRAY, ARRAY),
        ("takes (p=(*, *)), got (*, *): 2 by position, and it takes 1; pass them as one tuple",),
    ),
    "three for a pair": (
        lambda h: h.pair((ARRAY,) * 3),
        ("takes (p=(*, *)), got ((*, *, *)): (*, *, *) stands where the model takes (*, *)",),
    ),
    "calls at the same time": (
        lambda h: _at_the_same_time(h.run),
        ("method 'forward' is executing in another thread", "run.session()"),
    ),
    "another rank": (lambda h: h.run(ARRAY[0]), ("got shape [3]: it has 1 dims, not 2",)),
    "another device": (
        lambda h: h.run(torch.empty(4, 3, device="meta")),
        ("x: the tensor is on meta", "pass tensor.cpu()"),
    ),
    "weights of another model, for kernels": (
        lambda h: delegraph.load(h.weights("kernels", []), data_path=h.folder / "other.ptd"),
        ("method 'forward', value 1: the .ptd files have no 'weight', but 'fc.bias', 'fc.weight'", "data_path=[…]"),
    ),
    "weights of another model, for a backend": (
        lambda h: delegraph.load(h.weights("cpu", ["cpu"]), data_path=h.folder / "other.ptd"),
        ("delegate 0 (CpuBackend): the .ptd files have no 'weight', but 'fc.bias'", "data_path=[…]"),
    ),
    "no weights": (
        lambda h: delegraph.load(h.weights("cpu", ["cpu"])),
        ("the data of 'weight' is in a .ptd file; pass it as data_path=…",),
    ),
    "weights instead of a program": (
        lambda h: h.weights("cpu", ["cpu"]) and delegraph.load(h.folder / "other.ptd"),
        ("other.ptd: not a .pte", "it is a .ptd", "load the .pte, and this file as its data_path"),
    ),
    "an option of the other half": (
        lambda h: delegraph.lower(h.model, (h.x,), backends=["cpu{num_threads=1}"]),
        ("partitioner 'cpu' has no option 'num_threads'", "delegraph.load(…, backend_options=…)"),
    ),
    "a backend of a family": (
        lambda h: delegraph.lower(h.model, (h.x,), backends=["xnnpack"]),
        ("offers 'xnnpack' in delegraph.partitioners; did you mean 'executorch:xnnpack'?",),
    ),
    "a recipe that is not there": (
        lambda h: delegraph.quantize(torch.nn.Linear(3, 2).eval(), [(h.x,)], recipe="int7"),
        ("there is no recipe 'int7'; recipes are float, int8", "did you mean 'int8'?"),
    ),
    "a batch that is no tuple": (
        lambda h: delegraph.quantize(torch.nn.Linear(3, 2).eval(), [h.x]),
        ("calibration batch 0 is a Tensor; a batch is a tuple of arguments (for one write (x,))",),
    ),
    "NumPy in a model": (
        lambda h: delegraph.lower(InNumPy().eval(), (h.x,)),
        ("the model calls NumPy, which torch.export cannot look into; write that part with torch", "in forward: "),
    ),
    "a dataclass as a result": (
        lambda h: delegraph.lower(Boxed().eval(), (h.x,)),
        ("forward returns a", "Box, in which torch.export sees no tensors", "torch.export.register_dataclass"),
    ),
    "a number for a dim": (
        lambda h: delegraph.lower(h.model, (h.x,), dynamic_shapes={0: 16}),
        ("dynamic_shapes fixes a size of", "at 16, and the example has 4; a dim that varies is Dim('n', max=16)"),
    ),
    "a number for a tensor's dims": (
        lambda h: delegraph.lower(h.model, (h.x,), dynamic_shapes=[0]),
        ("dynamic_shapes[0] is 0; it is a mapping by dim, {0: Dim('batch', max=16)}",),
    ),
    "no largest size": (
        lambda h: delegraph.lower(h.model, (h.x,), dynamic_shapes={0: torch.export.Dim("n")}),
        ("dimension 0 of input 'x' has no upper bound", "Dim("),
    ),
    "a list of keyword arguments": (
        lambda h: delegraph.lower(h.model, (), [h.x]),  # type: ignore[arg-type]
        ("kwargs is list; it is a mapping of arguments by name: {'x': x}",),
    ),
    "a tokenizer's lists": (
        lambda h: delegraph.lower(h.model, {"x": [[1, 2, 3]]}),
        ("example argument 'x' is a list of numbers", 'tokenizer(…, return_tensors="pt")'),
    ),
    "metadata of a kind that no file has": (
        lambda h: delegraph.lower(h.model, (h.x,), metadata={"labels": {"0": "cat"}}),  # type: ignore[dict-item]
        ("metadata['labels'] is or has a dict; a value is a text", "json.dumps(value)"),
    ),
    "an option of a backend at load": (
        lambda h: delegraph.load(
            bytes(delegraph.lower(torch.nn.Linear(3, 2).eval(), (h.x,), backends=["cpu"])),
            backend_options={"cpu": {"threads": 1}},
        ),
        ("delegate 0 (CpuBackend): CpuBackend has no option threads; it has cache, intermediate_outputs, num_threads",),
    ),
    "candidates that are none": (
        lambda h: delegraph.compare(h.model, (h.x,), backends=[]),
        ('backends is a list of candidates, such as ["cpu", "npu,cpu"]',),
    ),
    "a method that is not there": (
        lambda h: delegraph.load(bytes(h.lowered), method="frward"),
        ("no method 'frward'; the program has forward",),
    ),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_slip(here: Here, slip: str) -> None:
    make, told = SLIPS[slip]
    with pytest.raises((DelegraphError, TypeError, OSError)) as caught:
        make(here)
    assert [part for part in told if part not in str(caught.value)] == [], str(caught.value)


WITHOUT_TORCH = """
import sys
class NoTorch:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, NoTorch)
import delegraph
from delegraph.cli import main
for name in ("lower", "quantize", "compare"):
    try:
        getattr(delegraph, name)
    except delegraph.DelegraphError as error:
        print(type(error).__name__, error)
for command in (["lower", "m.py:make", "-o", "m.pte"], ["compare", "m.py:make", "--backends", "cpu"]):
    print(main(command))
"""


def test_no_torch() -> None:
    """A device, or an environment that was forgotten: every call that needs torch says so."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=True)
    why = "needs torch, which is not installed here (No module named 'torch'): pip install torch; to run a .pte that is"
    rows = done.stdout.splitlines()
    assert [why in row for row in rows] == [True, True, True, False, False]
    assert rows[0].startswith("NotInstalled delegraph.lower works ahead of time, and ") and rows[3:] == ["1", "1"]
    assert [why in row for row in done.stderr.splitlines()] == [True, True]
    assert done.stderr.startswith("delegraph lower: this command works ahead of time")


def test_training_mode_that_is_meant(here: Here) -> None:
    """A mode that changes nothing, dropout that stays in evaluation mode, statistics that are never kept."""

    class AlwaysDrops(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.dropout(x, 0.5, training=True)

    for model in (
        torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.0)).train(),
        torch.nn.BatchNorm1d(3, track_running_stats=False).train(),
        AlwaysDrops().eval(),
    ):
        exported = export_requests(model, (here.x,))["forward"]
        check_mode("forward", model, export_method("forward", exported))


@pytest.mark.parametrize("argument", [ARRAY, torch.from_numpy(ARRAY.copy())], ids=["NumPy", "torch"])
def test_what_is_not_a_slip(here: Here, argument: Any) -> None:
    """A lone tensor or a list of arguments, a path as text or as Path, tensors of torch's."""
    delegraph.lower(here.model, here.x)
    lowered = delegraph.lower(here.model, [here.x])
    lowered.save(here.folder / "good.pte")
    for path in (here.folder / "good.pte", str(here.folder / "good.pte")):
        np.testing.assert_array_equal(delegraph.load(path)(argument), ARRAY * 2)


def test_texts_are_short(here: Here) -> None:
    big = torch.nn.Linear(500, 500).eval()
    lowered = delegraph.lower(big, (torch.ones(1, 500),))
    program = delegraph.load(bytes(lowered))
    assert all(
        len(repr(value)) < 500
        for value in (
            lowered,
            lowered.edge,
            lowered.report,
            program,
            program.metadata,
            *lowered.program.executorch_program.execution_plan,
        )
    )
