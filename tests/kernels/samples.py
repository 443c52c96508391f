"""An entry of torch's operator database -> its kernels compared with torch on a few of its samples, evenly chosen.

`opinfo/` runs all samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from tests.kernels.opinfo.compare import check, why_not_compared
from tests.kernels.opinfo.entries import ENTRIES
from tests.kernels.opinfo.record import Call, record
from tests.kernels.oracle import Oracle

__all__ = ["FEW", "SAMPLES", "calls_of_samples", "check_samples"]

SAMPLES = 8
"""Of float32, taken evenly from an entry's list."""

FEW = 3
"""Of each other dtype."""


def check_samples(
    oracle: Oracle,
    name: str,
    operators: str,
    dtypes: Iterable[torch.dtype],
    *,
    samples: int = SAMPLES,
    few: int = FEW,
    modes: Sequence[str] = Oracle.modes,
) -> None:
    """Assert that the kernels of `operators`, "add.out mul.out", do as torch does on `samples` samples of float32 and
    `few` of each other of `dtypes`, of every variant of the entry `name`, and that all of them are reached."""
    wanted = {f"aten::{operator}" for operator in operators.split()}
    reached = set()
    for calls in calls_of_samples(name, dtypes, samples, few):
        for call in calls:
            if call.op in wanted:
                reached.add(call.op)
                check(oracle, call, modes)
    assert reached == wanted


def calls_of_samples(
    name: str, dtypes: Iterable[torch.dtype], samples: int = SAMPLES, few: int = FEW
) -> Iterator[list[Call]]:
    """The calls that each of the chosen samples comes down to and that can be compared."""
    variants = [info for info in ENTRIES.values() if info.name == name]
    for info, dtype in product(variants, dtypes):
        for sample in _evenly(_samples(info, dtype), samples if dtype == torch.float32 else few):
            calls = record(partial(info, sample.input, *sample.args, **sample.kwargs)).calls
            yield [call for call in calls if not why_not_compared(call)]


def _samples(info: Any, dtype: torch.dtype) -> list[Any]:
    if dtype not in info.dtypes:
        return []
    try:
        with warnings.catch_warnings(action="ignore"):  # torch's of its own deprecated functions
            return list(info.sample_inputs("cpu", dtype, requires_grad=False))
    except (NotImplementedError, RuntimeError):  # some entries make no samples of a dtype that they name
        return []


def _evenly(items: list[Any], wanted: int) -> list[Any]:
    return items[:: max(1, len(items) // wanted)][:wanted]
