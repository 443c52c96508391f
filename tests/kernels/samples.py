"""An entry of torch's operator database -> its kernels compared with torch on a few of its samples, evenly chosen."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import partial
from itertools import product

import torch
from tests.kernels.opinfo.compare import check, why_not_compared
from tests.kernels.opinfo.entries import ENTRIES
from tests.kernels.opinfo.record import record
from tests.kernels.oracle import Oracle

__all__ = ["check_samples"]

SAMPLES = 12


def check_samples(
    oracle: Oracle, name: str, operators: str, dtypes: Iterable[torch.dtype], wanted: int = SAMPLES
) -> None:
    """Assert that the kernels of `operators`, "add.out mul.out", do as torch does on about `wanted` samples of each
    dtype of every variant of the entry `name`, and that all of them are reached."""
    kernels = {f"aten::{operator}" for operator in operators.split()}
    reached = set()
    infos = [info for info in ENTRIES.values() if info.name == name]
    for info, dtype in product(infos, dtypes):
        with warnings.catch_warnings(action="ignore"):  # torch's of its own deprecated functions
            samples = list(info.sample_inputs("cpu", dtype, requires_grad=False)) if dtype in info.dtypes else []
        for sample in samples[:: max(1, len(samples) // wanted)]:
            for call in record(partial(info, sample.input, *sample.args, **sample.kwargs)).calls:
                if call.op in kernels and not why_not_compared(call):
                    reached.add(call.op)
                    check(oracle, call)
    assert reached == kernels
