"""The page docs/operators.md is that of the libraries and of the last counted run."""

from __future__ import annotations

import json
import re

from tests.kernels.libraries import LIBRARY_OF
from tests.kernels.opinfo.entries import ENTRIES
from tests.kernels.opinfo.results import COUNTS, known_counts
from tests.kernels.opinfo.table import PAGE

TEXT = PAGE.read_text()


def test_it_lists_exactly_the_operators_of_the_libraries() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", TEXT, re.MULTILINE)
    section = TEXT.partition("## Reached by no sample")[2].partition("\n## ")[0]
    unreached = re.findall(r"^- `([^`]+)`", section, re.MULTILINE)
    assert sorted(rows + unreached) == sorted(LIBRARY_OF), "run `make opinfo`"


def test_every_entry_of_the_database_is_counted() -> None:
    assert known_counts().keys() == ENTRIES.keys(), "run `make opinfo`"


def test_the_totals_are_those_of_the_counts() -> None:
    samples, run, compared, _ = (sum(column) for column in zip(*json.loads(COUNTS.read_text()).values(), strict=True))
    assert f"{len(ENTRIES)} entries, {samples:,} samples, of which torch runs {run:,}; {compared:,} reach" in TEXT


def test_nothing_differs_without_a_reason() -> None:
    assert "\n- 0 differ without a reason\n" in TEXT
    assert "✗" not in TEXT
