"""A delegate's life: its own memories, what it tells a tracer, and how it is stopped."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from backends.npu.tests.cases import CASES_BY_NAME
from backends.npu.tests.harness import DEVICE

from delegraph.errors import Cancelled, Internal
from delegraph.interfaces import BackendExecutionContext, BackendInitContext
from delegraph.runtime import EventTracer
from delegraph_npu.accesses import inputs_of
from delegraph_npu.cost import cost_of
from delegraph_npu.device import read_device
from delegraph_npu.runtime.backend import NpuBackend, NpuHandle

CASE = CASES_BY_NAME["conv 3x3"]
BLOB = CASE.builder.blob([CASE.command], inputs_of(CASE.command), [CASE.command.ofm])
BACKEND = NpuBackend()


def handle() -> NpuHandle:
    return BACKEND.init(BackendInitContext("forward"), BLOB, ())


def context(tracer: EventTracer | None = None) -> BackendExecutionContext:
    return cast(BackendExecutionContext, SimpleNamespace(event_tracer=tracer))


def output() -> Any:
    return np.zeros(CASE.command.ofm.shape, np.int8)


def test_forks_have_memories_of_their_own() -> None:
    first = handle()
    second = BACKEND.fork(BackendInitContext("forward"), first)
    assert second.machine.program is first.machine.program
    expected, again, other = output(), output(), output()
    BACKEND.execute(context(), first, [*CASE.inputs, expected])
    BACKEND.execute(context(), second, [np.zeros_like(CASE.inputs[0]), other])
    assert (first.machine.inputs[0] == CASE.inputs[0]).all() and not second.machine.inputs[0].any()
    BACKEND.execute(context(), second, [*CASE.inputs, again])
    assert (expected == again).all() and (expected != other).any()


def test_a_tracer_is_told_of_every_operator() -> None:
    tracer = EventTracer()
    tracer.create_event_block("run")
    BACKEND.execute(context(tracer), handle(), [*CASE.inputs, output()])
    (event,) = tracer.blocks[-1].profile_events
    device = read_device(DEVICE, "test")
    cost = cost_of(CASE.command, device)
    assert event.delegate_debug_id == event.name == "operator"
    assert event.end - event.start == pytest.approx(cost.cycles * 1000 / device.clock_mhz, abs=1)
    counters = json.loads(event.metadata)
    assert counters["cycles"] == round(cost.cycles)
    assert counters["macs"] == 5 * 6 * 4 * 27
    assert counters["energy_pj"] == pytest.approx(cost.energy.total, abs=0.1)
    assert set(counters) == {
        "cycles", "array_cycles", "output_cycles", "sram_cycles", "dram_cycles", "macs", "sram_bytes", "dram_bytes",
        "energy_pj",
    }  # fmt: skip


def test_a_run_that_is_stopped() -> None:
    stopped = handle()
    BACKEND.cancel(stopped, True)
    with pytest.raises(Cancelled, match="a delegate of NpuBackend was stopped between two commands"):
        BACKEND.execute(context(), stopped, [*CASE.inputs, output()])
    BACKEND.cancel(stopped, False)
    BACKEND.execute(context(), stopped, [*CASE.inputs, output()])


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ([output()], "takes 1 inputs and 1 outputs, and was called with 1 arguments"),
        ([1, output()], r"an input .* is int8 \(1, 5, 6, 3\), not 1"),
        ([np.zeros((1, 5, 6, 3)), output()], r"an input .* is int8 \(1, 5, 6, 3\), not float64 \(1, 5, 6, 3\)"),
    ],
)
def test_arguments_of_another_kind(args: list[Any], reason: str) -> None:
    with pytest.raises(Internal, match=reason):
        BACKEND.execute(context(), handle(), args)
