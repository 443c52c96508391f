"""Checks of single fields: each yields a text for every violation, to be prefixed with the path of the field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

Violations: TypeAlias = Iterator[str]
"""Texts that begin with the rest of a field's path: `.sizes[1]: is -3, not an integer from 0 to 2147483647`."""

Range: TypeAlias = tuple[int, int]

INT8: Final[Range] = (-(2**7), 2**7 - 1)
INT32: Final[Range] = (-(2**31), 2**31 - 1)
INT64: Final[Range] = (-(2**63), 2**63 - 1)
UINT32: Final[Range] = (0, 2**32 - 1)
UINT64: Final[Range] = (0, 2**64 - 1)


def under(path: str, violations: Iterable[str]) -> Violations:
    """`violations` of a field, with the path that leads to it."""
    for violation in violations:
        yield path + violation


def integer(value: object, allowed: Range) -> Violations:
    """A Python integer within `allowed`, both ends included."""
    if not isinstance(value, int):
        yield f": is {value!r}, a {type(value).__name__}, not an integer"
    elif not allowed[0] <= value <= allowed[1]:
        yield f": is {value}, not within {allowed[0]} to {allowed[1]}"


def integers(values: Iterable[object], allowed: Range) -> Violations:
    """A tuple of Python integers within `allowed`."""
    for index, value in enumerate(values):
        if not (isinstance(value, int) and allowed[0] <= value <= allowed[1]):
            yield from under(f"[{index}]", integer(value, allowed))


def indices(values: tuple[int, ...], count: int, what: str, lowest: int = 0) -> Violations:
    """A tuple of indices of the `count` things that `what` names; `lowest` is -1 where that stands for none."""
    for index, value in enumerate(values):
        if not (isinstance(value, int) and lowest <= value < count):
            yield f"[{index}]: is {value!r}, but there are {count} {what}"


def index(value: object, count: int, what: str) -> Violations:
    """The index of one of the `count` things that `what` names."""
    if not (isinstance(value, int) and 0 <= value < count):
        yield f": is {value!r}, but there are {count} {what}"


def text(value: object) -> Violations:
    """A string that UTF-8 can say."""
    if not isinstance(value, str):
        yield f": is a {type(value).__name__}, not a string"
    elif not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            yield f": cannot be written as UTF-8 ({error.reason})"


def name(value: object) -> Violations:
    """A string that something is looked up by: not empty, and without the NUL that would end it early in C++."""
    yield from text(value)
    if value == "":
        yield ": is empty"
    elif isinstance(value, str) and "\0" in value:
        yield f": is {value!r}, with a NUL in it"
