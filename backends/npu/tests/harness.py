"""Commands -> a blob -> outputs: what the tests of this distribution share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from delegraph.interfaces import BackendExecutionContext, BackendInitContext
from delegraph_npu.accesses import inputs_of
from delegraph_npu.blob import Blob, IoTensor, pack
from delegraph_npu.command_stream import encode
from delegraph_npu.commands import (
    Address,
    Block,
    Command,
    Computing,
    DmaStart,
    DmaWait,
    Dtype,
    FeatureMap,
    Region,
    Stop,
    dense,
)
from delegraph_npu.device import device_text
from delegraph_npu.runtime.backend import NpuBackend
from delegraph_npu.runtime.output_stage import NUMPY_DTYPES
from delegraph_npu.weights import compress

DEVICE, _ = device_text("ethos-u55-128")
TABLE_ALIGNMENT = 16


@dataclass
class Builder:
    """Where a test puts feature maps, weights and tables, and the blob of commands on them."""

    sram: int = 0
    dram: int = 0
    weights: bytearray = field(default_factory=bytearray)
    tables: bytearray = field(default_factory=bytearray)

    def map(self, shape: Sequence[int], dtype: Dtype = Dtype.INT8, region: Region = Region.SRAM) -> FeatureMap:
        """A dense feature map where nothing lies yet."""
        one = dense(region, self.dram if region is Region.DRAM else self.sram, cast(Any, tuple(shape)), dtype)
        end = one.offset + -(-one.span // TABLE_ALIGNMENT) * TABLE_ALIGNMENT
        if region is Region.DRAM:
            self.dram = end
        else:
            self.sram = end
        return one

    def weight(self, values: NDArray[np.int8]) -> Block:
        """Compressed weights."""
        return _put(self.weights, Region.WEIGHTS, compress(values))

    def table(self, values: NDArray[Any]) -> Block:
        """A table, as it lies."""
        return _put(self.tables, Region.TABLES, values.tobytes())

    def scales(self, bias: Any, multiplier: Any, shift: Any) -> Block:
        """Biases, multipliers and shifts, one for each channel."""
        return self.table(np.stack(np.broadcast_arrays(bias, multiplier, shift), axis=-1).astype("<i4"))

    def blob(
        self,
        commands: Sequence[Command],
        inputs: Sequence[FeatureMap | IoTensor],
        outputs: Sequence[FeatureMap | IoTensor],
        rounding: str = "single",
    ) -> bytes:
        """The blob; without a `Stop` among the commands one is put behind them."""
        stream = [*commands, *([] if any(isinstance(one, Stop) for one in commands) else [Stop()])]
        return pack(
            Blob(
                DEVICE, rounding, self.sram, self.dram, encode(stream), bytes(self.tables), bytes(self.weights),
                tuple(map(_io, inputs)), tuple(map(_io, outputs)), ("operator",),
            )
        )  # fmt: skip


def _put(memory: bytearray, region: Region, data: bytes) -> Block:
    memory += bytes(-len(memory) % TABLE_ALIGNMENT)
    block = Block(region, len(memory), len(data))
    memory += data
    return block


def _io(one: FeatureMap | IoTensor) -> IoTensor:
    return one if isinstance(one, IoTensor) else IoTensor(one.region, one.offset, one.dtype, one.shape, one.strides)


def run(blob: bytes, *inputs: NDArray[Any]) -> list[NDArray[Any]]:
    """The outputs of a blob."""
    backend = NpuBackend()
    handle = backend.init(BackendInitContext("forward"), blob, ())
    outputs: list[NDArray[Any]] = [np.zeros(place.shape, place.dtype) for place in handle.machine.outputs]
    context = cast(BackendExecutionContext, SimpleNamespace(event_tracer=None))
    backend.execute(context, handle, [*inputs, *outputs])
    return outputs


def run_one(builder: Builder, command: Computing, inputs: Sequence[NDArray[Any]], rounding: str = "single") -> Any:
    """What becomes of `inputs`, which lie where `command` reads, in its output."""
    return run(builder.blob([command], inputs_of(command), [command.ofm], rounding), *inputs)[0]


def fetched(builder: Builder, block: Block, channel: int = 0) -> tuple[Block, list[Command]]:
    """`block`, and the transfer that brings it into SRAM."""
    offset = builder.sram
    builder.sram += -(-block.nbytes // TABLE_ALIGNMENT) * TABLE_ALIGNMENT
    start = DmaStart(
        channel, Address(block.region, block.offset), Address(Region.SRAM, offset), (1, 1, block.nbytes), (0, 0), (0, 0)
    )
    return Block(Region.SRAM, offset, block.nbytes), [start, DmaWait(channel)]


def random_values(rng: np.random.Generator, one: FeatureMap) -> NDArray[Any]:
    """Any elements that `one` can have; of int32 those of 24 bits, so that sums of them fit."""
    low, high = (one.dtype.low, one.dtype.high) if one.dtype is not Dtype.INT32 else (-(1 << 23), 1 << 23)
    return rng.integers(low, high, one.shape, endpoint=True).astype(NUMPY_DTYPES[one.dtype])
