"""The text of a stream: a line for each command, of every kind, and the command line that shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from backends.npu.tests.cases import CASES_BY_NAME, cases
from backends.npu.tests.harness import Builder, fetched

from delegraph.program import Program, serialize_program
from delegraph.program.schema import BackendDelegate, Chain, ExecutionPlan
from delegraph_npu.accesses import inputs_of
from delegraph_npu.blob import unpack
from delegraph_npu.commands import Conv
from delegraph_npu.disassemble import blob_text, command_text, main


def test_a_stream_as_text() -> None:
    case = CASES_BY_NAME["conv, relu6"]
    command = case.command
    assert isinstance(command, Conv)
    builder = Builder(case.builder.sram, 0, case.builder.weights, case.builder.tables)
    _, fetch = fetched(builder, command.weights)
    text = blob_text(unpack(builder.blob([*fetch, command], inputs_of(command), [command.ofm])))
    nbytes = len(builder.weights)
    zero_point, out_zero_point = command.zero_point, command.requantize.zero_point
    words = re.findall(r"^ +(\d+)  ", text, re.MULTILINE)
    assert text == "\n".join(
        [
            f"  device ethos-u55-128, single rounding, SRAM {builder.sram}, DRAM 0 bytes",
            f"  weights {nbytes} bytes, tables 48 bytes",
            "  input sram[0x0] int8 1x5x6x3 by 90x18x3x1",
            "  output sram[0x60] int8 1x5x6x4 by 120x24x4x1",
            "  operator:",
            f"    {words[0]:>6}  dma_start 0: weights[0x0] by 0x0 -> sram[0xe0] by 0x0, 1x1x{nbytes} bytes",
            f"    {words[1]:>6}  dma_wait 0",
            f"    {words[2]:>6}  conv sram[0x0] int8 1x5x6x3 by 90x18x3x1 - {zero_point}, kernel 3x3, pads 1x1x1x1,"
            f" weights weights[0x0:{nbytes:#x}], scales tables[0x0:0x30] + {out_zero_point} in -7..61"
            " -> sram[0x60] int8 1x5x6x4 by 120x24x4x1",
            f"    {words[3]:>6}  stop",
        ]
    )


@pytest.mark.parametrize("name", CASES_BY_NAME)
def test_every_command_has_a_line_of_its_own(name: str) -> None:
    texts = [command_text(case.command) for case in cases()]
    text = command_text(CASES_BY_NAME[name].command)
    assert texts.count(text) == 1 and "\n" not in text


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = CASES_BY_NAME["conv 3x3"]
    blob = case.builder.blob([case.command], [], [])
    plan = ExecutionPlan("forward", (), (), (), (Chain(()),), delegates=(BackendDelegate("NpuBackend", 0),))
    file = tmp_path / "m.pte"
    file.write_bytes(serialize_program(Program((plan,), delegate_data=(blob,))))
    assert main([str(file)]) == 0
    assert capsys.readouterr().out == f"forward, delegate 0\n{blob_text(unpack(blob))}\n"
    assert main([str(file), "--cost"]) == 0
    assert re.search(r"conv .* ; \d+ cycles, 3240 MACs, \d+ bytes of SRAM", capsys.readouterr().out)
    assert main([str(tmp_path / "none.pte")]) == 1
    assert "error: " in capsys.readouterr().err
