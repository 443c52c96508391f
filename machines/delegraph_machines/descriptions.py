"""A device's TOML file -> frozen dataclasses, checked against their fields.

Tables become dataclasses, arrays of tables tuples of them; a field annotated `Size` may be written "256 KiB". The
classes check further conditions in `__post_init__`, and raise `ValueError`.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
import types
import typing
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, Final, NewType, TypeVar

from delegraph.errors import InvalidArgument

__all__ = ["Size", "from_toml", "preset_names", "preset_or_path"]

Size = NewType("Size", int)
"""A number of bytes, written in a file as a number or as "256 KiB"."""

_T = TypeVar("_T")
_UNITS: Final = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE: Final = re.compile(r"(\d+) ?(" + "|".join(_UNITS) + ")")


def from_toml(text: str, cls: type[_T], where: str) -> _T:
    """The frozen dataclass `cls` that `text` describes.

    Raises `InvalidArgument`, which names `where` (a file or preset), the key and its possible values.
    """
    try:
        return _record(tomllib.loads(text), cls, "")
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{where} does not describe a device: {error}") from error


def preset_or_path(package: str, name: str) -> tuple[str, str]:
    """The text of a description, and its name in messages: of the preset `name` of `package` (a file
    `presets/NAME.toml` in it), or of the user's own file where `name` ends in `.toml`.

    Raises `InvalidArgument` for a preset or a file that does not exist.
    """
    if name.endswith(".toml"):
        try:
            return Path(name).read_text("utf-8"), repr(name)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"the device's description can't be read: {error}") from error
    known = preset_names(package)
    if name not in known:
        raise InvalidArgument(
            f"there is no device {name!r}{_suggestion(name, known)}; presets are {', '.join(known)}; "
            "a description of your own is a path that ends in .toml"
        )
    return (resources.files(package) / "presets" / f"{name}.toml").read_text("utf-8"), f"preset {name!r}"


def preset_names(package: str) -> list[str]:
    """The presets that `package` ships, sorted."""
    files = (resources.files(package) / "presets").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def _record(table: Mapping[str, Any], cls: type[_T], path: str) -> _T:
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            raise ValueError(f"{path or 'it'} has {key!r}{_suggestion(key, fields)}; known are {', '.join(fields)}")
    values = {key: _value(value, hints[key], f"{path}.{key}".lstrip(".")) for key, value in table.items()}
    missing = [name for name, field in fields.items() if name not in values and _is_required(field)]
    if missing:
        raise ValueError(f"{path or 'it'} lacks {', '.join(missing)}")
    return cls(**values)


def _value(value: Any, expected: Any, path: str) -> Any:
    origin = typing.get_origin(expected)
    if origin is types.UnionType or origin is typing.Union:
        return _value(value, next(option for option in typing.get_args(expected) if option is not type(None)), path)
    if origin is typing.Literal:
        if value not in typing.get_args(expected):
            raise ValueError(f"{path} is {value!r}; it is one of {', '.join(map(repr, typing.get_args(expected)))}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{path} is {value!r}; it is a list")
        return tuple(_value(item, typing.get_args(expected)[0], f"{path}[{i}]") for i, item in enumerate(value))
    if dataclasses.is_dataclass(expected):
        if not isinstance(value, dict):
            raise ValueError(f"{path} is {value!r}; it is a table")
        return _record(value, typing.cast(type[Any], expected), path)
    if expected is Size:
        return _size(value, path)
    number = float if expected is float and isinstance(value, int) else expected
    if isinstance(value, bool) is not (expected is bool) or not isinstance(
        value, (expected, int) if number is float else expected
    ):
        raise ValueError(f"{path} is {value!r}; it is a {expected.__name__}")
    return number(_int64(value, path) if isinstance(value, int) else value)


def _size(value: Any, path: str) -> int:
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        return _int64(int(match[1]) * _UNITS[match[2]], path)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f'{path} is {value!r}; it is a number of bytes, or written as "256 KiB"')
    return _int64(value, path)


def _int64(value: int, path: str) -> int:
    """The integers of TOML 1.0 have 64 bits, Python's have no end: some are none of float's."""
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{path} is beyond the integers of 64 bits that TOML has")
    return value


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _suggestion(name: str, known: typing.Iterable[str]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""
