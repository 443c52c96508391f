"""The limits of what an ETRecord may say: the last that is admitted, and the first that is not."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest
from core.tests.aot.test_hostile_etrecord import archive_of, pickled, tensor

from delegraph.aot.etrecord.expressions import read_size
from delegraph.aot.etrecord.tensors import _check_plain, read_tensors
from delegraph.aot.etrecord.texts import _structure
from delegraph.aot.etrecord.typed_json import JsonReader
from delegraph.errors import ETRecordError


def expect(admitted: bool, error: type[Exception] = ValueError) -> Any:
    return nullcontext() if admitted else pytest.raises(error)


def in_lists(levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = [value]
    return value


# ---- structures -----------------------------------------------------------------------------------------------------


def tree(levels: int) -> str:
    node = {"type": None, "context": None, "children_spec": []}
    for _ in range(levels):
        node = {"type": "builtins.list", "context": "null", "children_spec": [node]}
    return json.dumps([1, node])


def keys(levels: int) -> str:
    node = {"type": "builtins.dict", "context": json.dumps(in_lists(levels, "key")), "children_spec": []}
    return json.dumps([1, node])


@pytest.mark.parametrize(
    ("text", "admitted"), [(tree(64), True), (tree(65), False), (keys(65), True), (keys(66), False)]
)
def test_structures(text: str, admitted: bool) -> None:
    with expect(admitted):
        _structure(text)


# ---- tensors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "admitted"),
    [
        (in_lists(64, 0), True),
        (in_lists(65, 0), False),
        ([0] * 999_999, True),
        ([0] * 1_000_000, False),
    ],
    ids=["64 deep", "65 deep", "a million values", "more values"],
)
def test_containers(value: Any, admitted: bool) -> None:
    with expect(admitted):
        _check_plain(value)


@pytest.mark.parametrize(
    ("size", "stride", "refused"),
    [
        ((1,) * 64, (0,) * 64, ""),
        ((1,) * 65, (0,) * 65, "sizes and strides of different tensors"),
        ((2**24,), (0,), ""),
        ((2**24 + 1,), (0,), "16777217 elements in a storage of 4"),
        ((0, 2**63 - 1), (0, 2**63 - 1), ""),
        ((0, 2**63), (0, 1), "sizes that no tensor has"),
        ((0, 1), (1, 2**63), "sizes that no tensor has"),
    ],
)
def test_tensors(size: tuple[int, ...], stride: tuple[int, ...], refused: str) -> None:
    data = archive_of(pickled({"w": tensor(size=size, stride=stride)}), **{"0": b"\x02" * 16})
    with pytest.raises(ETRecordError, match=refused) if refused else nullcontext():
        read_tensors(data, "state")


# ---- expressions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "admitted"),
    [
        ("s0".ljust(4096), True),
        ("s0".ljust(4097), False),
        ("-" * 38 + "s0", True),
        ("-" * 39 + "s0", False),
        ("s0**4", True),
        ("s0**5", False),
        ("s999999", True),
        ("s1000000", False),
        ("s" * 64, True),
        ("s" * 65, False),
        (str(2**63 - 1), True),
        (str(2**63), False),
        (f"Add({','.join(['s0'] * 64)})", True),
        (f"Add({','.join(['s0'] * 65)})", False),
    ],
)
def test_sizes(text: str, admitted: bool) -> None:
    with expect(admitted):
        read_size(text)


# ---- values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "admitted"), [(200, True), (201, False)])
def test_values_in_one_another(depth: int, admitted: bool) -> None:
    with expect(admitted, ETRecordError):
        JsonReader("record", {}, {}).read(int, 3, (0,) * depth)
