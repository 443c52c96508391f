"""A number on the command line -> the number, or an error that says which ones an option takes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import inf, isnan
from typing import Final, TypeVar

__all__ = ["count", "decibels", "positive", "seconds", "share"]

_N = TypeVar("_N", int, float)


def _reader(kind: type[_N], allowed: Callable[[_N], bool], problem: str) -> Callable[[str], _N]:
    """A type for argparse, which raises `argparse.ArgumentTypeError` for a number that is not `allowed`."""

    def read(text: str) -> _N:
        try:
            number = kind(text)
        except ValueError:
            number = None
        if number is None or not allowed(number):
            raise argparse.ArgumentTypeError(f"{text} {problem}")
        return number

    return read


positive: Final = _reader(int, lambda number: number > 0, "is not a positive number")
count: Final = _reader(int, lambda number: number >= 0, "is not a number from 0 on")
seconds: Final = _reader(float, lambda number: 0 < number < inf, "is not a number of seconds above 0")
share: Final = _reader(float, lambda number: 0 <= number < inf, "is not a share, such as 0.01")
decibels: Final = _reader(float, lambda number: not isnan(number), "is not a number of dB")
