"""A program -> its device, or an error: everything is within its memory, nothing is read before it was waited for.

This runs once, before the program; a valid program touches no byte but its own, whoever wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan, prod

from delegraph.errors import DelegateInvalidCompatibility, InvalidArgument
from delegraph_dsp.device import CHANNELS, Device, device_of
from delegraph_dsp.isa import Loop, fits, resource_bound
from delegraph_dsp.program import (
    ITEM_NBYTES,
    Command,
    Launch,
    Operand,
    Program,
    Result,
    Transfer,
    Wait,
    nbytes_of,
)
from delegraph_dsp.runtime.kernels import check_launch
from delegraph_machines.hazards import Hazard, Hazards, Range

__all__ = ["loop_fault", "validate"]

WORD: int = 64
"""The alignment of places in outer memory."""

MOST_REPEATS: int = 8
"""The most elements of an operand for each byte of the TCM, by strides of 0: a bound on the work of kernels."""


def validate(program: Program) -> Device:
    """The device of the program. Raises `DelegateInvalidCompatibility` for a program that must not run on it."""
    try:
        device = device_of(program.device, "block 'device'")
    except InvalidArgument as error:
        raise _refused(str(error)) from error
    faults = _faults(program, device)
    fault = next(faults, None)
    if fault is not None:
        raise _refused(fault)
    return device


def _refused(what: str) -> DelegateInvalidCompatibility:
    return DelegateInvalidCompatibility(f"a blob of DspBackend must not run: {what}; lower the program again")


def _faults(program: Program, device: Device) -> Iterator[str]:
    """The faults of a program, from the first on; later checks may rely on earlier ones."""
    if program.tcm_nbytes > device.tcm_nbytes:
        yield f"it takes {program.tcm_nbytes} bytes of TCM, and {device.name} has {device.tcm_nbytes}"
    yield from _region_faults(program)
    for operator in program.operators:
        if operator.result is not None and operator.result.end > _room(operator.result, program):
            yield f"the result of {operator.name:.80} lies in no memory"
    for number, loop in enumerate(program.loops):
        fault = loop_fault(loop, device)
        if fault is not None:
            yield f"loop {number}: {fault}"
    hazards = Hazards()
    for number, command in enumerate(program.commands):
        fault = _command_fault(command, program, device) or _hazard(command, hazards)
        if fault is not None:
            yield f"command {number}: {fault}"
    if hazards.unfinished():
        yield f"nothing waits for channels {hazards.unfinished()} at the end"


def _region_faults(program: Program) -> Iterator[str]:
    kinds = [region.kind for region in program.regions]
    ordered = ["constants", "scratch", *sorted(kinds[2:])]
    if kinds != ordered or "constants" in kinds[2:] or "scratch" in kinds[2:]:
        yield "its regions are not the constants, the scratch memory, the inputs and the outputs"
    if program.regions[0].nbytes != len(program.constants):
        yield f"its constants have {len(program.constants)} bytes, not {program.regions[0].nbytes}"
    stores = [c for c in program.commands if isinstance(c, Transfer) and not c.load]
    if program.regions[1].nbytes > sum(c.nbytes + WORD for c in stores):
        yield f"it takes {program.regions[1].nbytes} bytes of scratch memory, more than it writes"
    for region in program.regions[2:]:
        if region.nbytes != nbytes_of(region.dtype, region.shape):
            yield f"an {region.kind} of {region.dtype} {region.shape} does not have {region.nbytes} bytes"


def _room(result: Result, program: Program) -> int:
    """The bytes of the memory in which a result lies; -1 if there is none."""
    if result.region is None:
        return program.tcm_nbytes
    return program.regions[result.region].nbytes if result.region < len(program.regions) else -1


# ---- loops --------------------------------------------------------------------------------------------------------


def loop_fault(loop: Loop, device: Device) -> str | None:
    """The reason why these packets cannot run: too full, an unknown register, a result that is read too early."""
    if not loop.packets:
        return "it has no packets"
    for number, packet in enumerate(loop.packets):
        if not fits(packet, device.units, device.packet_width):
            return f"packet {number} needs more units than there are"
    for i in loop.instructions:
        if not all(0 <= register < device.vector_registers for register in i.sources):
            return f"{i.opcode.name} reads a register that there is not"
        if not -1 <= i.target < device.vector_registers:
            return f"{i.opcode.name} writes a register that there is not"
    if loop.bound != resource_bound(loop.instructions, device.units, device.packet_width):
        return "its least number of packets is not the one stated"
    return _early_read(loop)


def _early_read(loop: Loop) -> str | None:
    """Two iterations, packet by packet: a register is read before its result has arrived."""
    arrives: dict[int, int] = {}
    for time, packet in enumerate(loop.packets * 2):
        for i in packet:
            early = next((source for source in i.sources if arrives.get(source, 0) > time), None)
            if early is not None:
                return f"packet {time % len(loop.packets)} reads register {early} before it is there"
        for i in packet:
            arrives[i.target] = time + i.opcode.latency
    return None


# ---- commands -----------------------------------------------------------------------------------------------------


def _command_fault(command: Command, program: Program, device: Device) -> str | None:
    if isinstance(command, Wait):
        return None if command.channel < CHANNELS else f"there is no channel {command.channel}"
    if isinstance(command, Transfer):
        return _transfer_fault(command, program)
    return _launch_fault(command, program, device)


def _transfer_fault(transfer: Transfer, program: Program) -> str | None:
    if transfer.channel >= CHANNELS:
        return f"there is no channel {transfer.channel}"
    if transfer.task >= len(program.operators):
        return f"there is no operator {transfer.task}"
    if transfer.region >= len(program.regions):
        return f"there is no region {transfer.region}"
    region = program.regions[transfer.region]
    if region.kind not in (("constants", "scratch", "input", "output") if transfer.load else ("scratch", "output")):
        return f"it {'reads' if transfer.load else 'writes'} region {transfer.region}, of {region.kind}"
    if transfer.row_nbytes < 1 or transfer.rows < 1 or (transfer.rows > 1 and transfer.stride < transfer.row_nbytes):
        return "its rows are empty, or overlap"
    if transfer.end > region.nbytes:
        return f"bytes up to {transfer.end} of region {transfer.region}, which has {region.nbytes}"
    if transfer.stride > region.nbytes:
        return f"rows every {transfer.stride} bytes of region {transfer.region}, which has {region.nbytes}"
    if transfer.tcm + transfer.nbytes > program.tcm_nbytes:
        return f"bytes up to {transfer.tcm + transfer.nbytes} of the TCM, of which it has {program.tcm_nbytes}"
    return None


def _launch_fault(launch: Launch, program: Program, device: Device) -> str | None:
    if launch.operator >= len(program.operators):
        return f"there is no operator {launch.operator}"
    if any(number >= len(program.loops) for number, _ in launch.loops):
        return "it names a loop that there is not"
    if any(isnan(real) for real in launch.reals):
        return "one of its reals is not a number"
    for number, operand in enumerate(launch.operands):
        if operand.end > program.tcm_nbytes:
            return f"operand {number} reaches to byte {operand.end} of the TCM, of which it has {program.tcm_nbytes}"
        if operand.offset % ITEM_NBYTES[operand.dtype]:
            return f"operand {number}, of {operand.dtype}, lies at {operand.offset}"
        if prod(operand.shape) > MOST_REPEATS * device.tcm_nbytes:
            return f"operand {number} repeats its elements to {prod(operand.shape)}"
        if any(stride * ITEM_NBYTES[operand.dtype] >= 2**62 for stride in operand.strides):
            return f"operand {number} has strides that no memory has"
    fault = check_launch(launch)
    return None if fault is None else f"kernel {launch.kernel}: {fault}"


def _hazard(command: Command, hazards: Hazards) -> str | None:
    try:
        if isinstance(command, Wait):
            hazards.wait(command.channel)
        elif isinstance(command, Transfer):
            outside = Range(f"region {command.region}", command.begin, command.end)
            inside = Range("TCM", command.tcm, command.tcm + command.nbytes)
            reads, writes = ([outside], [inside]) if command.load else ([inside], [outside])
            hazards.start(command.channel, reads, writes)
        else:
            *reads, written = [_range(operand) for operand in command.operands]
            hazards.access(reads, [written])
    except Hazard as hazard:
        return str(hazard)
    return None


def _range(operand: Operand) -> Range:
    return Range("TCM", operand.offset, operand.end)
