"""`Pool`, which is deprecated: a session of a Module with a number of workers, under the names that it had."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import delegraph
from delegraph.deprecation import PluginDeprecationWarning
from delegraph.errors import InvalidArgument, InvalidState, InvalidType
from delegraph.runtime import load
from delegraph.runtime.pool import Pool


def test_importing_it_says_what_has_its_place() -> None:
    with pytest.warns(PluginDeprecationWarning, match=r"delegraph\.Pool is deprecated: use delegraph\.Concurrency"):
        assert delegraph.Pool is Pool  # type: ignore[attr-defined]


def test_its_calls_are_the_modules(build: Any, kernels: Any) -> None:
    x = build.tensor(2)
    plans = [build.plan([x], [x])]
    double = build.call("aten::add.out", x, x, build.int(1), build.tensor(2))
    plans.append(build.plan([x], [double], name="double"))
    module = load(build.program(*plans), kernels=[kernels])
    ones = np.ones(2, np.float32)
    for made_of, method, factor in ((module, None, 1), (module, "double", 2), (module.program, "double", 2)):
        with Pool(made_of, workers=2, method=method) as pool:
            expected = [[factor, factor]]
            assert pool.workers == 2
            np.testing.assert_array_equal(pool(ones), expected)
            np.testing.assert_array_equal(pool.submit(ones).result(), expected)
            np.testing.assert_array_equal(asyncio.run(pool.run(ones)), expected)
        with pytest.raises(InvalidState, match="was closed"):
            pool.submit(ones)
    np.testing.assert_array_equal(module(ones), [ones])


def test_a_pool_of_nobody(build: Any, kernels: Any) -> None:
    x = build.tensor(2)
    with pytest.raises(InvalidArgument, match="a pool of 0 workers; it has at least one"):
        Pool(load(build.program(build.plan([x], [x])), kernels=[kernels]), workers=0)
    with pytest.raises(
        InvalidType, match=r"a pool is made of a Module, which delegraph\.load\(…\) returns, .* 'm\.pte'"
    ):
        Pool("m.pte", workers=2)  # type: ignore[arg-type]
