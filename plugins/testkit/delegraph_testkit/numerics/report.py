"""Cells of plug-ins -> Markdown: how many operators are equal, declined or deviate, by dtype, and why.

Cells are kept as files while a sweep is under way, FOLDER/plug-in/entry.json, so that it may be made in parts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import quote, unquote

from delegraph_testkit.claims import Claims
from delegraph_testkit.numerics.contract import breaches
from delegraph_testkit.numerics.edges import DTYPES
from delegraph_testkit.numerics.sweep import Cell
from delegraph_testkit.numerics.undefined import LEFT, NOT_COMPARED, OPEN, UNDEFINED

__all__ = ["SUMMARY", "Cells", "left_open", "load_cells", "reasons", "report", "save_cells", "section", "summary"]

Cells: TypeAlias = Mapping[tuple[str, str], Cell]
"""Those of one plug-in, by entry and dtype."""

_OUTCOMES: Final = ("equal", "deviates", "declined")

SUMMARY: Final = (
    f"| | {' | '.join(_OUTCOMES)} | operators | calls |",
    f"| --- |{' ---: |' * (len(_OUTCOMES) + 2)}",
)
"""The head of the table of all plug-ins."""


def save_cells(folder: Path, name: str, entry: str, cells: Mapping[str, Cell]) -> None:
    """Keep the cells of an entry, by dtype, of the plug-in called `name`."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    content = {dtype: asdict(cell) for dtype, cell in cells.items()}
    (folder / name / f"{quote(entry, safe='')}.json").write_text(json.dumps(content), "utf-8")


def load_cells(folder: Path, name: str) -> Cells:
    """All that is kept of a plug-in."""
    return {
        (unquote(file.stem), dtype): Cell(**cell)
        for file in sorted((folder / name).glob("*.json"))
        for dtype, cell in json.loads(file.read_text("utf-8")).items()
    }


def report(plugins: Mapping[str, tuple[Claims, Cells]]) -> Iterator[str]:
    """The lines of the report, by name: what the plug-in claims, and its cells."""
    yield from SUMMARY
    yield from (summary(name, cells) for name, (_, cells) in plugins.items())
    for name, (claims, cells) in plugins.items():
        yield from section(name, claims, cells)
    yield from left_open()


def summary(name: str, cells: Cells) -> str:
    """The row of a plug-in, below `SUMMARY`."""
    counts = Counter(cell.outcome for cell in cells.values())
    operators = len({entry for (entry, _), cell in cells.items() if cell.compared})
    calls = sum(cell.compared for cell in cells.values())
    return f"| {name} | {' | '.join(f'{counts[o]:,}' for o in _OUTCOMES)} | {operators:,} | {calls:,} |"


def section(name: str, claims: Claims, cells: Cells) -> Iterator[str]:
    """The lines about a plug-in."""
    yield from ("", f"## {name}", "")
    yield from _by_dtype(cells)
    yield from reasons(claims)
    yield from _breaches(claims, cells)


def _by_dtype(cells: Cells) -> Iterator[str]:
    counts = Counter((dtype, cell.outcome) for (_, dtype), cell in cells.items())
    dtypes = [dtype for dtype in DTYPES if any(counts[dtype, outcome] for outcome in _OUTCOMES)]
    yield f"| | {' | '.join(dtypes)} |"
    yield f"| --- |{' ---: |' * len(dtypes)}"
    for outcome in _OUTCOMES:
        yield f"| {outcome} | {' | '.join(str(counts[dtype, outcome] or '·') for dtype in dtypes)} |"
    swept = Counter(dtype for _, dtype in cells)
    yield f"| swept | {' | '.join(str(swept[dtype]) for dtype in dtypes)} |"


def reasons(claims: Claims) -> Iterator[str]:
    """The lines on what is not compared, and on what deviates, for a reason."""
    if claims.finite_only:
        yield from ("", f"Finite results of finite operands alone are compared: {claims.finite_only}.")
    if not claims.deviations:
        return
    yield from ("", "| deviates in | because | operators |", "| --- | --- | --- |")
    for row in claims.deviations:
        operators = ", ".join(f"`{entry}` ({' '.join(dtypes)})" for entry, dtypes in row.operators.items())
        where = "" if row.everywhere else " (on some processors)"
        yield f"| {row.kind} | {row.reason}{where} | {operators} |"


def _breaches(claims: Claims, cells: Cells) -> Iterator[str]:
    faults = [told for (entry, dtype), cell in cells.items() for told in breaches(claims, entry, dtype, cell)]
    if faults:
        yield from ("", "Without a reason, and so at fault:", "")
        yield from (f"- {_escaped(told)}" for told in faults)


def left_open() -> Iterator[str]:
    """The lines on what is not compared."""
    yield from ("", "## What torch leaves open", "")
    rows: dict[str, list[str]] = {}
    told = [(entry, row.reason) for row in UNDEFINED for entry in row.entries]
    told += [(entry, row.reason) for row in OPEN for entry in row.entries]
    told += [(entry, reason) for entry, (_, reason) in LEFT.items()]
    for entry, reason in (*told, *NOT_COMPARED.items()):
        rows.setdefault(reason, []).append(entry)
    yield from ("| operators | |", "| --- | --- |")
    yield from (f"| {_names(entries)} | {reason} |" for reason, entries in rows.items())


def _names(entries: Iterable[str]) -> str:
    return ", ".join(f"`{entry}`" for entry in dict.fromkeys(entries))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
