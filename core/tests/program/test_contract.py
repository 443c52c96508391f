"""The named data of the shape contract: written and read the same, and refused when it is damaged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delegraph.errors import InvalidProgram
from delegraph.program.contract import DimRange, MethodContract, read_contracts, relation_text, write_contracts

CONTRACT = MethodContract(
    parameters=("x", "y"),
    inputs=((DimRange("batch", 1, 16), 8), None, (DimRange(None, 0, None),)),
    outputs=((DimRange("batch", 1, 16),),),
    relations=(("or", ("==", ("%", ("size", 0, 0), 2), 0), ("not", (">", ("max", ("size", 2, 0), 3), 9))),),
    unchecked=("f(x) == 2",),
)


def test_there_and_back() -> None:
    contracts = {"forward": CONTRACT, "other": MethodContract(("z",))}
    assert read_contracts(write_contracts(contracts)) == contracts


def test_one_of_a_later_version_is_not_read() -> None:
    assert read_contracts(b'{"version": 2, "all": "different"}') == {}


def test_as_people_read_it() -> None:
    (relation,) = CONTRACT.relations
    text = "(x.shape[0] % 2 == 0) or (not (max(z.shape[0], 3) > 9))"
    assert relation_text(relation, ["x", "y", "z"]) == text
    assert str(DimRange("batch", 1, 16)) == "batch in 1..16" and str(DimRange(None, 3)) == "3.."


def deep(levels: int) -> Any:
    node: Any = ["==", 1, 1]
    for _ in range(levels):
        node = ["not", node]
    return node


@pytest.mark.parametrize(
    "method",
    [
        {"inputs": 3},
        {"inputs": [[True]]},
        {"inputs": [[{"min": "1"}]]},
        {"inputs": [[2**63]]},
        {"inputs": [[{"name": 1}]]},
        {"parameters": "x"},
        {"parameters": [1]},
        {"unchecked": [None]},
        {"relations": ["=="]},
        {"relations": [[]]},
        {"relations": [["==", 1]]},
        {"relations": [["==", 1, ["size", 0, 0]]]},
        {"relations": [["+", 1, 1]]},
        {"relations": [["==", 1, ["**", 2, 2]]]},
        {"relations": [["__import__", "os"]]},
        {"relations": [["and"]]},
        {"relations": [deep(40)]},
    ],
)
def test_damaged(method: Any) -> None:
    data = json.dumps({"version": 1, "methods": {"forward": method}}).encode()
    with pytest.raises(InvalidProgram, match=r"the named data 'delegraph\.contract' is damaged"):
        read_contracts(data)


@pytest.mark.parametrize(
    ("relation", "reason"),
    [
        ([[]], "a relation begins with its operator"),
        (["and"], "'and' with 0 operands is not a condition"),
        (["==", 1, ["**", 2, 2]], "'**' with 2 operands is not a number"),
        (["==", 1, ["size", 0, 0]], "there is no size 0 of input 0"),
        (["==", 1, 2**63], "expected an integer of 64 bits, not 9223372036854775808"),
        (deep(40), "a relation is more than 32 deep"),
    ],
)
def test_why_a_relation_is_damaged(relation: Any, reason: str) -> None:
    data = json.dumps({"version": 1, "methods": {"forward": {"relations": [relation]}}}).encode()
    with pytest.raises(InvalidProgram) as error:
        read_contracts(data)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b"{}", b'{"version": 1}', b'{"version": 1, "methods": []}', b"[" * 100_000]
)
def test_not_a_contract(data: bytes) -> None:
    with pytest.raises(InvalidProgram, match="is damaged"):
        read_contracts(data)
