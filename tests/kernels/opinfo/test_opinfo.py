"""Every sample of every dtype of every entry of torch's operator database (`make opinfo`)."""

from __future__ import annotations

import pytest
from tests.kernels.opinfo.deviations import unexplained
from tests.kernels.opinfo.entries import ENTRIES, run_entry
from tests.kernels.opinfo.results import counts, known_counts, save

KNOWN = known_counts()


@pytest.mark.opinfo
@pytest.mark.parametrize("name", ENTRIES)
def test_every_sample(name: str) -> None:
    result = run_entry(name)
    save(result)
    found = counts(result)
    assert found >= KNOWN.get(name, found), "samples were dropped: see counts.json"
    failures = unexplained(result)
    assert not failures, "\n".join(failures)
