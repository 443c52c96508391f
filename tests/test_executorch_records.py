"""ExecuTorch's records in `plugins/executorch` have the fields of their tables (`schema/executorch_records.py`)."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import ModuleType

import pytest

from delegraph.program.flatbuffer.table_layout import TableLayout

GENERATOR = runpy.run_path(str(Path(__file__).parents[1] / "schema" / "executorch_records.py"))


@pytest.mark.parametrize("path", GENERATOR["TABLES"], ids=lambda path: path.stem)
def test_records_have_the_fields_of_their_tables(path: Path) -> None:
    text = path.read_text()
    assert GENERATOR["renewed"](text, GENERATOR["TABLES"][path]) == text, "run `python schema/executorch_records.py`"


RECORDS = """@dataclass
class Tensor:
    scalar_type: int
    sizes: list[int] | None
    gone: int
    extra: Info | None = None

    def method(self) -> int: ...
"""


def test_a_field_that_a_table_has_and_its_record_has_not_comes_at_its_end() -> None:
    """A type that is not the table's is replaced, one with more members stays, and what the table has not goes."""
    kinds = {"sizes": "[i]", "extra": "Info", "label": "text", "device_type": "b DeviceType", "alignment": "i=16"}
    tables = ModuleType("tables")
    tables.TENSOR = TableLayout("Tensor", scalar_type="b ScalarType", **kinds)  # type: ignore[attr-defined]
    assert GENERATOR["renewed"](RECORDS, tables).splitlines()[2:-2] == [
        "    scalar_type: ScalarType",
        "    sizes: list[int] | None",
        "    extra: Info | None = None",
        "    label: str | None = None",
        "    device_type: DeviceType = DeviceType(0)",
        "    alignment: int = 16",
    ]
