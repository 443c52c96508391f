"""A blob for each of several devices: the first that is for the one that is there runs, and gives the same integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import delegraph
from delegraph.aot import Lowered
from delegraph.errors import DelegateInvalidCompatibility, FallbackWarning, InvalidArgument
from delegraph.runtime import Runtime
from delegraph_npu.runtime.backend import NpuBackend

DEVICES = ("ethos-u65-512", "ethos-u55-128")
X = torch.linspace(-1, 1, 3 * 64).reshape(1, 3, 8, 8)


class Twice(nn.Module):
    """One layer, in two partitions: they have weights in common."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(self.conv(x).flip(-1)))


@pytest.fixture(scope="module")
def lowered() -> Lowered:
    first, *others = DEVICES
    npu = ("npu", {"device": first, "other_devices": " ".join(others), "take_all": True})
    return delegraph.lower(
        Twice().eval(), (X,), backends=[npu], quantizers=["npu"], calibration_data=[(X,)], fallback="kernels"
    )


def board(device: str) -> NpuBackend:
    backend = NpuBackend()
    backend.set_option({"device": device})
    assert backend.get_option(["device"]) == {"device": device}
    return backend


def result(lowered: Lowered, device: str) -> tuple[NDArray[Any], Any]:
    runtime = Runtime(backends={"NpuBackend": board(device)})
    method = runtime.load_program(bytes(lowered)).load_method("forward")
    return method.execute([X.numpy()])[0], method


@pytest.fixture(scope="module")
def expected(lowered: Lowered) -> NDArray[Any]:
    return result(lowered, "")[0]


@pytest.mark.parametrize("place", range(len(DEVICES)))
def test_the_blob_for_the_device_that_is_there_runs(lowered: Lowered, expected: Any, place: int) -> None:
    ours, method = result(lowered, DEVICES[place])
    choices = method.delegate_choices
    assert choices and {(choice.place, choice.variant) for choice in choices} == {(place, DEVICES[place])}
    np.testing.assert_array_equal(ours, expected)


def test_another_device_runs_the_fallback(lowered: Lowered, expected: Any) -> None:
    with pytest.warns(FallbackWarning, match="it is for ethos-u65-512, and here is ethos-u85-512; .*u55-128"):
        ours, _ = result(lowered, "ethos-u85-512")
    np.testing.assert_allclose(ours, expected, atol=2e-2)


def test_the_environment_says_which_device_is_there(lowered: Lowered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGRAPH_NPU_DEVICE", DEVICES[1])
    runtime = Runtime(backends={"NpuBackend": NpuBackend()})
    method = runtime.load_program(bytes(lowered)).load_method("forward")
    assert {choice.variant for choice in method.delegate_choices} == {DEVICES[1]}


def test_of_one_device_nothing_is_asked() -> None:
    plain = delegraph.lower(
        Twice().eval(), (X,), backends=["npu{take_all=true}"], quantizers=["npu"], calibration_data=[(X,)]
    )
    assert b"variant" not in bytes(plain)
    ours, method = result(plain, "ethos-u85-512")
    assert method.delegate_choices == () and ours.shape == X.shape


def test_with_no_fallback_the_refusals_are_told() -> None:
    npu = ("npu", {"device": DEVICES[0], "other_devices": DEVICES[1], "take_all": True})
    plain = delegraph.lower(Twice().eval(), (X,), backends=[npu], quantizers=["npu"], calibration_data=[(X,)])
    with pytest.raises(DelegateInvalidCompatibility, match="here is ethos-u85-512"):
        result(plain, "ethos-u85-512")


def test_two_devices_of_one_name_are_refused() -> None:
    npu = ("npu", {"device": DEVICES[0], "other_devices": DEVICES[0]})
    with pytest.raises(InvalidArgument, match="have one name"):
        delegraph.lower(Twice().eval(), (X,), backends=[npu])
