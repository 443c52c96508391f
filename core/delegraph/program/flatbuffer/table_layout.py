"""How a table of a schema is laid out: the data that records are read and written by.

Those of our schemas are generated from `schema/*.fbs` into `_generated/*_tables.py`. A keyword's position is its
field's id, and so its slot in the vtable. A field is one of

    "i", "i=-1", "b DeviceType"    a number by its `struct` code, with a default of its own, or a code of an enum
    "text", "[i]"                  a string; numbers
    "Tensor", "[Tensor]"           another table; several
    "Int | Tensor"                 a union; its code, the member's position from 1 on, is in the field before
"""

from __future__ import annotations

from types import ModuleType
from typing import Final, TypeAlias

from delegraph.lazy_dataclass import dataclass

__all__ = ["FieldKind", "TableLayout", "layouts_of"]

Default: TypeAlias = "float | None"
"""Of a field that is absent: a number or a bool; None of a reference."""

_DEFAULTS: Final[dict[str, float]] = {"?": False, "f": 0.0, "d": 0.0}
_FLOATS: Final = frozenset("fd")


@dataclass(frozen=True, slots=True)
class FieldKind:
    """`form` is "number", "text", "numbers", "table", "tables" or "union"; `of` the enum, code or tables, if any."""

    form: str
    of: tuple[str, ...] = ()


class TableLayout:
    """One table's fields in the order of their ids.

    `defaults` are the values of absent fields; `omitted` are the values that are not written: the same but for floats,
    since -0.0 equals 0.0.
    """

    __slots__ = ("codes", "defaults", "is_ref", "kinds", "name", "names", "omitted")

    def __init__(self, table: str, /, **fields: str) -> None:
        self.name = table
        self.names = tuple(fields)
        parts = [_read(field) for field in fields.values()]
        self.kinds = tuple(kind for kind, _, _ in parts)
        self.codes = tuple(code for _, code, _ in parts)
        self.defaults: tuple[Default, ...] = tuple(default for _, _, default in parts)
        self.is_ref = tuple(kind.form != "number" for kind in self.kinds)
        self.omitted: tuple[Default, ...] = tuple(None if code in _FLOATS else default for _, code, default in parts)


def layouts_of(tables: ModuleType) -> dict[str, TableLayout]:
    """The layouts in a generated module, by their tables' names."""
    return {layout.name: layout for layout in vars(tables).values() if isinstance(layout, TableLayout)}


def _read(field: str) -> tuple[FieldKind, str, Default]:
    """A field's kind, the code of what is in the table (of a reference an offset), and the default."""
    number, *enum = field.split(" ")
    code, _, default = number.partition("=")
    if len(code) == 1:
        return FieldKind("number", tuple(enum)), code, int(default) if default else _DEFAULTS.get(code, 0)
    if field == "text":
        kind = FieldKind("text")
    elif field.startswith("["):
        kind = FieldKind("numbers" if len(field) == 3 else "tables", (field[1:-1],))
    else:
        members = tuple(field.split(" | "))
        kind = FieldKind("union" if len(members) > 1 else "table", members)
    return kind, "I", None
