"""A simulated device tells a tracer values: steps behind those of an operator, and the option that asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest

from delegraph.errors import InvalidArgument
from delegraph.interfaces import Argument, BackendExecutionContext, BackendInitContext, Buffer, CompileSpec
from delegraph.runtime import EventTracer
from delegraph_machines.values import MachineBackend, MachineOptions, with_logs


@dataclass(frozen=True, slots=True)
class Options(MachineOptions):
    backend_id: ClassVar[str] = "AcmeBackend"


class Acme(MachineBackend):
    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> None: ...

    def execute(self, context: BackendExecutionContext, handle: object, args: Sequence[Argument]) -> None: ...


def test_a_value_is_told_behind_the_last_step_of_its_operator() -> None:
    steps = ["load 0", "conv 0", "load ahead 1", "conv 0", "store 0", "relu 1"]
    told = with_logs(steps, [0, 0, 1, 0, 0, 1], {0: "value 0", 2: "value 2"})
    assert told == ["load 0", "conv 0", "load ahead 1", "conv 0", "store 0", "value 0", "relu 1"]


def test_the_option() -> None:
    backend = Acme(Options())
    tracer = EventTracer()
    assert backend.tracer_of_values(BackendInitContext("forward", {}, {}, tracer)) is None
    assert backend.tracer_of_values(BackendInitContext("forward", {}, {"intermediate_outputs": True}, tracer)) is tracer
    backend.set_option({"intermediate_outputs": True})
    assert backend.get_option(["intermediate_outputs"]) == {"intermediate_outputs": True}
    assert backend.tracer_of_values(BackendInitContext("forward", {}, {}, tracer)) is tracer
    with pytest.raises(InvalidArgument, match="AcmeBackend: intermediate_outputs is 1; it may be true or false"):
        backend.set_option({"intermediate_outputs": 1})
    with pytest.raises(InvalidArgument, match="AcmeBackend has no option profiling; it has intermediate_outputs"):
        backend.get_option(["profiling"])
