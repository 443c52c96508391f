"""How a delegate's inputs and outputs are described: records that backends put into their blobs as they like."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PlacesInfo", "TensorInfo"]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output of the graph. A dynamic dim is the text of its symbol; `scalar` marks a number, or an argument
    that the graph does not take."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    scalar: bool = False


@dataclass(frozen=True, slots=True)
class PlacesInfo:
    """Of what lies along a dim of `size` the places `input + first` to `input + last` are asked for; from the end where
    they are below 0, if `from_end`. `tensor` is its name in the model, if it has one: for messages."""

    input: str
    tensor: str
    size: int
    first: int = 0
    last: int = 0
    from_end: bool = False
