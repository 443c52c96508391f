"""The pages docs/operators-cpu.md and its like are those of the backends' converters and of the last run."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from tests.kernels.opinfo.backends import BACKENDS, CPU, Backend
from tests.kernels.opinfo.delegates_table import converted, page
from tests.kernels.opinfo.entries import ENTRIES, Cell, EntryResult

of_backends = pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)


@of_backends
def test_it_lists_exactly_the_operators_that_have_a_converter(backend: Backend) -> None:
    text = backend.page.read_text()
    rows = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    section = text.partition("## Reached by no sample")[2].partition("\n## ")[0]
    unreached = re.findall(r"^- `([^`]+)`", section, re.MULTILINE)
    assert sorted(rows + unreached) == sorted(converted()), f"run `make opinfo-{backend.name}`"


@of_backends
def test_every_entry_of_the_database_is_counted_or_named_and_no_call_is_wrong(backend: Backend) -> None:
    text = backend.page.read_text()
    run, _, others = re.findall(r"^- (\d+) of (\d+) entries of the database run(.*)$", text, re.MULTILINE)[0]
    named = re.findall(r"`([^`]+)`", others)
    assert ENTRIES.keys() >= set(named)
    assert int(run) + len(named) == len(ENTRIES), f"run `make opinfo-{backend.name}`"
    assert ", 0 of them wrong without a reason\n" in text
    assert "| ✗" not in text


def test_cells_say_what_became_of_calls() -> None:
    result = EntryResult("abs")
    result.cells["aten::abs.out"] = {
        "float32": Cell(compared=3),
        "float64": Cell(compared=2, skipped=Counter({"abs is left: too wide": 1})),
        "bool": Cell(skipped=Counter({"no such dtype": 2})),
        "int8": Cell(compared=4, failed=1),
    }
    result.cells["aten::cauchy.out"] = {"float32": Cell(skipped=Counter({"no converter": 7}))}
    text = page(CPU, {"abs": result})
    assert "; not these: `H`, `T`, " in text
    row = "| `aten::abs.out` | - | · | ✗ 3/4 | · | · | · | · | · | 3 | 2+1 | · | · |"
    assert row in text
    assert "- `aten::abs.out`: no such dtype; too wide\n" in text
    assert text.endswith("by the number of calls: kernels run it.\n\n`aten::cauchy.out` 7\n")
    assert "\n- 9 calls compared, 1 of them wrong without a reason\n" in text
