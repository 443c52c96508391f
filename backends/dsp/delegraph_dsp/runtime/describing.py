"""A program -> what is in its blob: its operators, their kernels, and the constants that each reads."""

from __future__ import annotations

from collections.abc import Iterator

from delegraph.interfaces import DelegateDescription, DelegateNode, DescribedTensor
from delegraph_dsp.device import Device
from delegraph_dsp.program import Launch, Program, Region, Result, Transfer
from delegraph_machines.constant_reads import ConstantReads, read_by
from delegraph_machines.hazards import Range

__all__ = ["described"]

_CONSTANTS = 0
"""The number of the region."""


def described(program: Program, device: Device, blob_nbytes: int) -> DelegateDescription:
    """A node is an operator, all of whose commands count as one; it is called by its kernels, `matmul_int+rescale`."""
    reads = ConstantReads([operator.name for operator in program.operators])
    kernels: dict[int, dict[str, None]] = {}
    for command in program.commands:
        if isinstance(command, Transfer) and command.load and command.region == _CONSTANTS:
            reads.add(command.task, _rows(command))
        elif isinstance(command, Launch):
            kernels.setdefault(command.operator, {})[command.kernel] = None
    key = program.constants_key
    weights = reads.weights({"CONSTANTS": program.constants}, {"CONSTANTS": key} if key else {})
    return DelegateDescription(
        nodes=tuple(
            DelegateNode(
                operator.name,
                "+".join(kernels.get(number, ["transfer"])),
                read_by(number, weights),
                () if operator.result is None else (_argument(operator.name, operator.result),),
                debug_id=number,
            )
            for number, operator in enumerate(program.operators)
        ),
        weights=tuple(weight for weight, _ in weights),
        inputs=tuple(_argument(f"input_{place}", region) for place, region in enumerate(program.inputs)),
        outputs=tuple(_argument(f"output_{place}", region) for place, region in enumerate(program.outputs)),
        device=device.name,
        parts={"loops and commands": blob_nbytes - (0 if key else program.regions[_CONSTANTS].nbytes)},
    )


def _rows(transfer: Transfer) -> Iterator[Range]:
    if transfer.stride == transfer.row_nbytes:
        yield Range("CONSTANTS", transfer.begin, transfer.end)
        return
    for row in range(transfer.rows):
        begin = transfer.begin + row * transfer.stride
        yield Range("CONSTANTS", begin, begin + transfer.row_nbytes)


def _argument(name: str, region: Region | Result) -> DescribedTensor:
    return DescribedTensor(name, region.dtype, region.shape)
