"""Results of entries <-> files: one JSON per entry while a run is under way, and the counts that a run has to reach."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tests.kernels.opinfo.entries import EntryResult

__all__ = ["Counts", "counts", "known_counts", "load_all", "save", "write_counts"]

FOLDER = Path(__file__).parents[3] / "build" / "opinfo"
COUNTS = Path(__file__).with_name("counts.json")


@dataclass(frozen=True, slots=True)
class Counts:
    """What a run of an entry has done at least: samples that the database has, those that torch ran, those of which
    some call was compared, and pairs of an operator and a dtype of which some call was.

    Not how many calls were: which of them are alike may hang on the last bit of a value, as with `quantile`."""

    samples: int
    run: int
    compared: int
    cells: int

    def __ge__(self, other: Counts) -> bool:
        """Whether the samples are the same and nothing that was run or compared is now left out."""
        more = self.run >= other.run and self.compared >= other.compared and self.cells >= other.cells
        return self.samples == other.samples and more


def counts(result: EntryResult) -> Counts:
    samples = sum(result.samples.values())
    cells = sum(cell.compared > 0 for row in result.cells.values() for cell in row.values())
    return Counts(samples, samples - sum(result.refused.values()), sum(result.compared.values()), cells)


def known_counts() -> dict[str, Counts]:
    """Entry -> the counts of the run that last renewed them."""
    if not COUNTS.exists():
        return {}
    return {name: Counts(*numbers) for name, numbers in json.loads(COUNTS.read_text()).items()}


def write_counts(results: dict[str, EntryResult]) -> None:
    """Renew the counts. Raises `ValueError` if an entry's have become fewer: remove its line if that is meant."""
    known = known_counts()
    found = {name: counts(result) for name, result in results.items()}
    fewer = [name for name, count in found.items() if not count >= known.get(name, count)]
    if fewer:
        raise ValueError(f"fewer samples than in {COUNTS.name}: {', '.join(fewer)}")
    rows = (f"{json.dumps(n)}: [{c.samples}, {c.run}, {c.compared}, {c.cells}]" for n, c in sorted(found.items()))
    COUNTS.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def save(result: EntryResult, folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{quote(result.name, safe='')}.json").write_text(json.dumps(result.as_json()))


def load_all(folder: Path = FOLDER) -> dict[str, EntryResult]:
    """The results of the last run, by entry."""
    loaded = (EntryResult.from_json(json.loads(path.read_text())) for path in sorted(folder.glob("*.json")))
    return {result.name: result for result in loaded}
