"""Dataclasses <-> JSON, as ExecuTorch's backends write their schemas, and <-> the flatbuffers of the files.

A field whose type is written as a string and is a union gets a second key with the member's name:

    @dataclass
    class EValue:                          {"val": {"int_val": 3}, "val_type": "Int"}
        val: "Int | Bool"
"""

from __future__ import annotations

import json
from dataclasses import Field, dataclass, fields, is_dataclass
from enum import EnumMeta
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from delegraph.errors import InvalidArgument
from delegraph.program import read_tables, write_tables
from delegraph.program.schema import Buffer
from delegraph_executorch.exir.schema import Program, SubsegmentOffsets
from delegraph_executorch.exir.tensor import ALIGNMENT


class _DataclassEncoder(json.JSONEncoder):
    """What `json.dumps(cls=…)` takes to write dataclasses; bytes become lists of numbers."""

    def default(self, o: Any) -> Any:
        if is_dataclass(o) and not isinstance(o, type):
            return _with_tags(o)
        return list(o) if isinstance(o, bytes) else super().default(o)


def as_dict(value: Any) -> Any:
    """`value` with every dataclass in it as a dict, tags of unions included."""
    if is_dataclass(value) and not isinstance(value, type):
        return {key: as_dict(one) for key, one in _with_tags(value).items()}
    return [as_dict(one) for one in value] if isinstance(value, (list, tuple)) else value


def converted(record: Any, cls: Any) -> Any:
    """The record of type `cls` that has the fields of `record`, lists and tuples as it has them; None stays."""
    return None if record is None else _json_to_dataclass(as_dict(record), cls)


def _with_tags(record: Any) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    cls: Any = type(record)
    for name, _, kind in _fields(cls):
        properties[name] = getattr(record, name)
        if kind is _TAGGED:
            properties[f"{name}_type"] = type(properties[name]).__name__
    return properties


def _json_to_dataclass(json_dict: Any, cls: Any = None) -> Any:
    """The record of type `cls` that `json_dict` describes. Raises TypeError for a field that is missing or unknown."""
    if not is_dataclass(cls) or is_dataclass(json_dict):
        return json_dict
    data: dict[str, Any] = {}
    record: Any = cls
    for name, hint, kind in _fields(record):
        if kind is _TAGGED:
            data[name] = _json_to_dataclass(json_dict[name], _member(hint, json_dict[f"{name}_type"], name))
        elif kind is _OPTIONAL or json_dict.get(name) is not None:
            data[name] = _value(json_dict.get(name), hint)
        elif name in json_dict and get_origin(hint) is list:
            data[name] = []  # a vector that is not in a flatbuffer has no elements
        elif name in json_dict and hint is str:
            data[name] = ""
        elif name in json_dict:
            data[name] = None
        else:
            raise TypeError(f"{record.__name__} needs a value for {name!r}, a {hint}; the data have none")
    return record(**data)


def _value(value: Any, hint: Any) -> Any:
    """`value` as the type that `hint` asks for."""
    if value is None:
        return None
    if is_dataclass(hint):
        return _json_to_dataclass(value, hint)
    if (sequence := get_origin(hint)) in (list, tuple):
        item = get_args(hint)[0]
        return sequence(_value(one, item) for one in value)
    if get_origin(hint) is dict:
        return {key: _value(one, get_args(hint)[1]) for key, one in value.items()}
    if get_origin(hint) in (Union, UnionType):
        return value
    if isinstance(hint, EnumMeta):
        enum: Any = hint
        return enum[value] if isinstance(value, str) else enum(value)
    return hint(value) if isinstance(hint, type) else value


def _member(hint: Any, name: str, field: str) -> Any:
    for member in get_args(hint):
        if getattr(member, "__name__", "") == name:
            return member
    raise TypeError(f"{field} is said to be a {name}; it can be {', '.join(m.__name__ for m in get_args(hint))}")


# ---- what a field is -------------------------------------------------------------------------------

_PLAIN, _OPTIONAL, _TAGGED = "plain", "optional", "tagged"


@cache
def _fields(cls: Any) -> tuple[tuple[str, Any, str], ...]:
    """Name, type and kind of each field; of one that may be None, the type without None."""
    hints = get_type_hints(cls)
    return tuple(_described(field, hints[field.name]) for field in fields(cls))


def _described(field: Field[Any], hint: Any) -> tuple[str, Any, str]:
    if get_origin(hint) not in (Union, UnionType):
        return field.name, hint, _PLAIN
    members = [member for member in get_args(hint) if member is not NoneType]
    if len(members) < len(get_args(hint)):
        return field.name, members[0] if len(members) == 1 else hint, _OPTIONAL
    return field.name, hint, _TAGGED if isinstance(field.type, str) else _PLAIN


_Record = TypeVar("_Record")


def record_of(data: Buffer, record: type[_Record]) -> _Record:
    """The tables of a `.pte`, `.bpte` or `.ptd` as the record of its root. Raises `InvalidProgram` for other bytes."""
    root: _Record = _json_to_dataclass(read_tables(data), record)
    return root


@dataclass
class _FlatbufferResult:
    """A flatbuffer, and the largest alignment in it."""

    data: bytes
    max_alignment: int


def _program_to_flatbuffer(
    program: Program, *, constant_tensor_alignment: int | None = None, delegate_alignment: int | None = None
) -> _FlatbufferResult:
    """The flatbuffer of `program` as it is. Raises ValueError for an alignment that is not a power of two."""
    alignments = (constant_tensor_alignment or ALIGNMENT, delegate_alignment or ALIGNMENT)
    tables = as_dict(program)
    for plan in tables["execution_plan"]:
        for value in plan["values"]:
            if value["val_type"] == "Double":
                value["val"] = {"double_val": float(value["val"]["double_val"])}
    try:
        return _FlatbufferResult(write_tables(tables, *alignments), max(ALIGNMENT, *alignments))
    except InvalidArgument as error:
        raise ValueError(str(error)) from error


def _flatbuffer_to_program(program_data: bytes) -> Program:
    """The program that a flatbuffer, or the first part of a `.pte`, holds; what is in segments stays there."""
    program = record_of(program_data, Program)
    program.constant_segment = program.constant_segment or SubsegmentOffsets(0, [])
    return program
