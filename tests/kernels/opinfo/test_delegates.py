"""Every sample of torch's operator database against the CPU backend: one delegate for each call (`make opinfo-cpu`).

The halves' reference is torch's of float32, rounded once, as `compare.py` has it: what the backend promises.
"""

from __future__ import annotations

import pytest
from tests.kernels.opinfo.delegates import DELEGATES, run_entry_on_delegates
from tests.kernels.opinfo.deviations import OF_DELEGATES
from tests.kernels.opinfo.entries import ENTRIES, EntryResult
from tests.kernels.opinfo.results import save


def failures(result: EntryResult) -> list[str]:
    return [
        f"{op} on {dtype}: {cell.failed} of {cell.compared} fail: {cell.message}"
        for op, row in sorted(result.cells.items())
        for dtype, cell in row.items()
        if cell.failed and (op, dtype) not in OF_DELEGATES
    ]


@pytest.mark.opinfo
@pytest.mark.parametrize("name", ENTRIES)
def test_every_sample_is_right_or_declined(name: str) -> None:
    result = run_entry_on_delegates(name)
    save(result, DELEGATES)
    assert not failures(result), "\n".join(failures(result))


@pytest.mark.parametrize("name", ["sub", "nn.functional.avg_pool1d", "var"])
def test_a_few_entries(name: str) -> None:
    result = run_entry_on_delegates(name)
    assert not failures(result), "\n".join(failures(result))
    assert sum(cell.compared for row in result.cells.values() for cell in row.values()) >= 20
