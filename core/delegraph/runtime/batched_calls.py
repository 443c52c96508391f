"""Calls that wait -> batches: their inputs joined along the first dim, one run, and its outputs cut apart again.

    a call joins the open batch of calls like it (the same sizes behind the first dim, the same dtypes), or opens one
    a batch stands in the workers' line; its turn comes, it is closed, and one run computes all of it

If that run fails, each of its calls is run alone: the fault is one call's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from time import monotonic
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import RuntimeFault
from delegraph.program.contract import DimRange, Dims, MethodContract
from delegraph.runtime.submitted_calls import Call, Finish, Inputs, SubmittedCalls
from delegraph.runtime.values.tensors import any_torch_tensor, as_array, to_torch
from delegraph.runtime.workers import Worker, Workers

__all__ = ["BatchedCalls", "not_batched"]

Likeness: TypeAlias = tuple[tuple[tuple[int, ...], str], ...]
"""Of each input, the sizes behind the first dim, and the dtype."""


def not_batched(contract: MethodContract | None, keeps_state: bool, rows: int) -> str:
    """Why calls of a method are not run as one of `rows` rows, in words; "": they can be."""
    if keeps_state:
        return "it keeps state, so that calls of it cannot be one run"
    dims = () if contract is None else (*contract.inputs, *contract.outputs)
    first = {_first(item) for item in dims}
    (batch,) = first if len(first) == 1 else (None,)
    if batch is None or batch.name is None:
        return "its inputs and outputs have no dynamic first dim in common; lower it with dynamic_shapes={0: Dim(…)}"
    return "" if rows in batch else f"its first dim is {batch}"


def _first(dims: Dims | None) -> DimRange | None:
    first = dims[0] if dims else None
    return first if isinstance(first, DimRange) else None


class BatchedCalls(SubmittedCalls):
    """The calls of a method whose inputs and outputs have a dynamic first dim in common.

    A call that is given `out`, that has as many rows as a batch or more, or whose inputs do not go together, is run
    alone.
    """

    def __init__(self, workers: Workers) -> None:
        super().__init__(workers)
        self._open: dict[Likeness, _Batch] = {}
        self.waiting = 0
        """How many calls wait in batches. Changed with the workers' lock."""

    def execute(self, inputs: Inputs, out: Sequence[object] | None = None) -> list[Any]:
        """As `Workers.execute`, in a batch."""
        call, timeout = self.submit(inputs, out, list), self.workers.concurrency.timeout
        try:
            return call.result(timeout)  # type: ignore[no-any-return]
        except TimeoutError:
            call.give_up()
            return call.result()  # type: ignore[no-any-return]
        except BaseException:
            call.cancel()  # an interrupt
            raise

    def submit(self, inputs: Inputs, out: Sequence[object] | None, finish: Finish) -> Call:
        """As `SubmittedCalls.submit`, in a batch."""
        arrays = [] if out is not None else _arrays(inputs)
        rows = {len(array) for array in arrays if array.ndim}
        if len(rows) != 1 or any(not array.ndim for array in arrays) or max(rows) >= self.max_rows:
            call = super().submit(inputs, out, finish)
            self._hurry()
            return call
        return self._joined(Call(self, arrays, None, _as_torch(finish) if any_torch_tensor(inputs) else finish), *rows)

    def _joined(self, call: Call, rows: int) -> Call:
        workers, most = self.workers, self.workers.concurrency.max_waiting
        likeness = tuple((array.shape[1:], array.dtype.str) for array in call.inputs)  # type: ignore[attr-defined]
        with workers.lock:
            workers.require_open()
            if most is not None and self.waiting >= most:
                raise workers.crowded()
            batch = self._open.get(likeness)
            is_new = batch is None or batch.rows + rows > self.max_rows
            if batch is None or is_new:
                self._close(batch)
                batch = self._open[likeness] = _Batch(self, likeness)
            batch.calls.append(call)
            batch.rows += rows
            self.waiting += 1
            if batch.rows >= self.max_rows:
                self._close(batch)
        if is_new:
            workers.ask(batch, is_bounded=False)
            self._hurry()
        return call

    def _hurry(self) -> None:
        """Where somebody stands in line, no batch has a worker only to wait for more calls."""
        with self.workers.lock:
            for batch in self._open.values() if self.workers.line else ():
                batch.is_full.set()

    @property
    def max_rows(self) -> int:
        """The rows of a batch at most."""
        return self.workers.concurrency.max_batch

    def _close(self, batch: _Batch | None) -> None:
        """Let no more calls into `batch`. With the workers' lock."""
        if batch is not None:
            batch.is_full.set()
            if self._open.get(batch.likeness) is batch:
                del self._open[batch.likeness]

    def _leave(self) -> object:
        self._open.clear()
        self.waiting = 0
        return super()._leave()

    def begun(self, batch: _Batch) -> list[Call]:
        """The calls of `batch` that are to run now: it is closed, and those that were cancelled are left out."""
        with self.workers.lock:
            self._close(batch)
            self.waiting -= len(batch.calls)
            return [call for call in batch.calls if call.begins()]


class _Batch:
    """Calls that become one run, a waiter in the workers' line."""

    def __init__(self, calls: BatchedCalls, likeness: Likeness) -> None:
        self.likeness = likeness
        self.calls: list[Call] = []
        self.rows = 0
        self.is_full = Event()
        self._calls = calls
        self._until = monotonic() + calls.workers.concurrency.max_delay

    def take(self, worker: Worker | None) -> None:
        self._calls.start(self, worker)

    def run_on(self, worker: Worker) -> None:
        self.is_full.wait(max(0.0, self._until - monotonic()))
        calls = [call for call in self._calls.begun(self) if not call.refuses()]
        try:
            parts = _run(calls, worker) if len(calls) > 1 else None
        except Exception:
            parts = None
        for number, call in enumerate(calls):
            if parts is None:
                call.run_alone(worker)
            else:
                call.settle(list, parts[number])


def _run(calls: Sequence[Call], worker: Worker) -> list[list[Any]]:
    """The outputs of each call, of one run of all."""
    inputs: list[Any] = [np.concatenate(arrays) for arrays in zip(*(call.inputs for call in calls), strict=True)]
    ends = np.cumsum([len(call.inputs[0]) for call in calls])[:-1]  # type: ignore[arg-type]
    outputs = [np.split(output, ends) for output in worker.execute(inputs)]
    return [[part.copy() for part in parts] for parts in zip(*outputs, strict=True)]


def _arrays(inputs: Inputs) -> list[NDArray[Any]]:
    """The inputs' memory; nothing where there is an input that has none."""
    try:
        return [as_array(value) for value in inputs]
    except RuntimeFault:
        return []


def _as_torch(finish: Finish) -> Finish:
    return lambda outputs: finish(to_torch(outputs))
