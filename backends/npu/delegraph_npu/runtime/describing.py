"""A program for the machine -> what is in its blob: its operators, and the constants that each reads."""

from __future__ import annotations

from itertools import zip_longest

from delegraph.interfaces import DelegateDescription, DelegateNode, DescribedTensor
from delegraph_machines.constant_reads import ConstantReads, read_by
from delegraph_npu.accesses import dma_ranges, ranges_of
from delegraph_npu.blob import IoTensor, NamedWeights
from delegraph_npu.commands import DmaStart, DmaWait, Region, Stop
from delegraph_npu.runtime.program import Program

__all__ = ["described"]

_CONSTANT = (Region.WEIGHTS.name, Region.TABLES.name)


def described(program: Program) -> DelegateDescription:
    """A node is an operator, all of whose commands count as one; it is called by the first of them that computes."""
    blob, kinds = program.blob, dict[int, str]()
    reads = ConstantReads(blob.operators)
    for command in program.commands:
        if isinstance(command, Stop | DmaWait):
            continue
        if isinstance(command, DmaStart):
            read = [dma_ranges(command)[0]]
        else:
            read, _ = ranges_of(command)
            kinds.setdefault(command.operator, type(command).__name__)
        reads.add(command.operator, (place for place in read if place.memory in _CONSTANT))
    keys = {Region.WEIGHTS.name: blob.weights.key} if isinstance(blob.weights, NamedWeights) else {}
    weights = reads.weights({region.name: data.data for region, data in program.constants.items()}, keys)
    return DelegateDescription(
        nodes=tuple(
            DelegateNode(
                name,
                kinds.get(number, "DmaStart"),
                read_by(number, weights),
                () if value is None else (_argument(name, value),),
                debug_id=name,
            )
            for number, (name, value) in enumerate(zip_longest(blob.operators, blob.values))
        ),
        weights=tuple(weight for weight, _ in weights),
        inputs=tuple(_argument(f"input_{place}", tensor) for place, tensor in enumerate(blob.inputs)),
        outputs=tuple(_argument(f"output_{place}", tensor) for place, tensor in enumerate(blob.outputs)),
        device=program.device.name,
        options={"rounding": blob.rounding},
        parts={"commands": memoryview(blob.stream).nbytes},
    )


def _argument(name: str, tensor: IoTensor) -> DescribedTensor:
    return DescribedTensor(name, tensor.dtype.name.lower(), tensor.shape)
