"""A delegate's blob: a compiled partition -> named blocks of bytes -> a compiled partition.

    header     16 x u32: SRAM and DRAM in bytes, rounding, then zeros
    device     the description, TOML, of the machine that it was compiled for
    stream     commands: `command_stream.py`
    tables     region TABLES: scales, lookup tables, constant operands
    weights    region WEIGHTS; or
    weights_key    their key in the program's named data, with their size, where they lie outside of the blob
    inputs, outputs    16 x i32 for each: region, offset, dtype, rank, 6 dims, 6 strides in bytes
    operators  a line for each: the graph's node that a command's `operator` is an index of

Blocks are aligned to 16 bytes (`delegraph_machines.blocks`). The same idea as the container of ExecuTorch's Ethos-U
backend (`backends/arm/arm_vela.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import Buffer
from delegraph_machines.blocks import read_blocks, write_blocks
from delegraph_npu.commands import Dtype, Region

__all__ = ["BACKEND_ID", "BLOB_VERSION", "ROUNDINGS", "Blob", "IoTensor", "pack", "unpack"]

BACKEND_ID: Final = "NpuBackend"
BLOB_VERSION: Final = 1
ROUNDINGS: Final = ("single", "double")
"""How a product is shifted: TOSA's SINGLE_ROUND, or DOUBLE_ROUND as in TFLite and CMSIS-NN."""

_KIND: Final = b"NPU1"
_RECORD: Final = 16
_RANK: Final = 6


@dataclass(frozen=True, slots=True)
class IoTensor:
    """An input or output of the delegate, in torch's order of dims, and where its elements lie, strides in bytes."""

    region: Region
    offset: int
    dtype: Dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def span(self) -> int:
        """Bytes from its first element's first to its last element's last."""
        if not prod(self.shape):
            return 0
        steps = zip(self.shape, self.strides, strict=True)
        return sum((dim - 1) * stride for dim, stride in steps) + self.dtype.nbytes


@dataclass(frozen=True, slots=True)
class Blob:
    """What `pack` writes. `weights` are bytes, or, where they lie in the named data, their key and size in bytes."""

    device: str
    rounding: str
    sram_nbytes: int
    dram_nbytes: int
    stream: Buffer
    tables: Buffer
    weights: Buffer | tuple[str, int]
    inputs: tuple[IoTensor, ...]
    outputs: tuple[IoTensor, ...]
    operators: tuple[str, ...]


def pack(blob: Blob) -> bytes:
    """The bytes of `blob`."""
    header = [blob.sram_nbytes, blob.dram_nbytes, ROUNDINGS.index(blob.rounding)]
    blocks: dict[str, bytes] = {
        "header": np.array(header + [0] * (_RECORD - len(header)), "<u4").tobytes(),
        "device": blob.device.encode(),
        "stream": bytes(blob.stream),
        "tables": bytes(blob.tables),
        "inputs": _records(blob.inputs),
        "outputs": _records(blob.outputs),
        "operators": "\n".join(blob.operators).encode(),
    }
    if isinstance(blob.weights, tuple):
        key, nbytes = blob.weights
        blocks["weights_key"] = f"{nbytes} {key}".encode()
    else:
        blocks["weights"] = bytes(blob.weights)
    return write_blocks(_KIND, blocks)


def _records(tensors: Sequence[IoTensor]) -> bytes:
    records = np.zeros((len(tensors), _RECORD), "<i4")
    for record, tensor in zip(records, tensors, strict=True):
        rank = len(tensor.shape)
        if rank > _RANK:
            raise ValueError(f"a delegate's tensor has at most {_RANK} dims, not {rank}")
        record[:4] = tensor.region, tensor.offset, tensor.dtype, rank
        record[4 : 4 + rank] = tensor.shape
        record[4 + _RANK : 4 + _RANK + rank] = tensor.strides
    return records.tobytes()


def unpack(data: Buffer) -> Blob:
    """The blob that `data` is; buffers in it are views. Raises `DelegateInvalidCompatibility` for what is none."""
    blocks = read_blocks(memoryview(data), _KIND)
    header = _words(blocks, "header", "<u4")
    if len(header) != 1 or header[0][2] >= len(ROUNDINGS):
        raise _refused("header", "it is not one of this version's")
    sram_nbytes, dram_nbytes, rounding = header[0][:3]
    return Blob(
        device=_text(blocks, "device"),
        rounding=ROUNDINGS[rounding],
        sram_nbytes=sram_nbytes,
        dram_nbytes=dram_nbytes,
        stream=_block(blocks, "stream"),
        tables=_block(blocks, "tables"),
        weights=_weights_key(blocks) if "weights_key" in blocks else _block(blocks, "weights"),
        inputs=_tensors(blocks, "inputs"),
        outputs=_tensors(blocks, "outputs"),
        operators=tuple(_text(blocks, "operators").split("\n")),
    )


def _block(blocks: Mapping[str, memoryview], name: str) -> memoryview:
    if name not in blocks:
        raise _refused(name, "it is missing")
    return blocks[name]


def _text(blocks: Mapping[str, memoryview], name: str) -> str:
    try:
        return str(_block(blocks, name), "utf-8")
    except UnicodeDecodeError as error:
        raise _refused(name, str(error)) from error


def _words(blocks: Mapping[str, memoryview], name: str, dtype: str) -> list[list[int]]:
    """Records of 16 words."""
    block = _block(blocks, name)
    if block.nbytes % (4 * _RECORD):
        raise _refused(name, f"{block.nbytes} bytes are no whole records of {4 * _RECORD}")
    records: list[list[int]] = np.frombuffer(block, dtype).reshape(-1, _RECORD).tolist()
    return records


def _weights_key(blocks: Mapping[str, memoryview]) -> tuple[str, int]:
    nbytes, _, key = _text(blocks, "weights_key").partition(" ")
    if not (key and nbytes.isascii() and nbytes.isdecimal()):
        raise _refused("weights_key", "it is no size and key")
    return key, int(nbytes)


def _tensors(blocks: Mapping[str, memoryview], name: str) -> tuple[IoTensor, ...]:
    tensors = []
    for region, offset, dtype, rank, *dims in _words(blocks, name, "<i4"):
        try:
            place = Region(region), offset, Dtype(dtype)
        except ValueError as error:
            raise _refused(name, str(error)) from error
        if not 0 <= rank <= _RANK:
            raise _refused(name, f"a tensor of {rank} dims")
        tensors.append(IoTensor(*place, tuple(dims[:rank]), tuple(dims[_RANK : _RANK + rank])))
    return tuple(tensors)


def _refused(name: str, reason: str) -> DelegateInvalidCompatibility:
    return DelegateInvalidCompatibility(f"block {name!r} of a blob of NpuBackend: {reason}; lower the program again")
