"""The limits of what a file may say: the last that is admitted, and the first that is not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from delegraph.errors import InvalidProgram
from delegraph.program.checks.verify import find_violations
from delegraph.program.contract import read_contracts
from delegraph.program.schema import Chain, ExecutionPlan, NamedData, Program, ScalarType, Tensor
from delegraph.runtime.calls.pytree import PROTOCOL, parse_treespec

LARGEST_SIZE, LARGEST_NBYTES = 2**31 - 1, 2**63 - 1


def with_values(*values: Any, **fields: Any) -> Program:
    plan = ExecutionPlan("forward", values, (), (), chains=(Chain(()),), non_const_buffer_sizes=(0, 64), **fields)
    return Program((plan,), constants=(b"",))


def tensor(*sizes: int, dtype: ScalarType = ScalarType.BYTE) -> Program:
    return with_values(Tensor(dtype, sizes, tuple(range(len(sizes)))))


@pytest.mark.parametrize(
    ("admitted", "refused", "told"),
    [
        (tensor(*[1] * 16), tensor(*[1] * 17), "has 17 dims; runtimes take 16 at most"),
        (tensor(LARGEST_SIZE, 0), tensor(LARGEST_SIZE + 1, 0), ".sizes"),
        (tensor(7**2 * 73 * 127 * 337, 92737, 649657), tensor(2**21, 2**21, 2**21), ".sizes"),
    ],
    ids=["dims", "a size", "bytes"],
)
def test_tensors(admitted: Program, refused: Program, told: str) -> None:
    assert not [violation for violation in find_violations(admitted) if ".sizes" in violation]
    assert [violation for violation in find_violations(refused) if told in violation]


@pytest.mark.parametrize(
    ("sizes", "admitted"), [((0, LARGEST_NBYTES), True), ((0, LARGEST_NBYTES + 1), False), ((-1,), False)]
)
def test_memories(sizes: tuple[int, ...], admitted: bool) -> None:
    program = with_values()
    plan = replace(program.execution_plan[0], non_const_buffer_sizes=sizes)
    violations = [v for v in find_violations(replace(program, execution_plan=(plan,))) if "non_const_buffer_sizes" in v]
    assert bool(violations) is not admitted


@pytest.mark.parametrize(("alignment", "admitted"), [(2**30, True), (2**30 + 1, False), (0, False)])
def test_alignments(alignment: int, admitted: bool) -> None:
    program = replace(with_values(), named_data={"weights": NamedData(b"", alignment)})
    assert bool([v for v in find_violations(program) if ".alignment" in v]) is not admitted


def relation(levels: int) -> bytes:
    node: Any = ["==", 1, 1]
    for _ in range(levels):
        node = ["not", node]
    return json.dumps({"version": 1, "methods": {"forward": {"relations": [node]}}}).encode()


def test_relations() -> None:
    """A comparison within 32 negations."""
    assert read_contracts(relation(32))["forward"].relations
    with pytest.raises(InvalidProgram, match="a relation is more than 32 deep"):
        read_contracts(relation(33))


def structure(levels: int) -> str:
    node: Any = {"type": None, "context": None, "children_spec": []}
    for _ in range(levels):
        node = {"type": "builtins.list", "context": "null", "children_spec": [node]}
    return json.dumps([PROTOCOL, node])


def test_structures_of_arguments() -> None:
    """A tensor within 64 lists."""
    assert parse_treespec(structure(64)) is not None
    with pytest.raises(InvalidProgram, match="it is more than 64 deep"):
        parse_treespec(structure(65))
