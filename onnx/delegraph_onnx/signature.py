"""How a delegate's inputs and outputs are described: a record that backends put into their blobs as they like."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TensorInfo"]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output of the graph. A dynamic dim is the text of its symbol; `scalar` marks a number, or an argument
    that the graph does not take."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    scalar: bool = False
