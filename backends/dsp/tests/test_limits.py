"""The limits of what a program may say: the last that is admitted, and the first that is not."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from delegraph.errors import DelegateInvalidCompatibility
from delegraph_dsp.binary import pack, unpack
from delegraph_dsp.device import device_named, device_text
from delegraph_dsp.isa import OPCODES, Instruction, Loop
from delegraph_dsp.program import Command, Launch, Operand, Operator, Program, Region, Result, Transfer, Wait
from delegraph_dsp.runtime.validator import validate

TCM = 4096
VMOVE = next(code for code, opcode in enumerate(OPCODES) if opcode.name == "vmove")
DEVICE = device_named("hvx-4mb", TCM)
FIRST, LAST = Operand(0, "int8", (64,), (1,)), Operand(64, "int8", (64,), (1,))
LOAD, STORE = Transfer(True, 2, 0, 0, 64, 1, 64, 0, 0), Transfer(False, 3, 0, 64, 64, 1, 64, 0, 0)
COPY = Launch("copy", (FIRST, LAST), (), (), (), 0)
ARGUMENTS = Region("input", 64, "int8", (64,)), Region("output", 64, "int8", (64,))


def program(*commands: Command, scratch: int = 0, tcm: int = 128, **fields: Any) -> Program:
    """Of 64 bytes a copy."""
    parts = {
        "regions": (Region("constants", 0), Region("scratch", scratch), *ARGUMENTS),
        "operators": (Operator("copy", "aten::clone"),),
        **fields,
    }
    steps = commands or (LOAD, Wait(0), COPY, STORE, Wait(0))
    return Program(device_text(DEVICE), tcm, constants=b"", commands=steps, **{"loops": (), **parts})


def on(channel: int) -> Program:
    return program(replace(LOAD, channel=channel), Wait(channel), COPY, STORE, Wait(0))


def loading(**changes: Any) -> Program:
    return program(replace(LOAD, **changes), Wait(0), COPY, STORE, Wait(0))


def reading(shape: tuple[int, ...], strides: tuple[int, ...]) -> Program:
    first, last = (Operand(offset, "int8", shape, strides) for offset in (0, 64))
    return program(LOAD, Wait(0), replace(COPY, operands=(first, last)), STORE, Wait(0))


def giving(end: int, region: int | None, **changes: Any) -> Program:
    """The copy's result is the last bytes before `end`."""
    result = replace(Result(region, end - 64, "int8", (64,), (1,)), **changes)
    return program(operators=(Operator("copy", "aten::clone", result),))


def looping(**changes: Any) -> Program:
    move = replace(Instruction(VMOVE, 1, (0,)), **changes)
    return program(loops=(Loop(((move,),), 1),))


@pytest.mark.parametrize(
    ("admitted", "refused", "told"),
    [
        (on(3), on(4), "there is no channel 4"),
        (program(scratch=128), program(scratch=129), "bytes of scratch memory, more than it writes"),
        (program(tcm=TCM), program(tcm=TCM + 1), "bytes of TCM, and"),
        (program(), loading(tcm=65), "bytes up to 129 of the TCM, of which it has 128"),
        (loading(), loading(begin=1), "bytes up to 65 of region 2"),
        (loading(rows=2, row_nbytes=32, stride=32), loading(rows=2, row_nbytes=32, stride=31), "are empty, or overlap"),
        (loading(), loading(stride=65), "rows every 65 bytes of region 2"),
        (loading(), loading(task=1), "there is no operator 1"),
        (giving(128, None), giving(129, None), "the result of copy lies in no memory"),
        (giving(64, 3), giving(65, 3), "the result of copy lies in no memory"),
        (giving(64, 3), giving(64, 4), "the result of copy lies in no memory"),
        (reading((64, 1), (1, 2**62 - 1)), reading((64, 1), (1, 2**62)), "has strides that no memory has"),
        (looping(target=31), looping(target=32), "writes a register that there is not"),
        (looping(sources=(31,)), looping(sources=(32,)), "reads a register that there is not"),
    ],
    ids=lambda told: told if isinstance(told, str) else "",
)
def test_programs(admitted: Program, refused: Program, told: str) -> None:
    validate(admitted)
    with pytest.raises(DelegateInvalidCompatibility, match=told):
        validate(refused)


@pytest.mark.parametrize(("repeats", "told"), [(8 * TCM, "shapes"), (8 * TCM + 1, "operand 0 repeats its elements to")])
def test_elements_that_are_repeated(repeats: int, told: str) -> None:
    """No output of the kernel goes with either: the second is refused before that is looked at."""
    operands = Operand(0, "int8", (repeats,), (0,)), LAST
    with pytest.raises(DelegateInvalidCompatibility, match=told):
        validate(program(LOAD, Wait(0), replace(COPY, operands=operands), STORE, Wait(0)))


@pytest.mark.parametrize(("rank", "admitted"), [(8, True), (9, False)])
def test_dims(rank: int, admitted: bool) -> None:
    dims, steps = (64, *[1] * (rank - 1)), (1,) * rank
    regions = Region("constants", 0), Region("scratch", 0), *(replace(each, shape=dims) for each in ARGUMENTS)
    for made in (reading(dims, steps), program(regions=regions)):
        with nullcontext() if admitted else pytest.raises(DelegateInvalidCompatibility):
            validate(unpack(pack(made)))


@pytest.mark.parametrize("changes", [{"dtype": "int4"}, {"shape": (64, 1)}, {"shape": (1,) * 9, "strides": (1,) * 9}])
def test_results_that_there_are_not(changes: dict[str, Any]) -> None:
    assert unpack(pack(giving(64, 3))) == giving(64, 3)
    with pytest.raises(DelegateInvalidCompatibility, match="there is no Result"):
        unpack(pack(giving(64, 3, **changes)))


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [("tcm_nbytes", 1, 2**30), ("vector_registers", 16, 256)],
)
def test_devices(field: str, least: int, most: int) -> None:
    for number, admitted in ((least - 1, False), (least, True), (most, True), (most + 1, False)):
        with nullcontext() if admitted else pytest.raises(ValueError, match=field):
            replace(DEVICE, **{field: number})
