"""`delegraph.RowMapper` where Dask and Spark call it: on DataFrames, one after the other, or in processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import delegraph

pytestmark = [
    pytest.mark.ray,
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning")),  # Dask's own
]

X = np.arange(60, dtype=np.float32).reshape(20, 3)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
def test_partitions_of_dask(pte: Path, scheduler: str) -> None:
    dataframe = pytest.importorskip("dask.dataframe", reason="`make test-ray` installs Dask beside .venv")
    import dask

    frame = pd.DataFrame({"id": range(20), "x": [*X]})
    with dask.config.set({"dataframe.convert-string": False}):
        rows = dataframe.from_pandas(frame, npartitions=4)
        mapper = delegraph.RowMapper(str(pte))
        results = rows.map_partitions(mapper, meta={"id": int, "x": object, "output": object})
        computed: Any = results.compute(scheduler=scheduler)
    assert computed["id"].tolist() == list(range(20))
    np.testing.assert_array_equal(np.stack(computed["output"]), X * 2)


def test_frames_of_spark(pte: Path) -> None:
    """`mapInPandas` hands over an iterator of DataFrames, and takes one."""
    mapper = delegraph.RowMapper(str(pte))

    def score(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield mapper(frame)[["id", "output"]]

    frames = [pd.DataFrame({"id": range(n, n + 5), "x": [*X[n : n + 5]]}) for n in range(0, 20, 5)]
    results = pd.concat(score(iter(frames)))
    assert results["id"].tolist() == list(range(20))
    np.testing.assert_array_equal(np.stack(results["output"]), X * 2)
