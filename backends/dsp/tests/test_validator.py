"""Strangers' blobs: whatever they say, they are refused with a reason or touch nothing but their own memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from backends.dsp.tests.harness import Context, Run, small
from tests.blobs import changed

from delegraph.errors import Cancelled, DelegateInvalidCompatibility, DelegraphError, Internal, InvalidArgument
from delegraph.interfaces import BackendInitContext, BlobStamp, Verdict
from delegraph_dsp.binary import FORMAT, pack, unpack
from delegraph_dsp.disassembler import disassemble
from delegraph_dsp.isa import Loop
from delegraph_dsp.program import Command, Launch, Program, Region, Transfer, Wait
from delegraph_dsp.runtime.backend import DspBackend
from delegraph_dsp.runtime.machine import Machine
from delegraph_dsp.runtime.validator import validate


@pytest.fixture(scope="module")
def compiled() -> Run:
    """A product and a softmax in tiles, with constants and scratch memory."""
    weight = torch.randn(48, 40, generator=torch.Generator().manual_seed(1)).half()

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", weight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x @ self.weight, -1) + 1.0

    return Run(Model(), [torch.randn(64, 48).half()], small(6144))


@pytest.fixture(scope="module")
def program(compiled: Run) -> Program:
    return compiled.compiled.program


def first(program: Program, kind: type, where: Callable[[Any], bool] = lambda command: True) -> int:
    return next(n for n, c in enumerate(program.commands) if isinstance(c, kind) and where(c))


def with_command(program: Program, number: int, **changes: Any) -> Program:
    commands: list[Command] = list(program.commands)
    commands[number] = replace(commands[number], **changes)  # type: ignore[type-var]
    return replace(program, commands=tuple(commands))


def with_operand(program: Program, **changes: Any) -> Program:
    number = first(program, Launch)
    launch = program.commands[number]
    assert isinstance(launch, Launch)
    return with_command(program, number, operands=(replace(launch.operands[0], **changes), *launch.operands[1:]))


def without(program: Program, number: int) -> Program:
    return replace(program, commands=program.commands[:number] + program.commands[number + 1 :])


def test_bytes_there_and_back(program: Program) -> None:
    again = unpack(pack(program))
    assert replace(again, constants=bytes(again.constants)) == program
    assert len(program.commands) > 20 and program.regions[1].nbytes > 0


REFUSED: list[tuple[Callable[[Program], Program], str]] = [
    (lambda p: replace(p, tcm_nbytes=1 << 40), "and hvx-4mb has 6144"),
    (lambda p: replace(p, device="name = 1"), "block 'device' does not describe a device"),
    (lambda p: replace(p, regions=p.regions[1:]), "regions are not the constants, the scratch memory"),
    (lambda p: replace(p, regions=(replace(p.regions[0], nbytes=3), *p.regions[1:])), "its constants have"),
    (lambda p: replace(p, regions=(p.regions[0], Region("scratch", 1 << 50), *p.regions[2:])), "more than it writes"),
    (lambda p: replace(p, regions=(*p.regions[:-1], replace(p.regions[-1], nbytes=7))), "does not have 7 bytes"),
    (lambda p: with_command(p, first(p, Transfer), begin=1 << 40), "which has"),
    (lambda p: with_command(p, first(p, Transfer), rows=1 << 31), "rows are empty, or overlap|which has"),
    (lambda p: with_command(p, first(p, Transfer), rows=1, row_nbytes=2, stride=1 << 63), "rows every 92233720368547"),
    (lambda p: with_command(p, first(p, Transfer), rows=0), "its rows are empty, or overlap"),
    (lambda p: with_command(p, first(p, Transfer), tcm=6144), "of the TCM, of which it has"),
    (lambda p: with_command(p, first(p, Transfer), region=9), "there is no region 9"),
    (lambda p: with_command(p, first(p, Transfer), channel=7), "there is no channel 7"),
    (lambda p: with_command(p, first(p, Transfer), task=99), "there is no operator 99"),
    (lambda p: with_command(p, first(p, Transfer, lambda c: not c.load), region=0), "it writes region 0, of constants"),
    (lambda p: with_command(p, first(p, Transfer, lambda c: not c.load), region=2), "it writes region 2, of input"),
    (lambda p: with_command(p, first(p, Wait), channel=9), "there is no channel 9"),
    (lambda p: without(p, first(p, Wait)), "before it has arrived: nothing waited for channel 0"),
    (lambda p: without(p, len(p.commands) - 1), "nothing waits for channels"),
    (lambda p: with_operand(p, offset=1 << 40), "reaches to byte"),
    (lambda p: with_operand(p, offset=1), "of float16, lies at 1"),
    (lambda p: with_operand(p, strides=(1 << 62, 1)), "reaches to byte|strides that no memory has"),
    (lambda p: with_operand(p, shape=(3, 5)), "shapes, .* do not go together"),
    (lambda p: with_operand(p, shape=(1 << 31, 48), strides=(0, 1)), "repeats its elements to"),
    (lambda p: with_operand(p, dtype="bool"), "operand 0 is bool, not float16"),
    (lambda p: with_command(p, first(p, Launch), operator=99), "there is no operator 99"),
    (lambda p: with_command(p, first(p, Launch), loops=((99, 1),)), "it names a loop that there is not"),
    (lambda p: with_command(p, first(p, Launch), integers=(1, 2)), "2 integers and 0 reals, not 0 and 0"),
    (lambda p: with_command(p, first(p, Launch), reals=(float("nan"),)), "one of its reals is not a number"),
    (lambda p: with_command(p, first(p, Launch), operands=()), "0 operands, not 4"),
    (lambda p: replace(p, loops=(Loop((), 0), *p.loops[1:])), "loop 0: it has no packets"),
]


@pytest.mark.parametrize(("change", "reason"), REFUSED, ids=[reason[:30] for _, reason in REFUSED])
def test_what_must_not_run(program: Program, change: Callable[[Program], Program], reason: str) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match=reason):
        validate(unpack(pack(change(program))))


def test_an_output_that_overlaps_itself(program: Program) -> None:
    number = first(program, Launch)
    launch = program.commands[number]
    assert isinstance(launch, Launch)
    out = replace(launch.operands[-1], strides=(0, 1))
    with pytest.raises(DelegateInvalidCompatibility, match="its output overlaps itself"):
        validate(with_command(program, number, operands=(*launch.operands[:-1], out)))


# ---- random bytes -------------------------------------------------------------------------------------------------


def run_between_guards(program: Program) -> None:
    """Run on memory with guards around each region; nothing outside of scratch and outputs may change."""
    guard = 4096
    memory = [np.full(region.nbytes + 2 * guard, 0x5A, np.uint8) for region in program.regions]
    memory[0][guard:-guard] = np.frombuffer(program.constants, np.uint8)
    before = [array.copy() for array in memory]
    with suppress(InvalidArgument):  # an index that is not of the table
        Machine(program).run([array[guard : array.size - guard] for array in memory])
    for region, array, old in zip(program.regions, memory, before, strict=True):
        if region.kind in ("scratch", "output"):
            array[guard:-guard] = old[guard:-guard]
        np.testing.assert_array_equal(array, old)


def test_random_changes_are_refused_or_stay_within_memory(compiled: Run) -> None:
    source = random.Random(7)
    ran = 0
    for _ in range(150):
        try:
            program = unpack(changed(FORMAT, compiled.blob, source))
            validate(program)
        except DelegateInvalidCompatibility:
            continue
        ran += 1
        if ran <= 12:
            run_between_guards(program)
    assert 0 < ran < 150


def test_blobs_that_end_early(compiled: Run) -> None:
    for size in (0, 3, 40, 300, len(compiled.blob) // 2):
        with pytest.raises(DelegateInvalidCompatibility):
            unpack(compiled.blob[:size])


# ---- the backend --------------------------------------------------------------------------------------------------


def test_versions_of_blobs() -> None:
    backend = DspBackend()
    stamps = {version: BlobStamp("DspBackend", "delegraph-dsp", "0.1.0", version) for version in (1, 2, 3)}
    verdicts = {version: backend.check(stamp).verdict for version, stamp in stamps.items()}
    assert verdicts == {1: Verdict.RECOMPILE, 2: Verdict.OK, 3: Verdict.REFUSE}
    assert "install a newer release of the backend" in backend.check(stamps[3]).reason
    assert backend.check(None).verdict is Verdict.OK


def test_calls_with_other_arguments_than_it_was_compiled_for(compiled: Run) -> None:
    out = np.zeros((64, 40), np.float16)
    with pytest.raises(Internal, match="takes 1 inputs and 1 outputs, and was called with 1"):
        compiled.backend.execute(Context(), compiled.handle, [out])
    with pytest.raises(Internal, match=r"input of .* is float16 \(64, 48\), not float16 \(64, 40\)"):
        compiled.backend.execute(Context(), compiled.handle, [out, out])
    assert compiled.backend.num_outputs(compiled.handle) == 1


def test_forks_run_by_themselves_and_a_run_can_be_stopped(compiled: Run) -> None:
    x = torch.randn(64, 48).half()
    fork = compiled.backend.fork(BackendInitContext("forward"), compiled.handle)
    out = np.zeros((64, 40), np.float16)
    compiled.backend.cancel(fork, True)
    with pytest.raises(Cancelled, match="a delegate of DspBackend was stopped between two commands"):
        compiled.backend.execute(Context(), fork, [x.numpy(), out])
    compiled.backend.cancel(fork, False)
    compiled.backend.execute(Context(), fork, [x.numpy(), out])
    np.testing.assert_array_equal(out, compiled(x)[0])


def test_arguments_that_do_not_lie_densely(compiled: Run) -> None:
    x = torch.randn(64, 48).half()
    wide, out = np.zeros((64, 96), np.float16), np.zeros((64, 80), np.float16)
    wide[:, ::2] = x.numpy()
    compiled.backend.execute(Context(), compiled.handle, [wide[:, ::2], out[:, ::2]])
    np.testing.assert_array_equal(out[:, ::2], compiled(x)[0])
    assert not out[:, 1::2].any()


def test_an_index_beyond_the_table_is_an_error_of_the_caller() -> None:
    table, index = torch.randn(5, 4).half(), torch.tensor([0, 4])
    run = Run(torch.nn.functional.embedding, [index, table])
    assert run(index, table)[0].shape == (2, 4)
    with pytest.raises(InvalidArgument, match="index 5 is not of a row of a table with 5"):
        run(torch.tensor([0, 5]), table)


def test_the_disassembly_says_what_runs(compiled: Run) -> None:
    text = disassemble(compiled.blob)
    for part in (
        "region 0: constants",
        "vmpyf",
        "dma load",
        "wait channel",
        "softmax(float16",
        "aten::softmax",
        " x loop ",
    ):
        assert part in text
    assert text == disassemble(compiled.blob)
    with pytest.raises(DelegraphError):
        disassemble(b"no blob")
