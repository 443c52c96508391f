"""Results of a run -> docs/operators.md: operator x dtype, and a reason for each cell that is not green.

python -m tests.kernels.opinfo.table
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.kernels.libraries import LIBRARY_OF
from tests.kernels.opinfo.deviations import reason
from tests.kernels.opinfo.entries import DTYPES, ENTRIES, Cell, EntryResult
from tests.kernels.opinfo.results import counts, load_all, write_counts

__all__ = ["PAGE", "page"]

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "operators.md"
TESTS = [ROOT / folder for folder in ("plugins/portable/tests", "plugins/special/tests", "tests/kernels")]

_FLOAT8 = tuple(dtype for dtype in DTYPES if dtype.startswith("float8"))
_COLUMNS: dict[str, tuple[str, ...]] = {
    **{dtype: (dtype,) for dtype in DTYPES if dtype not in _FLOAT8},
    "float8": _FLOAT8,
}
_SHORT = {"uint": "u", "int": "i", "bfloat": "bf", "float": "f", "complex": "c"}


def page(results: Mapping[str, EntryResult]) -> str:
    """The whole page. Raises `ValueError` unless every entry of the database has a result."""
    absent = ENTRIES.keys() - results.keys()
    if absent:
        raise ValueError(f"no results of {', '.join(sorted(absent))}: run `make opinfo`")
    notes = _Notes()
    rows = _rows(results)
    reached = [op for op in sorted(LIBRARY_OF) if op in rows]
    other = [op for op in sorted(LIBRARY_OF) if op not in rows]
    table = [_row(op, rows[op], _declined(op, results), notes) for op in reached]
    return "\n".join(
        [
            *_introduction(results, rows, reached, other),
            _line(["operator", "library", *map(_short, _COLUMNS)]),
            _line(["---", "---", *["---:"] * len(_COLUMNS)]),
            *table,
            "",
            *notes.text(),
            *_unreached(other),
            *_samples(results),
        ]
    )


# ---- cells -----------------------------------------------------------------------------------------


class _Notes:
    """Footnotes in the order in which they are first used."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, text: str) -> str:
        return f"<sup>{self._numbers.setdefault(text, len(self._numbers) + 1)}</sup>"

    def text(self) -> Iterator[str]:
        for text, number in self._numbers.items():
            yield f"{number}. {text}"
        yield ""


def _rows(results: Mapping[str, EntryResult]) -> dict[str, dict[str, Cell]]:
    """Operator -> dtype -> the cells of all entries added up."""
    rows: dict[str, dict[str, Cell]] = {}
    for result in results.values():
        for op, row in result.cells.items():
            for dtype, cell in row.items():
                _add(rows.setdefault(op, {}).setdefault(dtype, Cell()), cell)
    return rows


def _add(total: Cell, cell: Cell) -> None:
    total.compared += cell.compared
    total.repeated += cell.repeated
    total.derived += cell.derived
    total.failed += cell.failed
    total.message = total.message or cell.message
    total.skipped.update(cell.skipped)


def _declined(op: str, results: Mapping[str, EntryResult]) -> frozenset[str]:
    return frozenset(dtype for result in results.values() for dtype in result.declined.get(op, ()))


def _row(op: str, cells: Mapping[str, Cell], declined: frozenset[str], notes: _Notes) -> str:
    return _line(
        [f"`{op}`", LIBRARY_OF[op].name, *(_text(op, dtypes, cells, declined, notes) for dtypes in _COLUMNS.values())]
    )


def _text(op: str, dtypes: Sequence[str], cells: Mapping[str, Cell], declined: frozenset[str], notes: _Notes) -> str:
    total = Cell()
    for dtype in dtypes:
        _add(total, cells.get(dtype, Cell()))
    if total.failed:
        why = next((text for dtype in dtypes if (text := reason(op, dtype)) is not None), None)
        mark = notes.mark(why or f"`{op}`: {_escaped(total.message)}")
        return f"{'' if why else '✗ '}{total.compared - total.failed}/{total.compared}{mark}"
    if total.compared:
        return f"+{total.derived}" if total.derived == total.compared else f"{total.compared}"
    if total.skipped:
        return notes.mark("; ".join(sorted(total.skipped)))
    return "·" if declined.issuperset(dtypes) else "?"


def _escaped(message: str) -> str:
    return message.replace("|", "\\|").replace("<", "&lt;")


def _short(dtype: str) -> str:
    match = re.fullmatch(r"([a-z]+)(\d+)", dtype)
    return f"{_SHORT[match[1]]}{match[2]}" if match else dtype


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


