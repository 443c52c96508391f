"""Random programs against eager torch on every backend, and on both orders of each two.

    pytest tests/programs -m models            a few hundred
    make fuzz-programs PROGRAMS=10000 SEED=0   as many as are asked for, from this seed on

A program that fails is shrunk, and shown as Python that runs as it stands.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest
from tests.programs.grammar import random_program
from tests.programs.program import Program
from tests.programs.running import Finding, NotExported, Subject, orders_of, with_options
from tests.programs.shrinking import shrunk

FEW, CASES = 10, 20
"""Programs of a case, and cases, among the tests of models."""

MANY = 100
"""Programs of a case of `make fuzz-programs`."""

ORDERS_OF_FEW, ORDERS_OF_MANY = 1, 3
"""Orders of backends for each of these programs; they take turns."""

EXPORTED = 0.5
"""The share of programs that torch.export takes, at least."""


def findings_in(seeds: Iterable[int], orders: int) -> list[str]:
    """What is wrong with the programs of these seeds on so many orders of backends, in words, with snippets."""
    texts, exported, kinds, count = [], 0, set[str](), 0
    for seed in seeds:
        count += 1
        try:
            subject = Subject(random_program(seed))
        except NotExported:
            continue
        exported += 1
        for order in orders_of(subject.program, seed, orders):
            finding = subject.finding(order)
            if finding is not None and finding.kind not in kinds:
                kinds.add(finding.kind)
                texts.append(told(seed, subject.program, finding))
    assert exported >= EXPORTED * count, f"torch.export refuses {count - exported} of {count} programs"
    return texts


def told(seed: int, program: Program, finding: Finding) -> str:
    """A finding with the smallest program that shows it."""

    def shows(smaller: Program) -> bool:
        try:
            other = Subject(smaller).finding(finding.order)
        except NotExported:
            return False
        return other is not None and other.kind == finding.kind

    smallest = shrunk(program, shows)
    return f"seed {seed}, {finding.kind}\n{smallest.snippet(with_options(finding.order))}\n{finding.message}"


@pytest.mark.models
@pytest.mark.parametrize("first", range(0, FEW * CASES, FEW))
def test_random_programs(first: int) -> None:
    findings = findings_in(range(first, first + FEW), ORDERS_OF_FEW)
    assert not findings, "\n\n".join(findings)


def _cases() -> range:
    """The first seeds of the cases of `make fuzz-programs`; none where nobody asks for them."""
    seed, count = (int(os.environ.get(name) or 0) for name in ("SEED", "PROGRAMS"))
    return range(seed, seed + count, MANY)


@pytest.mark.programs
@pytest.mark.parametrize("first", _cases())
def test_many_random_programs(first: int) -> None:
    findings = findings_in(range(first, first + MANY), ORDERS_OF_MANY)
    assert not findings, "\n\n".join(findings)
