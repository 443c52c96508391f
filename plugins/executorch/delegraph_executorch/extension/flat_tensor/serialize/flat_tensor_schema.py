"""ExecuTorch's `executorch.extension.flat_tensor.serialize.flat_tensor_schema`: a `.ptd` as plain dataclasses."""

from dataclasses import dataclass

from delegraph_executorch.exir.tensor import TensorLayout

__all__ = ["DataSegment", "FlatTensor", "NamedData"]


@dataclass
class DataSegment:
    """Where a segment lies, in bytes from the first."""

    offset: int
    size: int


@dataclass
class NamedData:
    """The segment under a key, and of a tensor how it is laid out."""

    key: str
    segment_index: int
    tensor_layout: TensorLayout | None = None


@dataclass
class FlatTensor:
    """The tables of a `.ptd`."""

    version: int
    segments: list[DataSegment]
    named_data: list[NamedData]
