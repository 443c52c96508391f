"""A few hundred mutations on each run of the tests; `make fuzz` makes a million, guided by what they reach."""

from __future__ import annotations

import random

import pytest
from tests.fuzz.harness import exercise
from tests.fuzz.mutations import mutate
from tests.fuzz.seeds import SEEDS

FEW = 30


@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_the_seeds_are_sound(seed: int) -> None:
    assert exercise(SEEDS[seed])


@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_mutations(seed: int) -> None:
    for number in range(FEW):
        rng = random.Random(seed * FEW + number)
        exercise(mutate(mutate(SEEDS[seed], rng), rng))
