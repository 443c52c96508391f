"""The tables of a file, as its schema has them -> mutable dataclasses of the same names and fields."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, make_dataclass
from typing import Any, Final, Union

from delegraph.program import table_layouts
from delegraph.program.schema import DeviceType, ScalarType, TensorDataLocation, TensorShapeDynamism

__all__ = ["table_records"]

_NUMBERS: Final = {"?": bool, "f": float, "d": float}
_ENUMS: Final = {enum.__name__: enum for enum in (DeviceType, ScalarType, TensorDataLocation, TensorShapeDynamism)}


def table_records(
    file: bytes,
    module: str,
    *,
    classes: Mapping[str, Any] | None = None,
    unions: Mapping[str, str] | None = None,
    first: Mapping[str, tuple[str, ...]] | None = None,
    may_be_none: Collection[str] = (),
    may_be_left_out: Collection[str] = (),
) -> dict[str, Any]:
    """A class for each table of the files with the identifier `file`, in `module`, and the unions of tables.

    `classes` are those of tables and enums that `module` has already. `unions` says what the union of a field is called
    in `module`. `first` are the fields of a table that come before the others; those are in the schema's order.
    `may_be_none` has fields, `may_be_left_out` fields or all those of a table, which then are what absent ones are.
    """
    layouts = table_layouts(file)
    made: dict[str, Any] = {**_ENUMS, **(classes or {})}
    unions, first = unions or {}, first or {}
    tags = {f"{name}_type" for name in unions}

    def record(name: str) -> Any:
        if name not in made:
            layout = layouts[name]
            parts = zip(layout.kinds, layout.codes, layout.defaults, strict=True)
            fields = {
                column: described(name, column, hint(column, kind, code), default)
                for column, (kind, code, default) in zip(layout.names, parts, strict=True)
                if column not in tags
            }
            ordered = dict.fromkeys([*first.get(name, ()), *fields])
            made[name] = make_dataclass(name, [fields[column] for column in ordered])
            made[name].__module__ = module
        return made[name]

    def described(table: str, name: str, kind: Any, default: Any) -> Any:
        left_out = name in may_be_left_out or table in may_be_left_out
        if name in may_be_none or (left_out and default is None):
            kind = kind | None
        return (name, kind, field(default=default if default is None else kind(default))) if left_out else (name, kind)

    def hint(name: str, kind: Any, code: str) -> Any:
        if kind.form == "number":
            return made[kind.of[0]] if kind.of else _NUMBERS.get(code, int)
        if kind.form == "numbers":
            return bytes if kind.of[0] == "B" and name != "dim_order" else list[_NUMBERS.get(kind.of[0], int)]  # type: ignore[misc]
        if kind.form == "text":
            return str
        of = [record(table) for table in kind.of]
        if kind.form == "union":
            made[unions[name]] = Union[tuple(of)]  # noqa: UP007 - users ask it for `typing.get_origin`
            return unions[name]
        return of[0] if kind.form == "table" else list[of[0]]  # type: ignore[valid-type]

    return {name: record(name) for name in layouts} | made