# ---- the rest of the page --------------------------------------------------------------------------


def _introduction(
    results: Mapping[str, EntryResult], rows: Mapping[str, Mapping[str, Cell]], reached: list[str], other: list[str]
) -> list[str]:
    all_counts = [counts(result) for result in results.values()]
    cells = [(op, dtype, cell) for op in reached for dtype, cell in rows[op].items()]
    failed = sum(cell.failed for op, dtype, cell in cells if reason(op, dtype) is None)
    return [
        "# Operators of the kernel libraries",
        "",
        "Generated by `make opinfo`, which runs every sample of torch's operator database (`op_db` of"
        " `torch.testing._internal.common_methods_invocations`), of every dtype that the entry supports on the CPU, and"
        " compares every operator call that the sample comes down to with the kernel that has its name: called, bound,"
        " bound to constants, and on memory in another order with gaps. The libraries are portable"
        " (`delegraph-portable`, NumPy) and special (`delegraph-special`, SciPy); no operator is in both.",
        "",
        f"- {len(results)} entries, {sum(c.samples for c in all_counts):,} samples, of which torch runs"
        f" {sum(c.run for c in all_counts):,}; {sum(c.compared for c in all_counts):,} reach a kernel",
        f"- {len(reached) + len(other)} operators have a kernel, {len(reached)} of them are reached",
        f"- {sum(cell.compared for _, _, cell in cells):,} calls compared in every mode,"
        f" {sum(cell.derived for _, _, cell in cells):,} of them on dtypes that no sample has;"
        f" {sum(cell.repeated for _, _, cell in cells):,} more are like two that were compared in the same entry"
        " (same operator, dtypes, shapes, strides and other arguments) and were counted only",
        f"- {failed:,} differ without a reason",
        "",
        "Columns are the dtype of a call's first tensor. A number is how many calls were compared, all of them equal"
        " within torch.testing's tolerances; `+n`: no sample has the dtype, n calls of other dtypes were cast to it;"
        " `·`: torch's own kernel does not take it; `?`: torch takes it for some arguments, no sample shows which;"
        " `a/b`: a of b agree, with a footnote.",
        "",
    ]


def _unreached(operators: Sequence[str]) -> Iterator[str]:
    yield "## Reached by no sample"
    yield ""
    yield "The database has no entry for them, or lowering (and torch) decompose them before they are called."
    yield "They are named in these tests:"
    yield ""
    files = {path.name: path.read_text() for folder in TESTS for path in sorted(folder.glob("test_*.py"))}
    for op in operators:
        base = op.partition("::")[2].partition(".")[0]
        named = [file for file, text in files.items() if re.search(rf"(?<![\w.]){re.escape(base)}\b", text)]
        yield f"- `{op}`: {', '.join(named) or 'none'}"
    yield ""


def _samples(results: Mapping[str, EntryResult]) -> Iterator[str]:
    missing: Counter[str] = Counter()
    refusals: dict[str, list[str]] = {}
    nothing: list[str] = []
    for name, result in results.items():
        missing.update(result.missing)
        for refusal in result.refusals:
            refusals.setdefault(refusal, []).append(name)
        if not any(result.compared.values()):
            nothing.append(f"`{name}`: {_why_nothing(result)}")
    yield "## Operators without a kernel"
    yield ""
    yield "What lowering leaves of the samples and no kernel runs, with the number of samples that need it."
    yield ""
    yield from (f"- `{op}`: {count}" for op, count in missing.most_common())
    yield ""
    yield "## Entries of which no sample reaches a kernel"
    yield ""
    yield from (f"- {line}" for line in nothing)
    yield ""
    yield "## Samples that torch itself does not run"
    yield ""
    yield "Alone, on the CPU, without gradients and decomposed as lowering does it."
    yield ""
    for refusal, names in refusals.items():
        yield f"- {', '.join(f'`{name}`' for name in names)}: {_escaped(refusal)}"
    yield ""


def _why_nothing(result: EntryResult) -> str:
    if not any(result.samples.values()):
        return "the database has no samples for the CPU"
    if result.refused.total() == result.samples.total():
        return "torch runs none of its samples here"
    if result.missing:
        return f"no kernel for {', '.join(f'`{op}`' for op in sorted(result.missing))}"
    skipped: Counter[str] = Counter()
    for row in result.cells.values():
        for cell in row.values():
            skipped.update(cell.skipped)
    return "; ".join(sorted(skipped)) or "it decomposes away: it asks for numbers, or gives its argument back"


if __name__ == "__main__":
    loaded = load_all()
    PAGE.write_text(page(loaded))
    write_counts(loaded)
