"""How a table of a schema is laid out: the data that the reader and the builder of flatbuffers work from.

Those of our schemas are generated from `schema/*.fbs` into `_generated/*_tables.py`. A keyword's position is its
field's id, and so its slot in the vtable. Codes are those of `struct`; `REF` is an offset to a string, a vector or
another table. A union takes two fields: its code and its table.
"""

from __future__ import annotations

from typing import Any, Final

REF: Final = "ref"

_DEFAULTS: Final[dict[str, Any]] = {REF: None, "?": False, "d": 0.0}


class TableLayout:
    """One table's fields in the order of their ids.

    `defaults` is what absent fields read as; `omitted` is what is not written: the same but for floats,
    since -0.0 equals 0.0.
    """

    __slots__ = ("codes", "defaults", "is_ref", "name", "names", "omitted")

    def __init__(self, table: str, /, **fields: str) -> None:
        self.name = table
        self.names = tuple(fields)
        self.is_ref = tuple(code is REF for code in fields.values())
        self.codes = tuple("I" if code is REF else code for code in fields.values())
        self.defaults: tuple[Any, ...] = tuple(_DEFAULTS.get(code, 0) for code in fields.values())
        self.omitted: tuple[Any, ...] = tuple(
            None if code == "d" else _DEFAULTS.get(code, 0) for code in fields.values()
        )
