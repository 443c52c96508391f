"""The closed set of OpenVINO's operations: made of its own descriptions, each attribute with values of its own."""

from __future__ import annotations

import pytest
from tests.openvino_operation_table import FILE, renewed

from delegraph_openvino.ir.operations import ARITIES, operations


def test_the_table_is_that_of_openvino(request: pytest.FixtureRequest) -> None:
    """OpenVINO has other attributes, or an operation in another opset: run with --renew."""
    if request.config.getoption("--renew"):
        FILE.write_text(renewed(), "utf-8")
    assert renewed() == FILE.read_text("utf-8")


def test_every_operation_has_an_arity_and_a_version() -> None:
    assert {name for name, _ in operations()} == ARITIES.keys()
