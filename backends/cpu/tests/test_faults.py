"""A run that fails for what it was given: which input it was, what it held, and what it might have held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from backends.cpu.tests.harness import Function, Lowered, edge
from torch import nn

import delegraph
from delegraph.errors import DelegateInvalidCompatibility, Internal, InvalidArgument
from delegraph.interfaces import BlobTensor, PlacesInfo
from delegraph_cpu.blob import Blob, pack, unpack
from delegraph_cpu.runtime.faults import fault_of

Tensor = torch.Tensor
ROWS = torch.randn(2, 8, 16)


class Cache(nn.Module):
    """Rows are put at places that are told in different ways."""

    def __init__(self, put: Callable[[Tensor, Tensor, Tensor], object]) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 2, 8, 16))
        self.put = put

    def forward(self, place: Tensor, rows: Tensor) -> Tensor:
        self.put(self.keys, place, rows)
        return self.keys.sum(2)


def put(cache: Tensor, place: Tensor, rows: Tensor) -> None:
    cache[:, :, place] = rows


def put_twice(cache: Tensor, place: Tensor, rows: Tensor) -> None:
    cache.index_copy_(2, torch.zeros(1, dtype=torch.int64), rows)
    cache[:, :, place] = rows


CACHES: dict[str, tuple[Callable[..., object], int, dict[int, int]]] = {
    "copied": (lambda cache, place, rows: cache.index_copy_(2, place, rows), 1, {8: 8, -1: -1, 2**40: 2**40}),
    "put": (put, 1, {8: 8}),
    "put again": (put_twice, 1, {8: 8}),
    "put at a place of 32 bits": (lambda cache, place, rows: put(cache, place.int(), rows), 1, {9: 9}),
    "put from a place on": (lambda cache, place, rows: put(cache, place + torch.arange(3), rows), 3, {6: 8, 9: 9}),
    "put behind a place": (lambda cache, place, rows: put(cache, place + 2, rows), 1, {6: 8, -11: -9}),
}
"""How rows are put, how many, and given -> the first place that is not there."""


@pytest.mark.parametrize("name", CACHES)
def test_a_place_beyond_a_cache_is_told(name: str) -> None:
    function, count, wrong = CACHES[name]
    args = torch.tensor([0]), torch.ones(1, 2, count, 16)
    run = delegraph.load(bytes(delegraph.lower(Cache(function), args, backends=["cpu"])))
    for given, place in wrong.items():
        first = 0 if name == "copied" else -8  # which torch does not count from the end
        told = f"input 'place' holds {given}, but 'keys' has no place {place}: it has 8 places, {first} to 7$"
        with pytest.raises(InvalidArgument, match=told):
            run(np.array([given]), args[1].numpy())
    assert not run.state["keys"].any()
    run(np.array([1]), args[1].numpy())
    assert run.state["keys"].any()


READ: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "embedding": F.embedding,
    "index_select": lambda i, t: t.index_select(0, i),
    "gather": lambda i, t: t.gather(0, i[:, None]),
    "scatter": lambda i, t: t.scatter(0, i[:, None], 1.0),
    "scatter_add": lambda i, t: t.scatter_add(0, i[:, None], t[:2]),
}


@pytest.mark.parametrize("name", READ)
def test_an_index_that_is_none_is_told(name: str) -> None:
    lowered = Lowered(edge(Function(READ[name]), (torch.tensor([3, 7]), ROWS[0])))
    for wrong in (8, -1, 1000):
        told = f"input 'args_0' holds {wrong}, but .* has no place {wrong}: it has 8 places, 0 to 7$"
        with pytest.raises(InvalidArgument, match=told):
            lowered(torch.tensor([3, wrong]), ROWS[0])


def test_the_table_is_told_by_its_name() -> None:
    run = delegraph.load(bytes(delegraph.lower(nn.Embedding(8, 4), (torch.tensor([3]),), backends=["cpu"])))
    with pytest.raises(InvalidArgument, match=r"holds 9, but 'weight' has no place 9: it has 8 places, 0 to 7$"):
        run(np.array([9]))


def test_a_place_that_is_computed_is_told_as_well() -> None:
    lowered = Lowered(edge(Function(lambda i, t: t[i * 2]), (torch.tensor([3]), ROWS[0])))
    with pytest.raises(InvalidArgument, match=r"there is no place 18, in .*\[-8,7\]"):
        lowered(torch.tensor([9]), ROWS[0])


DIVIDED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "by a number": lambda t, n: t // 0,
    "rest by a number": lambda t, n: t % 0,
    "C's rest by a number": lambda t, n: torch.fmod(t, 0),
    "towards zero": lambda t, n: torch.div(t, 0, rounding_mode="trunc"),
    "by a constant": lambda t, n: t // torch.tensor([1, 0, 1]),
    "by what is filled": lambda t, n: t % torch.full((3,), 0),
    "by an input": lambda t, n: t // n,
    "rest by an input": lambda t, n: t % n,
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
@pytest.mark.parametrize("name", DIVIDED)
def test_integers_are_not_divided_by_zero(name: str, dtype: torch.dtype) -> None:
    """torch lets nobody see it before the run, either."""
    args = torch.tensor([3, 4, 100], dtype=dtype), torch.tensor([1, 0, 1], dtype=dtype)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        DIVIDED[name](*args)
    lowered = Lowered(edge(Function(DIVIDED[name]), args))
    with pytest.raises(InvalidArgument, match="an integer is divided by 0"):
        lowered(*args)


# ---- what stands in the header -------------------------------------------------------------------------------------

PLACES = PlacesInfo("i", "table", 8)
BLOB = Blob("1", (BlobTensor("x", "float32", (2,)), BlobTensor("i", "int64", (2,))), (), (), b"", places=(PLACES,))


def fault(blob: Blob, *inputs: Any) -> Exception:
    return fault_of(RuntimeError("it is broken"), blob, [np.asarray(x) for x in inputs])


def test_another_failure_stays_the_backends_own() -> None:
    for given in ([0, 7], [], np.array([9.0]), np.array([True])):
        found = fault(BLOB, [1.0], given)
        assert type(found) is Internal
        assert str(found) == "onnxruntime failed in a delegate: it is broken"
    assert type(fault(replace(BLOB, places=(replace(PLACES, input="other"),)), [1.0], [9])) is Internal


def test_places_are_in_the_header_of_a_blob() -> None:
    packed = pack(BLOB, [])
    assert unpack(packed).places == (PLACES,)
    for wrong in ({"size": -1}, {"first": 2**70}, {"last": "x"}, {"from_end": 1}, {"input": None}):
        with pytest.raises(DelegateInvalidCompatibility, match="header cannot be read"):
            unpack(pack(replace(BLOB, places=(replace(PLACES, **wrong),)), []))  # type: ignore[arg-type]


def test_a_failed_call_can_be_made_again() -> None:
    """Arrays that are bound once are looked at where they lie."""
    run = delegraph.load(bytes(delegraph.lower(nn.Embedding(8, 4), (torch.tensor([3]),), backends=["cpu"])))
    wanted = run(np.array([2]))
    for _ in range(3):
        with pytest.raises(InvalidArgument, match="holds -1"):
            run(np.array([-1]))
        np.testing.assert_array_equal(run(np.array([2])), wanted)
