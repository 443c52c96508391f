"""How a table of a schema is laid out: the data that the reader and the builder of flatbuffers work from.

Those of our schemas are generated from `schema/*.fbs` into `_generated/*_tables.py`. A keyword's position is its
field's id, and so its slot in the vtable. Codes are those of `struct`; `REF` is an offset to a string, a vector or
another table. A union takes two fields: its code and its table. `"i=-1"` is a code with a default of its own.
"""

from __future__ import annotations

from typing import Any, Final

REF: Final = "ref"

_DEFAULTS: Final[dict[str, Any]] = {REF: None, "?": False, "f": 0.0, "d": 0.0}
_FLOATS: Final = frozenset("fd")


class TableLayout:
    """One table's fields in the order of their ids.

    `defaults` are the values of absent fields; `omitted` are the values that are not written: the same but for floats,
    since -0.0 equals 0.0.
    """

    __slots__ = ("codes", "defaults", "is_ref", "name", "names", "omitted")

    def __init__(self, table: str, /, **fields: str) -> None:
        self.name = table
        self.names = tuple(fields)
        codes, defaults = zip(*map(_split, fields.values()), strict=True) if fields else ((), ())
        self.is_ref = tuple(code is REF for code in codes)
        self.codes = tuple("I" if code is REF else code for code in codes)
        self.defaults: tuple[Any, ...] = defaults
        self.omitted: tuple[Any, ...] = tuple(
            None if code in _FLOATS else default for code, default in zip(codes, defaults, strict=True)
        )


def _split(field: str) -> tuple[str, Any]:
    """A field's code and its default: that of its code unless it says one."""
    code, _, default = field.partition("=")
    return (REF, None) if field is REF else (code, int(default) if default else _DEFAULTS.get(code, 0))
