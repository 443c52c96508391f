"""The tables of the schemas -> the fields of ExecuTorch's records of them, in modules of `plugins/executorch`.

    python schema/executorch_records.py        `schema/generate.py` runs it, too

A record has its table's fields: those that it has not come at its end, with the table's default behind another's, and
a type that is not the table's is replaced. Where ExecuTorch differs, its records do, and stay so: the order, what has a
default, types with more members than the table's (`float | str`, `| None`). Tests hold the modules against this.
"""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from types import ModuleType
from typing import Final

from delegraph.program import schema
from delegraph.program._generated import bundled_program_tables, flat_tensor_tables, program_tables
from delegraph.program.flatbuffer.table_layout import TableLayout, layouts_of

PLUGIN: Final = Path(__file__).resolve().parents[1] / "plugins" / "executorch" / "delegraph_executorch"
TABLES: Final[dict[Path, ModuleType]] = {
    PLUGIN / "exir/schema.py": program_tables,
    PLUGIN / "devtools/bundle_records.py": bundled_program_tables,
    PLUGIN / "extension/flat_tensors.py": flat_tensor_tables,
}
"""Modules of records -> the tables that these are of."""

NUMBERS: Final = {"?": "bool", "f": "float", "d": "float"}
"""Codes of numbers that are not integers -> Python's types."""


def main() -> None:
    """Write the fields into the modules."""
    for path, tables in TABLES.items():
        path.write_text(renewed(path.read_text(), tables))


def renewed(text: str, tables: ModuleType) -> str:
    """The text of a module of records, each with the fields of its table."""
    layouts, lines = layouts_of(tables), text.splitlines()
    for record in reversed([node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]):
        parts = [part for part in record.body if isinstance(part, ast.AnnAssign)]
        if record.name in layouts and parts:
            lines[parts[0].lineno - 1 : parts[-1].end_lineno] = record_fields(parts, layouts[record.name])
    return "\n".join(lines) + "\n"


def record_fields(parts: list[ast.AnnAssign], layout: TableLayout) -> list[str]:
    """The lines of a record's fields, which has `parts` so far."""
    types = field_types(layout)
    lines = []
    for part in parts:
        name, annotation = ast.unparse(part.target), ast.unparse(part.annotation)
        if name in types and types[name] in (None, *annotation.split(" | ")):
            lines.append(ast.unparse(part).replace("'", '"'))
        elif name in types:
            lines.append(f"{name}: {types[name]}")
        types.pop(name, None)
    has_default = parts[-1].value is not None
    for name, kind in types.items():
        default = f" = {default_of(layout, name)}" if has_default else ""
        optional = " | None" if is_optional(layout.name, name) or default == " = None" else ""
        lines.append(f"{name}: {kind}{optional}{default}")
    return [f"    {line}" for line in lines]


def field_types(layout: TableLayout) -> dict[str, str | None]:
    """Python's type of each field, None aside; of a union, which has a name of its own, None."""
    types: dict[str, str | None] = {}
    for name, kind, code in zip(layout.names, layout.kinds, layout.codes, strict=True):
        (of, *_) = kind.of or ("",)
        if kind.form == "union":
            del types[f"{name}_type"]
            types[name] = None
        elif kind.form == "number":
            types[name] = of or NUMBERS.get(code, "int")
        elif kind.form == "numbers":
            types[name] = "bytes" if of == "B" and name != "dim_order" else f"list[{NUMBERS.get(of, 'int')}]"
        else:
            types[name] = {"text": "str", "table": of, "tables": f"list[{of}]"}[kind.form]
    return types


def is_optional(table: str, name: str) -> bool:
    """Whether Delegraph's own record has None for that field."""
    record = getattr(schema, table, None)
    return dataclasses.is_dataclass(record) and any(
        part.name == name and "None" in str(part.type) for part in dataclasses.fields(record)
    )


def default_of(layout: TableLayout, name: str) -> str:
    """What the field is where a file does not have it; of an enum the member."""
    index = layout.names.index(name)
    default, (enum, *_) = layout.defaults[index], layout.kinds[index].of or ("",)
    return f"{enum}({default})" if layout.kinds[index].form == "number" and enum else repr(default)


if __name__ == "__main__":
    main()
