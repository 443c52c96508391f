"""Logits -> the next token: the likeliest, or drawn by temperature among the top k, or those that have p together."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

COLDEST = 1e-4
"""Below it the likeliest is drawn in any case, and quotients leave float32's range."""

Sampler = Callable[[NDArray[np.float32]], int]


def sampler(temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, seed: int | None = None) -> Sampler:
    """Chooses a token from logits [vocabulary]. Temperature 0: the likeliest; top_k 0 and top_p 1: among all of them.

    Raises `ValueError` for numbers that mean nothing.
    """
    if not 0 <= temperature < math.inf or top_k < 0 or not 0 < top_p <= 1 or (seed is not None and seed < 0):
        raise ValueError(
            f"temperature={temperature}, top_k={top_k} and seed={seed} are from 0 on, top_p={top_p} is above 0, up to 1"
        )
    random = np.random.default_rng(seed)

    def choose(logits: NDArray[np.float32]) -> int:
        if temperature < COLDEST:
            return int(logits.argmax())
        tokens, chances = likeliest(logits / temperature, top_k, top_p)
        return int(random.choice(tokens, p=chances))

    return choose


def likeliest(logits: NDArray[np.float32], top_k: int, top_p: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The tokens to draw from, likeliest first, and their probabilities: the `top_k`, and of these the fewest that
    have `top_p` of the probability together."""
    tokens = np.argsort(-logits, kind="stable")[: top_k or None]
    weights = np.exp(logits[tokens].astype(np.float64) - logits[tokens[0]])
    before = np.cumsum(weights) / weights.sum() - weights / weights.sum()
    kept = before < top_p
    return tokens[kept], weights[kept] / weights[kept].sum()
