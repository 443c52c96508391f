"""All cases by name."""

from __future__ import annotations

from tests.operators.case import Case
from tests.operators.cases_elementwise import elementwise_cases
from tests.operators.cases_factories import factory_cases
from tests.operators.cases_indexing import indexing_cases
from tests.operators.cases_neural import neural_cases
from tests.operators.cases_prims import prim_cases
from tests.operators.cases_quantized import quantized_cases
from tests.operators.cases_reductions import reduction_cases
from tests.operators.cases_shapes import shape_cases


def all_cases() -> dict[str, Case]:
    """Every case. Raises `ValueError` for two of one name."""
    families = (
        *(elementwise_cases, reduction_cases, shape_cases, indexing_cases),
        *(neural_cases, factory_cases, prim_cases, quantized_cases),
    )
    cases: dict[str, Case] = {}
    for family in families:
        for case in family():
            if case.name in cases:
                raise ValueError(f"two cases are called {case.name!r}")
            cases[case.name] = case
    return cases
