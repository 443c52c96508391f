"""Every sample of torch's operator database against backends: one delegate for each call (`make opinfo-cpu`).

The halves' reference is torch's of float32, rounded once, as `compare.py` has it: what the backends promise.
"""

from __future__ import annotations

import pytest
from tests.kernels.opinfo.backends import BACKENDS, Backend
from tests.kernels.opinfo.delegates import run_entry_on_delegates
from tests.kernels.opinfo.entries import ENTRIES, EntryResult
from tests.kernels.opinfo.results import save

of_backends = pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)


def failures(result: EntryResult, backend: Backend) -> list[str]:
    return [
        f"{op} on {dtype}: {cell.failed} of {cell.compared} fail: {cell.message}"
        for op, row in sorted(result.cells.items())
        for dtype, cell in row.items()
        if cell.failed and (op, dtype) not in backend.deviations
    ]


@pytest.mark.opinfo
@pytest.mark.parametrize("name", ENTRIES)
@of_backends
def test_every_sample_is_right_or_declined(backend: Backend, name: str) -> None:
    result = run_entry_on_delegates(name, backend)
    save(result, backend.results)
    assert not failures(result, backend), "\n".join(failures(result, backend))


@pytest.mark.parametrize("name", ["nn.functional.hardtanh", "var"])
@of_backends
def test_a_few_entries(backend: Backend, name: str) -> None:
    result = run_entry_on_delegates(name, backend)
    assert not failures(result, backend), "\n".join(failures(result, backend))
    assert sum(cell.compared for row in result.cells.values() for cell in row.values()) >= 20
