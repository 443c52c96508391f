"""An entry of torch's operator database -> what became of each of its samples."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from tests.kernels.opinfo.compare import check, why_not_compared
from tests.kernels.opinfo.record import Call, Recording, record
from tests.kernels.oracle import Oracle
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from delegraph.errors import RuntimeFault

with warnings.catch_warnings(action="ignore"):  # torch's testing modules warn when imported
    from torch.testing._internal.common_methods_invocations import op_db

__all__ = ["DTYPES", "ENTRIES", "Cell", "Declined", "EntryResult", "recordings", "run_entry"]

ALIKE = 2
"""Calls of one operator, on tensors of the same dtypes, shapes and strides and with the same other arguments, that are
compared in one entry; the rest are counted."""

DTYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16"),
    *("float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
)

for devices in (torch.cuda, torch.mtia, torch.xpu):
    # Each sample function seeds torch, and for a device that is not here torch notes the formatted stack: 10 ms a time.
    devices.manual_seed_all = lambda seed: None  # type: ignore[attr-defined]

ENTRIES: dict[str, Any] = {
    f"{info.name}{info.variant_test_name and ' ' + info.variant_test_name}": info for info in op_db
}
"""An entry may have variants: rounding modes, kinds of padding."""


@dataclass(slots=True)
class Cell:
    """The calls of one operator whose first tensor has one dtype."""

    compared: int = 0
    repeated: int = 0
    derived: int = 0
    """Compared calls that no sample makes: those of another dtype's samples, cast."""
    failed: int = 0
    message: str = ""
    """Of the first failure."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Why calls could not be compared -> how many."""


@dataclass(slots=True)
class EntryResult:
    """What became of an entry's samples. `samples` are all that torch has for the dtypes that it supports; `refused` of
    them torch did not run to their end; `compared` have at least one call that was compared (or repeats one)."""

    name: str
    samples: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    compared: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    cells: dict[str, dict[str, Cell]] = field(default_factory=dict)
    declined: dict[str, list[str]] = field(default_factory=dict)
    """Operator -> dtypes that its kernel in torch does not take."""

    def cell(self, op: str, dtype: str) -> Cell:
        return self.cells.setdefault(op, {}).setdefault(dtype, Cell())

    def as_json(self) -> dict[str, Any]:
        """The fields by name (`dataclasses.asdict` cannot copy a `Counter`)."""
        cells = {op: {dtype: _fields(cell) for dtype, cell in row.items()} for op, row in self.cells.items()}
        return {**_fields(self), "cells": cells}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> EntryResult:
        cells = {
            op: {dtype: Cell(**{**cell, "skipped": Counter(cell["skipped"])}) for dtype, cell in row.items()}
            for op, row in content["cells"].items()
        }
        counters = {key: Counter(value) for key, value in content.items() if key not in ("name", "cells", "declined")}
        return cls(content["name"], **counters, cells=cells, declined=content["declined"])


class Declined(Exception):
    """What is tested does not take a call, and says why: no failure."""


def run_entry(
    name: str,
    modes: Sequence[str] = Oracle.modes,
    oracle_of: Callable[[Call], Oracle] | None = None,
    whole: frozenset[OpOverload] = frozenset(),
) -> EntryResult:
    """Run every sample of every dtype that torch's CPU kernels support, and compare every call that has a kernel, or
    that is of `whole`: with what the kernel gives, or the oracle that `oracle_of` makes for the call."""
    oracle = Oracle()
    run = _Run(EntryResult(name), tuple(modes), oracle_of or (lambda call: oracle))
    for dtype, recording in recordings(name, whole):
        run.count(dtype, recording)
    run.other_dtypes()
    return run.result


