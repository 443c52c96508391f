"""The name of a function of one number -> its value at every float16, correctly rounded.

A function is computed in double precision and rounded once. Doubles of different libraries differ in their last bit,
2**-42 of the distance between two float16: no result lies so near the middle of two (`tests/test_functions.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["REAL_FUNCTIONS", "table_of_halves"]

Reals: TypeAlias = NDArray[np.float64]

_ROOT: Final = math.sqrt(0.5)
_TANH_SCALE: Final = math.sqrt(2 / math.pi)
_TANH_CUBE: Final = 0.044715  # Hendrycks and Gimpel, "Gaussian error linear units", 2016


def _erf(x: Reals) -> Reals:
    return np.array([math.erf(value) for value in x.ravel()]).reshape(x.shape)


def _erfc(x: Reals) -> Reals:
    return np.array([math.erfc(value) for value in x.ravel()]).reshape(x.shape)


def _limited(product: Reals, x: Reals) -> Reals:
    """`product`, and 0 where x is -inf: its limit there, where 0 times infinity has no value."""
    return np.where(np.isneginf(x), 0.0, product)


def _sigmoid(x: Reals) -> Reals:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _softplus(x: Reals) -> Reals:
    """torch's, which is linear from 20 on."""
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20.0))))


def _hardsigmoid(x: Reals) -> Reals:
    return np.clip(x + 3, 0, 6) / 6


REAL_FUNCTIONS: Final[dict[str, Callable[[Reals], Any]]] = {
    "exp": np.exp,
    "log": np.log,
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "gelu": lambda x: _limited(0.5 * x * _erfc(-x * _ROOT), x),
    "gelu_tanh": lambda x: _limited(x * _sigmoid(2 * _TANH_SCALE * (x + _TANH_CUBE * x**3)), x),
    "silu": lambda x: _limited(x * _sigmoid(x), x),
    "erf": _erf,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "softplus": _softplus,
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda x: _limited(x * _hardsigmoid(x), x),
    "sin": np.sin,
    "cos": np.cos,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "mish": lambda x: _limited(x * np.tanh(_softplus(x)), x),
    "log1p": np.log1p,
    "expm1": np.expm1,
    "abs": np.abs,
    "neg": np.negative,
    "relu": lambda x: np.where(np.isnan(x), x, np.maximum(x, 0.0)),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""Functions in double precision: float64 array -> float64 array."""


@lru_cache
def table_of_halves(name: str) -> NDArray[np.float16]:
    """The function at every float16, by its bits: 65536 entries."""
    inputs = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    with np.errstate(all="ignore"):
        table = np.asarray(REAL_FUNCTIONS[name](inputs)).astype(np.float16)
    table.flags.writeable = False
    return table
