"""Tables in a terminal: what is wider than it is folded, but for numbers."""

from __future__ import annotations

import io
import re
import sys

import pytest

from delegraph.tables import Table, print_table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_a_table_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    numbers = ("p50 ms", "p90", "p99")
    row = ("convolution_backward", "blocks.0.attention.projection", "123.456", "1,234.567", "1,234.567")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(Table("", ("operator", "module", *numbers), [row, row], frozenset(numbers)))
    text = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())
    lines = text.splitlines()
    assert max(map(len, lines)) <= columns
    assert sum("1,234.567" in line for line in lines) == 2, "no number is in two lines"
    assert ("│" in text) is (columns == 120), "lines between columns where there is room for them"
