"""Alignment of bytes (ExecuTorch `exir/_serialize/padding.py`)."""

from __future__ import annotations

__all__ = ["aligned_size", "pad_to", "padding_required"]


def pad_to(data: bytes, length: int) -> bytes:
    """`data` and zeros, `length` bytes in all. Raises ValueError if it is longer already."""
    if length < len(data):
        raise ValueError(f"the data have {len(data)} bytes, more than the {length} to pad them to")
    return data.ljust(length, b"\0")


def padding_required(offset: int, alignment: int) -> int:
    """Bytes from `offset` to the next multiple of `alignment`."""
    return -offset % alignment


def aligned_size(input_size: int, alignment: int) -> int:
    """`input_size` rounded up to a multiple of `alignment`."""
    return input_size + padding_required(input_size, alignment)
