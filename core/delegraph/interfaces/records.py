"""JSON that strangers wrote -> dataclasses, each field of the type that it is annotated with. No torch."""

from __future__ import annotations

from collections.abc import Callable
from enum import EnumMeta
from functools import cache, partial
from types import NoneType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from delegraph.lazy_dataclass import MISSING, fields, is_dataclass

__all__ = ["Size", "read_record"]

Size: TypeAlias = Annotated[int, "a size"]
"""An integer that is not negative."""

_T = TypeVar("_T")
_Read: TypeAlias = Callable[[object], Any]


def read_record(cls: type[_T], entry: object, **known: Any) -> _T:
    """The dataclass `cls` that a JSON object is; fields that are `known` are not in it, and those with a default may be
    missing.

    A field is a string, a bool, an integer, a float, a `Size`, an enum's value, a record, a tuple or list of any number
    of these, or one of two. Raises `TypeError`, `ValueError` or `KeyError` for anything else.
    """
    members: dict[str, object] = _plain(dict, entry)
    for name, read, is_optional in _fields(cls, *known):  # type: ignore[arg-type]  # a class is hashable
        if not is_optional or name in members:
            known[name] = read(members[name])
    return cls(**known)


@cache
def _fields(cls: Any, *known: str) -> tuple[tuple[str, _Read, bool], ...]:
    """Of each field that is not `known` its name, how it is read, and whether it has a default."""
    kinds = get_type_hints(cls, include_extras=True)
    read = [field for field in fields(cls) if field.name not in known]
    return tuple((field.name, _reader(kinds[field.name]), field.default is not MISSING) for field in read)


_NAMES: Final = {
    str: "a string", bool: "true or false", int: "an integer", float: "a number", list: "a list", dict: "an object",
}  # fmt: skip


@cache
def _reader(kind: Any) -> _Read:
    """How a value of this type is read."""
    if kind == Size:
        return _size
    if get_origin(kind) in (tuple, list):
        make, read = get_origin(kind), _reader(get_args(kind)[0])
        return lambda value: make(map(read, _plain(list, value)))
    if isinstance(kind, EnumMeta):
        member: Any = next(iter(kind))
        read = _reader(type(member.value))  # type: ignore[arg-type]  # as above
        return lambda value: kind(read(value))
    if is_dataclass(kind):
        return partial(read_record, kind)  # type: ignore[arg-type]  # `kind` is a class
    if isinstance(kind, type):
        return partial(_plain, kind)
    first, second = get_args(kind)
    read = _reader(first)
    return lambda value: value if type(value) is second or (value is None and second is NoneType) else read(value)


def _size(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise TypeError(f"expected a size, not {value!r:.40}")
    return value


def _plain(kind: Any, value: Any) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind or (kind is int and abs(value) >= 2**63):
        raise TypeError(f"expected {_NAMES.get(kind, kind.__name__)}, not {value!r:.40}")
    return value
