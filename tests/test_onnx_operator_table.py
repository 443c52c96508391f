"""The closed set of operators: made of onnxruntime's schemas, each attribute with the values that it may have."""

from __future__ import annotations

import pytest
from tests.onnx_operator_table import FILE, renewed

from delegraph_cpu.graphs.operators import operators


def test_the_table_is_that_of_the_sources_and_schemas(request: pytest.FixtureRequest) -> None:
    """A converter writes another operator, or onnxruntime has another schema: run with --renew."""
    if request.config.getoption("--renew"):
        FILE.write_text(renewed(), "utf-8")
    assert renewed() == FILE.read_text("utf-8")


def test_integers_and_texts_are_bounded() -> None:
    unbounded = {
        f"{name}.{attribute}"
        for (_, name), operator in operators().items()
        for attribute, rule in operator.attributes.items()
        if rule.values is None and rule.type not in ("float", "floats", "graph", "tensor")
    }
    assert not unbounded
    assert 0 not in operators()["", "Attention"].attributes["q_num_heads"].values  # type: ignore[operator]
