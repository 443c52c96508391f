"""Kernels, right and wrong ones."""

from __future__ import annotations

from typing import Any

import numpy as np


def scaled(context: Any, x: Any, factor: float, offset: int, out: Any) -> None:
    np.add(x * factor, offset, out=context.resize(out, x.shape), casting="unsafe")


def scaled_matrix(context: Any, x: Any, factor: float, offset: int, out: Any) -> None:
    scaled(context, x, factor, offset, out)


def put(context: Any, cache: Any, row: Any, position: int) -> None:
    cache[position] = row


def any_call(*args: Any) -> None:
    """Takes whatever comes."""


def total(context: Any, tensors: Any, weight: Any, out: Any) -> None:
    """Names of its own are fine, as long as none is another argument's."""


def too_few(context: Any, x: Any, out: Any) -> None: ...


def by_keyword(context: Any, x: Any, factor: float, offset: int, *, out: Any) -> None: ...


def swapped(context: Any, x: Any, offset: int, factor: float, out: Any) -> None: ...


not_a_function = 3
