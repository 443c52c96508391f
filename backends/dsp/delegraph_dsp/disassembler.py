"""A blob -> text: its device, memory, loops and commands, one to a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from delegraph_dsp.binary import unpack
from delegraph_dsp.isa import Instruction, Loop
from delegraph_dsp.program import Command, Launch, Operand, Program, Transfer, Wait

__all__ = ["disassemble", "program_text"]


def disassemble(blob: bytes | memoryview) -> str:
    """The text of a blob. Raises `DelegateInvalidCompatibility` for bytes that are no blob; a blob that must not run
    has a text."""
    return program_text(unpack(blob))


def program_text(program: Program) -> str:
    """The text of a program."""
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    yield f"tcm {program.tcm_nbytes} bytes"
    for number, region in enumerate(program.regions):
        kind = f" {region.dtype} {list(region.shape)}" if number > 1 else ""
        yield f"region {number}: {region.kind}, {region.nbytes} bytes{kind}"
    for number, loop in enumerate(program.loops):
        yield f"loop {number}: {len(loop.packets)} packets, at least {loop.bound}"
        yield from _packets(loop)
    current = None
    for command in program.commands:
        task = _operator(command)
        if task is not None and task != current:
            current = task
            operator = program.operators[task] if task < len(program.operators) else None
            yield f"{operator.name} = {operator.target}" if operator else f"operator {task}"
        yield f"  {_command(command)}"


def _packets(loop: Loop) -> Iterator[str]:
    for packet in loop.packets:
        yield "  { " + "; ".join(map(_instruction, packet)) + " }" if packet else "  { }"


def _instruction(i: Instruction) -> str:
    target = f"v{i.target} = " if i.target >= 0 else ""
    stream = [f"[{i.stream}]"] if i.stream >= 0 else []
    return " ".join([f"{target}{i.opcode.name}", *stream, *(f"v{source}" for source in i.sources)])


def _operator(command: Command) -> int | None:
    if isinstance(command, Wait):
        return None
    return command.task if isinstance(command, Transfer) else command.operator


def _command(command: Command) -> str:
    if isinstance(command, Wait):
        return f"wait channel {command.channel}"
    if isinstance(command, Launch):
        return _launch(command)
    c = command
    rows = f"{c.rows} x {c.row_nbytes} every {c.stride}" if c.rows > 1 else str(c.row_nbytes)
    outside, inside = f"region {c.region} + {c.begin}", f"tcm + {c.tcm}"
    way = f"{outside} -> {inside}" if c.load else f"{inside} -> {outside}"
    return f"dma {'load' if c.load else 'store'} {rows} bytes, {way}, channel {c.channel}"


def _launch(launch: Launch) -> str:
    operands = ", ".join(map(_operand, launch.operands))
    numbers = [*map(str, launch.integers), *map(repr, launch.reals)]
    loops = ", ".join(f"{trips} x loop {number}" for number, trips in launch.loops)
    return f"{launch.kernel}({operands}; {', '.join(numbers)}): {loops}"


def _operand(operand: Operand) -> str:
    return f"{operand.dtype} {list(operand.shape)} by {list(operand.strides)} at {operand.offset}"


def main() -> None:
    """`python -m delegraph_dsp.disassembler BLOB`."""
    import sys

    for path in sys.argv[1:]:
        print(disassemble(Path(path).read_bytes()), end="")


if __name__ == "__main__":
    main()