@dataclass(slots=True)
class _Run:
    """One entry under way. `examples` are calls of each operator, one of float32 where there is one."""

    result: EntryResult
    modes: tuple[str, ...]
    oracle_of: Callable[[Call], Oracle]
    seen: Counter[object] = field(default_factory=Counter)
    examples: dict[str, Call] = field(default_factory=dict)

    def count(self, dtype: str, recording: Recording | None) -> None:
        result = self.result
        if recording is None:
            result.refusals["the database makes no samples of the dtype"] += 1
            return
        result.samples[dtype] += 1
        result.missing.update(recording.missing)
        if recording.refusal:
            result.refused[dtype] += 1
            result.refusals[recording.refusal.splitlines()[0][:200]] += 1
        compared = [self._compare(call) for call in recording.calls]
        result.compared[dtype] += any(compared)

    def _compare(self, call: Call) -> bool:
        """Whether the call was compared, or one like it."""
        cell = self.result.cell(call.op, _dtype_of(call))
        reason = why_not_compared(call)
        if reason:
            cell.skipped[reason] += 1
            return False
        key = _key(call)
        self.seen[key] += 1
        if self.seen[key] > ALIKE:
            cell.repeated += 1
            return True
        if call.op not in self.examples or _worth(call) > _worth(self.examples[call.op]):
            self.examples[call.op] = call
        self._check(call, cell)
        return True

    def other_dtypes(self) -> None:
        """Try each operator on the dtypes that no sample of the entry gave it."""
        for op, call in self.examples.items():
            for dtype in DTYPES:
                if dtype not in self.result.cells[op]:
                    self._try(call, dtype)

    def _try(self, call: Call, dtype: str) -> None:
        try:
            with warnings.catch_warnings(action="ignore"):
                derived = call.on(getattr(torch, dtype))
        except Exception:  # whatever torch raises: it has no such operator
            self.result.declined.setdefault(call.op, []).append(dtype)
            return
        if not why_not_compared(derived):
            cell = self.result.cell(call.op, dtype)
            cell.derived += 1
            self._check(derived, cell)

    def _check(self, call: Call, cell: Cell) -> None:
        cell.compared += 1
        try:
            check(self.oracle_of(call), call, self.modes)
        except Declined as declined:
            cell.compared -= 1
            cell.skipped[str(declined)] += 1
        except (AssertionError, RuntimeFault) as failure:
            _note(cell, str(failure))
        except Exception as failure:  # a kernel may only raise faults
            _note(cell, f"{type(failure).__name__}: {failure}")


def recordings(name: str, whole: frozenset[OpOverload] = frozenset()) -> Iterator[tuple[str, Recording | None]]:
    """(dtype, recording) of every sample of an entry; None stands for samples that the database fails to make."""
    info = ENTRIES[name]
    for dtype in sorted(info.supported_dtypes("cpu"), key=str):
        _seed()
        try:
            with warnings.catch_warnings(action="ignore"):
                samples = list(info.sample_inputs("cpu", dtype, requires_grad=False))
        except (NotImplementedError, RuntimeError, TypeError):
            yield _name(dtype), None
            continue
        for sample in samples:
            yield _name(dtype), record(partial(info, sample.input, *sample.args, **sample.kwargs), whole)


def _seed() -> None:
    """The same samples in every run."""
    torch.manual_seed(0)
    np.random.seed(0)  # what torch's sample functions draw from
    random.seed(0)


def _key(call: Call) -> object:
    """What calls that are alike have in common."""
    leaves, structure = pytree.tree_flatten((call.args, call.kwargs))
    described = [(v.dtype, v.shape, v.stride()) if isinstance(v, torch.Tensor) else repr(v) for v in leaves]
    return call.op, structure, tuple(described)


def _note(cell: Cell, message: str) -> None:
    cell.failed += 1
    cell.message = cell.message or " ".join(message.split())[:400]


def _fields(record: Cell | EntryResult) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in fields(record)}


def _worth(call: Call) -> tuple[bool, int]:
    """How good an example a call is: one of float32 with more than an element or two."""
    return _dtype_of(call) == "float32", min(100, sum(t.numel() for t in call.tensors()))


def _dtype_of(call: Call) -> str:
    """The dtype of the first tensor among the arguments, or of the result."""
    tensors = call.tensors()
    return _name(tensors[0].dtype) if tensors else "none"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
