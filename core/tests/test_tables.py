"""Tables in a terminal: what is wider than it is wrapped, but for numbers."""

from __future__ import annotations

import io
import re
import sys

import pytest

from delegraph.tables import Table, print_table, print_text


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
    assert text.count("1,234.567") == 4, "no number is in two lines"
    assert ("│" in text) is (columns == 120), "lines between columns where there is room for them"


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_words_stay_whole(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are broken behind their signs; where that has no room, each row is a block of lines."""
    pytest.importorskip("rich")
    row = (
        "aten::native_layer_norm.out",
        "blocks.0.normalization",
        "no partitioner was asked",
        "12,345,678",
        "portable",
    )
    header = ("operator", "module", "why", "bytes", "library")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(Table("", header, [row, row], frozenset({"bytes"})))
    text = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())
    assert max(map(len, text.splitlines())) <= columns
    pieces = re.findall(r"\d[\d,]+|[^\W_]+", " ".join([*row, *header]))
    assert set(re.findall(r"\d[\d,]+|[^\W_]+", text)) == set(pieces)


def test_a_pipe_gets_whole_rows(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    long = " ".join(["word"] * 80)
    print_table(Table("", ("name", "text"), [("one", long)]))
    assert any("one" in line and long in line for line in capsys.readouterr().out.splitlines())


def test_text_is_wrapped_under_its_indent(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "20")
    print_text("note:\n  it cannot be used here")
    assert terminal.getvalue() == "note:\n  it cannot be used\n  here\n"
