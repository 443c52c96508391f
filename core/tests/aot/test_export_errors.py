"""torch.export's failures in plain words: what, where, why and what next, a row each; and nothing on standard error."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import delegraph
from delegraph.aot.export_errors import plain_reason, quiet_torch
from delegraph.errors import LoweringError

X = torch.ones(4, 3)
BATCH, LENGTH, LONG = Dim("batch", max=16), Dim("length", max=16), Dim("long", min=8, max=16)


class Model(nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class Sum(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


@dataclass
class Pair:
    first: torch.Tensor
    second: torch.Tensor


@torch.library.custom_op("delegraph_tests::unknown_shape", mutates_args=())
def unknown_shape(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def _branch(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x


def _loop(x: torch.Tensor) -> torch.Tensor:
    while x.sum() < 100:
        x = x + 1
    return x


def _no_rows(x: torch.Tensor) -> torch.Tensor:
    return x if x.nonzero().shape[0] == 0 else x + 1


def _counted(x: torch.Tensor) -> torch.Tensor:
    for _ in range(int(x.sum())):
        x = x + 1
    return x


def _quantized_dynamically() -> nn.Module:
    with warnings.catch_warnings(action="ignore"):  # torch says that all of this is deprecated
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 2)), {nn.Linear})


def _lower(model: Any, *args: Any, **options: Any) -> Callable[[], object]:
    return lambda: delegraph.lower(model.eval(), args or (X,), **options)


FAILURES: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "NumPy": (
        _lower(Model(lambda x: torch.from_numpy(x.numpy() * 2))),
        ("the model calls NumPy", "pass it as an argument", "test_export_errors.py:", "x.numpy()"),
    ),
    "a function of NumPy's": (_lower(Model(lambda x: torch.as_tensor(np.sin(x)))), ("the model calls NumPy",)),
    "quantize_dynamic": (
        lambda: delegraph.lower(_quantized_dynamically(), (X,)),
        ("torch.ao.quantization", "(LinearPackedParamsBase)", "give the float model", 'recipe="int8_dynamic"'),
    ),
    "a branch on a value": (
        _lower(Model(_branch)),
        ("depends on values that it computes", "torch.cond", "in _branch: return x + 1 if x.sum() > 0 else x"),
    ),
    "a loop on a value": (
        _lower(Model(_loop)),
        ("a loop with torch.while_loop", "in _loop: while x.sum() < 100:"),
    ),
    "a size that depends on values": (
        _lower(Model(_no_rows)),
        ("depends on a size that is known only when it runs (Eq(u0, 0))", "torch._check(y.shape[0] > 0)", "_no_rows"),
    ),
    "a number of a value": (
        _lower(Model(_counted)),
        ("turns a value that it computes into a Python number", "range()", "in _counted: for _ in range"),
    ),
    "a fixed dim": (
        _lower(nn.Sequential(nn.Flatten(0), nn.Linear(12, 3)), dynamic_shapes=({0: BATCH},)),
        ("dim batch is dynamic, and the model fixes it at 4", "x.shape or -1", "leave the dim out of dynamic_shapes"),
    ),
    "dims that are equal": (
        _lower(Sum(), X, X, dynamic_shapes={"x": {0: BATCH}, "y": {0: LENGTH}}),
        ("dims length and batch have to be equal", "use one Dim for both"),
    ),
    "dims of another step": (
        _lower(Model(lambda x: x.view(2, -1)), dynamic_shapes={"x": {0: BATCH}}),
        ("does not take every size that dynamic_shapes allows", "batch = 2*_batch"),
    ),
    "an example outside the range": (
        _lower(Model(torch.relu), dynamic_shapes={"x": {0: LONG}}),
        ("an example has size 4 on a dynamic dim of 8 to 16", "widen the Dim"),
    ),
    "shapes of another structure": (
        _lower(Model(torch.relu), dynamic_shapes=({0: BATCH}, None)),
        ("`inputs` has 1 elements, but `dynamic_shapes` has 2 elements", "an entry for each argument"),
    ),
    "shapes of another rank": (
        _lower(Model(torch.relu), dynamic_shapes={"x": [{0: BATCH}]}),
        ("dynamic_shapes['x'] is [{0: Dim(", "that argument has 2 dims", "a mapping by dim"),
    ),
    "a dataclass as result": (
        _lower(Model(lambda x: Pair(x, x + 1))),
        ("forward returns a ", "Pair, in which torch.export sees no tensors", "torch.export.register_dataclass"),
    ),
    "a dataclass as argument": (
        _lower(Model(lambda pair: pair.first + 1), Pair(X, X)),
        ("forward takes a ", "Pair, in which torch.export sees no tensors", "torch.export.register_dataclass"),
    ),
    "a custom operator without a shape": (
        _lower(Model(torch.ops.delegraph_tests.unknown_shape)),
        ("delegraph_tests::unknown_shape does not say which shape", "torch.library.register_fake('delegraph_tests"),
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_failure(failure: str) -> None:
    make, told = FAILURES[failure]
    with pytest.raises(LoweringError, match=r"torch\.export of method 'forward' failed") as caught:
        make()
    assert [part for part in told if part not in str(caught.value)] == [], str(caught.value)
    assert caught.value.__cause__ is not None
    assert "draft_export" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Expected all tensors to be on the same device, but found at least two devices, cpu and cuda:0!", "model.cpu"),
        (
            "__torch__.acme.Tokens (of Python compilation unit at: 0) does not have a field with name"
            " '__obj_flatten__'",
            r"a TorchScript object \(acme.Tokens\)",
        ),
        (
            "- Received user-specified dim hint Dim.DYNAMIC, but export 0/1 specialized due to hint of 0 for dimension"
            " inputs['x'].shape[0].",
            r"the dim of inputs\['x'\].shape\[0\] is dynamic, and its example has size 0",
        ),
        ("nobody has heard of this\n\nThe error above occurred when calling torch.export.export.", "heard of this$"),
        ("", "^RuntimeError$"),
    ],
    ids=["two devices", "TorchScript inside", "no rows", "an unknown failure", "an empty one"],
)
def test_what_torch_says_is_put_plainly(said: str, told: str) -> None:
    with pytest.raises(LoweringError, match=told):
        raise LoweringError(plain_reason(RuntimeError(said)))


LOOPING = """
import delegraph, sys, torch

class Loop(torch.nn.Module):
    def forward(self, x):
        print("forward says this", file=sys.stderr)
        while x.sum() < 10:
            x = x + 1
        return x

try:
    delegraph.lower(Loop(), (torch.zeros(3),))
except delegraph.errors.LoweringError:
    print("refused")
"""


def test_torch_prints_nothing_and_the_user_what_they_like(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_LOGS", raising=False)
    run = subprocess.run([sys.executable, "-c", LOOPING], capture_output=True, text=True, check=True)
    assert run.stdout == "refused\n"
    assert set(run.stderr.splitlines()) == {"forward says this"}


def test_somebody_who_asks_for_torchs_log_gets_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCH_LOGS", "dynamic")
    with quiet_torch():
        print("def forward(self, x):", file=sys.stderr)
    assert capsys.readouterr().err == "def forward(self, x):\n"
