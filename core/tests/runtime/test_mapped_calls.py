"""`Module.map`: results in the order of the arguments, few read ahead; and calls that fail, or are left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from core.tests.runtime.test_concurrency import Gate, answer, gate, gated, number

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.program import serialize_program
from delegraph.runtime import Concurrency, load

__all__ = ["gate"]


def counted(count: int, read: list[int]) -> Iterator[Any]:
    for n in range(count):
        read.append(n)
        yield number(n)


def test_results_come_in_the_order_of_the_arguments(build: Any, gate: Gate) -> None:
    gate.permits.release(100)
    with gated(build, gate, workers=3) as model:
        assert [answer(result) for result in model.map(counted(50, []))] == list(range(50))


def test_no_more_is_read_than_was_asked_for(build: Any, gate: Gate) -> None:
    read: list[int] = []
    model = gated(build, gate, workers=2)
    results = model.map(counted(50, read), buffersize=5)
    assert read == []  # nothing before the first result is wanted
    gate.permits.release(100)
    next(results)
    assert read == list(range(5))
    next(results)
    assert read == list(range(6))


def test_by_default_twice_as_many_are_read_as_run(build: Any, gate: Gate) -> None:
    read: list[int] = []
    gate.permits.release(100)
    next(gated(build, gate, workers=3).map(counted(50, read)))
    assert len(read) == 6


def test_no_more_wait_than_may(build: Any, gate: Gate) -> None:
    """`Concurrency(max_waiting=…)` refuses what comes beyond it, and map does not come."""
    gate.permits.release(100)
    model = gated(build, gate, workers=1, max_waiting=1)
    assert len(list(model.map(counted(20, []), buffersize=10))) == 20


def test_an_error_stands_where_its_result_would_and_ends_the_rest(build: Any, gate: Gate) -> None:
    gate.permits.release(100)
    results = gated(build, gate, workers=2).map([number(0), np.zeros(3, np.float32), number(2)])
    assert answer(next(results)) == 0
    with pytest.raises(InvalidArgument, match="input 0"):
        next(results)
    assert list(results) == []


def test_whoever_stops_taking_results_cancels_what_is_left(build: Any, gate: Gate) -> None:
    model = gated(build, gate, workers=1)
    results = model.map(counted(50, []), buffersize=4)
    gate.permits.release(1)
    next(results)
    results.close()  # type: ignore[attr-defined]
    model.close()  # waits for what still runs: with what was left, it would wait for permits that never come
    assert len(gate.order) <= 2


def test_several_arguments_each_from_an_iterable(build: Any, kernels: Any) -> None:
    x, y, out = build.tensor(2), build.tensor(2), build.tensor(2)
    build.call("aten::mul.out", x, y, out)
    model = load(serialize_program(build.program(build.plan([x, y], [out]))), kernels=[kernels])
    ones, twos = np.ones(2, np.float32), np.full(2, 2, np.float32)
    assert [result[0].tolist() for result in model.map([ones, twos, twos], [twos, twos])] == [[2, 2], [4, 4]]


def test_borrowed_outputs_are_read_before_the_next_call_writes_them(build: Any, gate: Gate) -> None:
    gate.permits.release(100)
    model = load(
        serialize_program(_gated_plan(build)), backends={"Gate": gate}, outputs="borrow", concurrency=Concurrency(2)
    )
    assert [answer(result) for result in model.map(counted(9, []), buffersize=8)] == list(range(9))


def _gated_plan(build: Any) -> Any:
    x, out = build.tensor(1), build.tensor(1)
    build.delegate("Gate", x, out)
    return build.program(build.plan([x], [out]))


def test_what_makes_no_sense(build: Any, gate: Gate) -> None:
    model = gated(build, gate)
    with pytest.raises(InvalidArgument, match="buffersize=0; it is at least 1"):
        model.map([], buffersize=0)
    with pytest.raises(InvalidArgument, match="map takes an iterable for each argument; there is none"):
        model.map()
    assert list(model.map([])) == []
    with pytest.raises((InvalidType, InvalidArgument)):
        list(model.map(["words"]))
