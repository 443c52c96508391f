"""BundledProgram -> how each of its test cases went: executed on the bundled inputs, compared with what is expected."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from delegraph.devtools.bundled_program.bundle import BundledProgram
from delegraph.devtools.bundled_program.cases import MethodTestCase
from delegraph.errors import InvalidArgument, RuntimeFault
from delegraph.runtime.external_data import DataSources
from delegraph.runtime.method import Method
from delegraph.runtime.resolution.backend_options import BackendOptions
from delegraph.runtime.runtime import Runtime
from delegraph.runtime.values.tensors import as_array
from delegraph.runtime.values.values import Array

__all__ = ["ATOL", "RTOL", "CaseResult", "OutputComparison", "verify_bundled_program", "verify_case"]

RTOL: Final = 1e-5
ATOL: Final = 1e-8
"""ExecuTorch's own: `extension/pybindings/pybindings.cpp`, `verify_result_with_bundled_expected_output`."""


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """One output beside what was expected. Errors are over all elements; 0 where there are none.

    `mismatched` counts the elements that differ by more than atol + rtol * |expected|; `problem` says why the
    two could not be compared element by element, else "".
    """

    index: int
    elements: int = 0
    mismatched: int = 0
    max_absolute_error: float = 0.0
    max_relative_error: float = 0.0
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether the output is what was expected."""
        return not self.problem and self.mismatched == 0

    def __str__(self) -> str:
        if self.problem:
            return f"output {self.index}: {self.problem}"
        return (
            f"output {self.index}: {self.mismatched:,} of {self.elements:,} elements differ, by up to"
            f" {self.max_absolute_error:.3g} (relative {self.max_relative_error:.3g})"
        )


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How one test case went: `outputs` and their `comparisons`, none where the case expects nothing, or a `fault`."""

    method_name: str
    index: int
    seconds: float
    outputs: tuple[Any, ...] = ()
    comparisons: tuple[OutputComparison, ...] = ()
    fault: RuntimeFault | None = None

    @property
    def ok(self) -> bool:
        """Whether it ran, and every output is what was expected."""
        return self.fault is None and all(comparison.ok for comparison in self.comparisons)

    @property
    def verdict(self) -> str:
        """`ok`, `ran` (nothing is expected), `differs` or `failed`."""
        if self.fault is not None:
            return "failed"
        if not self.comparisons:
            return "ran"
        return "ok" if self.ok else "differs"

    @property
    def reason(self) -> str:
        """The mistake, in words; "" where there is none."""
        if self.fault is not None:
            return str(self.fault)
        return "; ".join(str(comparison) for comparison in self.comparisons if not comparison.ok)


def verify_bundled_program(
    bundled: BundledProgram,
    *,
    rtol: float = RTOL,
    atol: float = ATOL,
    methods: Collection[str] | None = None,
    runtime: Runtime | None = None,
    data_path: DataSources | None = None,
    backend_options: BackendOptions | None = None,
) -> list[CaseResult]:
    """Run all test cases, or those of `methods`, and compare what comes out.

    Each method is loaded once and its cases run in their order, so state that it keeps carries over from case to case,
    as in ExecuTorch's `BundledModule`. `runtime` chooses kernels and backends, `data_path` is the `.ptd` with
    external constants, `backend_options` are by load, as for `Program.load_method`. A fault in a case is that case's
    result. Raises `InvalidArgument` for a method without test cases, and what `Program.load` and `Program.load_method`
    raise.
    """
    suites = {suite.method_name: suite for suite in bundled.method_test_suites}
    for name in methods or ():
        if name not in suites:
            raise InvalidArgument(f"there are no test cases for a method {name!r}; there are some for {_names(suites)}")
    program = (runtime or Runtime.get()).load_program(bundled.buffer, data_path=data_path)
    results: list[CaseResult] = []
    for name in suites if methods is None else methods:
        method = program.load_method(name, backend_options=backend_options)
        cases = enumerate(suites[name].test_cases)
        results += [verify_case(method, case, index, rtol=rtol, atol=atol) for index, case in cases]
    return results


def verify_case(
    method: Method, case: MethodTestCase, index: int = 0, *, rtol: float = RTOL, atol: float = ATOL
) -> CaseResult:
    """Run `case`, the `index`-th of `method`, and compare what comes out."""
    name = method.metadata.name()
    start = time.perf_counter()
    try:
        outputs = method.execute(case.inputs)
    except RuntimeFault as fault:
        return CaseResult(name, index, time.perf_counter() - start, fault=fault)
    seconds = time.perf_counter() - start
    pairs = zip(outputs, case.expected_outputs, strict=True) if case.expected_outputs else ()
    comparisons = (_compare(i, actual, expected, rtol, atol) for i, (actual, expected) in enumerate(pairs))
    return CaseResult(name, index, seconds, tuple(outputs), tuple(comparisons))


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _compare(index: int, actual: object, expected: object, rtol: float, atol: float) -> OutputComparison:
    """As ExecuTorch's `tensors_are_close`: integers and bools exactly, NaN equal to NaN, an infinity to itself."""
    a, b = _array(actual), _array(expected)
    if a.dtype != b.dtype or a.shape != b.shape:
        return OutputComparison(index, problem=f"expected {b.dtype}{list(b.shape)}, got {a.dtype}{list(a.shape)}")
    is_exact = a.dtype.kind in "iub"
    wide = np.complex128 if a.dtype.kind == "c" else np.float64  # which holds float8 to float64, and most integers
    x, y = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        equal = (a == b) if is_exact else (x == y) | (np.isnan(x) & np.isnan(y))
        error = np.where(equal, 0.0, np.abs(x - y))
        relative = np.where(equal, 0.0, error / np.abs(y))
        close = equal if is_exact else equal | (np.isfinite(error) & (error <= atol + rtol * np.abs(y)))
    mismatched = int(np.count_nonzero(~close))
    return OutputComparison(index, a.size, mismatched, float(error.max(initial=0.0)), float(relative.max(initial=0.0)))


def _array(value: object) -> Array:
    return as_array(value) if not isinstance(value, int | float) else np.asarray(value)
