"""A delegate's blob: a compiled partition -> a header and sections -> a compiled partition.

    header     the device's description, TOML, rounding, sizes of memories, inputs, outputs, the operators' names, and
               where their results lie; key and size of the weights, where they lie in the program's named data
    stream     commands: `command_stream.py`
    tables     region TABLES: scales, lookup tables, constant operands
    weights    region WEIGHTS, unless the header has their key

A `delegraph.interfaces.BlobFormat`, its sections aligned to 16 bytes. The idea (named, aligned blocks, so that a driver
maps what it wants) is that of ExecuTorch's container for Vela, `backends/arm/arm_vela.py`.
"""

from __future__ import annotations

from dataclasses import fields
from math import prod
from typing import Final

from delegraph.interfaces import BlobFormat, Buffer, Size, read_record
from delegraph.lazy_dataclass import dataclass
from delegraph_npu.commands import Dtype, Region

__all__ = ["BACKEND_ID", "BLOB_VERSION", "FORMAT", "ROUNDINGS", "Blob", "IoTensor", "NamedWeights", "pack", "unpack"]

BACKEND_ID: Final = "NpuBackend"
BLOB_VERSION: Final = 2
FORMAT: Final = BlobFormat(BACKEND_ID, "delegraph-npu", (BLOB_VERSION,), alignment=16)
ROUNDINGS: Final = ("single", "double")
"""How a product is shifted: TOSA's SINGLE_ROUND, or DOUBLE_ROUND as in TFLite and CMSIS-NN."""

_SECTIONS: Final = ("stream", "tables", "weights")

_RANK: Final = 6
"""The most dims of an input or output."""


@dataclass(frozen=True, slots=True)
class IoTensor:
    """An input, an output or a result within the delegate, in torch's order of dims; where its elements lie, strides
    in bytes."""

    region: Region
    offset: Size
    dtype: Dtype
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]

    @property
    def span(self) -> int:
        """Bytes from its first element's first to its last element's last."""
        if not prod(self.shape):
            return 0
        steps = zip(self.shape, self.strides, strict=True)
        return sum((dim - 1) * stride for dim, stride in steps) + self.dtype.nbytes


@dataclass(frozen=True, slots=True)
class NamedWeights:
    """Weights that lie in the program's named data, under a key."""

    key: str
    nbytes: Size


@dataclass(frozen=True, slots=True)
class Blob:
    """The content of a blob, which `pack` writes; buffers are views when read. `values` are, for each operator, where
    its result lies once its last command has run; None where it never lies there as a whole."""

    device: str
    rounding: str
    sram_nbytes: Size
    dram_nbytes: Size
    stream: Buffer
    tables: Buffer
    weights: Buffer | NamedWeights
    inputs: tuple[IoTensor, ...]
    outputs: tuple[IoTensor, ...]
    operators: tuple[str, ...]
    values: tuple[IoTensor | None, ...] = ()

    @property
    def tensors(self) -> tuple[IoTensor, ...]:
        """The inputs, the outputs, and the operators' results."""
        return (*self.inputs, *self.outputs, *filter(None, self.values))


def pack(blob: Blob) -> bytes:
    """The bytes of `blob`. Raises `ValueError` for an input or output of too many dims."""
    for tensor in blob.tensors:
        _check(tensor)
    sections = {"stream": blob.stream, "tables": blob.tables}
    header = {field.name: getattr(blob, field.name) for field in fields(blob) if field.name not in _SECTIONS}
    if isinstance(blob.weights, NamedWeights):
        header["named_weights"] = blob.weights
    else:
        header["named_weights"], sections["weights"] = None, blob.weights
    return FORMAT.pack(header, sections)


def unpack(data: Buffer) -> Blob:
    """The blob that `data` is. Raises `DelegateInvalidCompatibility` for what is none."""
    content = FORMAT.unpack(data)
    stream, tables = content.read("stream"), content.read("tables")
    with FORMAT.reading():
        named = content.header["named_weights"]
        weights = content.read("weights") if named is None else read_record(NamedWeights, named)
        blob = read_record(Blob, content.header, stream=stream, tables=tables, weights=weights)
        if blob.rounding not in ROUNDINGS:
            raise ValueError(f"rounding {blob.rounding!r:.40}")
        if len(blob.values) not in (0, len(blob.operators)):
            raise ValueError(f"{len(blob.operators)} operators, and {len(blob.values)} results of them")
        for tensor in blob.tensors:
            _check(tensor)
    return blob


def _check(tensor: IoTensor) -> None:
    """Raise unless NumPy can make an array of it."""
    if len(tensor.shape) > _RANK:
        raise ValueError(f"a delegate's tensor has at most {_RANK} dims, not {len(tensor.shape)}")
    if len(tensor.strides) != len(tensor.shape) or prod(size or 1 for size in tensor.shape) >= 2**60:
        raise ValueError(f"no tensor has shape {tensor.shape} and strides {tensor.strides}")
