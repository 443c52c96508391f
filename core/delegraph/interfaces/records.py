"""JSON that strangers wrote -> dataclasses, each field of the type that it is annotated with. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import EnumMeta
from functools import cache
from types import NoneType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

__all__ = ["Size", "read_record"]

Size: TypeAlias = Annotated[int, "a size"]
"""An integer that is not negative."""

_T = TypeVar("_T")


def read_record(cls: type[_T], entry: Any, **given: Any) -> _T:
    """The dataclass `cls` that a JSON object is; fields that are `given` are not in it, and those with a default may be
    missing.

    A field is a string, a bool, an integer, a float, a `Size`, an enum's value, a record, a tuple or list of any number
    of these, or one of two. Raises `TypeError`, `ValueError` or `KeyError` for anything else.
    """
    entry = _read(dict, entry)
    kinds, optional = _fields(cls)  # type: ignore[arg-type]  # a class is hashable
    left = given.keys() | optional - entry.keys()
    return cls(**given, **{name: _read(kind, entry[name]) for name, kind in kinds.items() if name not in left})


@cache
def _fields(cls: Any) -> tuple[Mapping[str, Any], frozenset[str]]:
    """The types of a record's fields; the names of those that have a default."""
    assert is_dataclass(cls)
    return get_type_hints(cls, include_extras=True), frozenset(f.name for f in fields(cls) if f.default is not MISSING)


_NAMES: Final = {
    str: "a string", bool: "true or false", int: "an integer", float: "a number", list: "a list", dict: "an object",
}  # fmt: skip


def _read(kind: Any, value: Any) -> Any:
    if kind == Size:
        if type(value) is not int or not 0 <= value < 2**63:
            raise TypeError(f"expected a size, not {value!r:.40}")
    elif get_origin(kind) in (tuple, list):
        return get_origin(kind)(_read(get_args(kind)[0], each) for each in _read(list, value))
    elif kind is float and type(value) is int:
        return float(value)
    elif kind in _NAMES:
        if type(value) is not kind or (kind is int and abs(value) >= 2**63):
            raise TypeError(f"expected {_NAMES[kind]}, not {value!r:.40}")
    elif is_dataclass(kind):
        return read_record(kind, value)  # type: ignore[arg-type]
    elif isinstance(kind, EnumMeta):
        return kind(_read(type(next(iter(kind)).value), value))
    else:
        first, second = get_args(kind)
        return value if type(value) is second or (value is None and second is NoneType) else _read(first, value)
    return value
