"""How far a result is from torch's: numbers, codes, truth values, infinities; and what a gap says of its layers."""

from __future__ import annotations

from math import inf

import pytest
import torch

from delegraph.debugging.expected_values import gap
from delegraph.debugging.layer_gaps import LayerGap, NumericGap, with_beginnings

WHERE = {"handle": 1, "operator": "aten::mul.Tensor", "module": "fc", "line": "net.py:3", "delegate": None}
WHERE |= {"backend": "", "alone": False}


def row(actual: torch.Tensor, expected: torch.Tensor, name: str = "mul", share: float | None = None) -> LayerGap:
    return gap("forward", name, [actual], [expected], share, **WHERE)


@pytest.mark.parametrize(
    ("actual", "expected", "error", "nonfinite"),
    [
        ([1.0, 2.0], [1.0, 4.0], 0.5, 0),
        ([inf, 1.0], [inf, 1.0], 0.0, 0),
        ([-inf, 1.0], [inf, 1.0], inf, 1),
        ([torch.nan, 1.0], [torch.nan, 1.0], 0.0, 0),
        ([torch.nan, 1.0], [2.0, 1.0], inf, 1),
        ([2.0, 1.0], [torch.nan, 1.0], inf, 1),
        ([True, False], [True, True], 1.0, 0),
        ([1 + 2j], [1 + 1j], 1 / abs(1 + 1j), 0),
        ([], [], 0.0, 0),
    ],
)
def test_the_error_is_a_share_of_the_largest_value(
    actual: list[float], expected: list[float], error: float, nonfinite: int
) -> None:
    layer = row(torch.tensor(actual), torch.tensor(expected))
    assert layer.error == pytest.approx(error) and layer.nonfinite == nonfinite
    assert layer.is_wrong == (error > 0)


def test_a_gap_says_where_it_begins_and_what_is_worst() -> None:
    slightly, far_off = torch.tensor([1.0, 1.1]), torch.tensor([1.0, 9.0])
    layers = [
        row(slightly, torch.ones(2), "a"),
        row(far_off, torch.ones(2), "b"),
        row(torch.ones(2), torch.ones(2), "c"),
    ]
    told = NumericGap(with_beginnings(layers, {"a": frozenset(), "b": frozenset("a"), "c": frozenset("ab")}), ())
    assert [layer.name for layer in told.begins] == ["a"]
    assert [layer.name for layer in told.worst(2)] == ["b", "a"]
    assert told.node_data() == {1: pytest.approx(8.0)}
    assert str(told).startswith("wrong numbers begin at: aten::mul.Tensor  fc  net.py:3  (kernel): off by 0.1 of the")
    assert "<table" in told._repr_html_()


def test_a_wrong_result_of_layers_that_are_right_is_the_delegates() -> None:
    sound, wrong = row(torch.ones(2), torch.ones(2)), row(torch.zeros(2), torch.ones(2), "output 0")
    told = str(NumericGap((sound,), (wrong,), ("delegate 0: why",)))
    assert "output 0 of forward is off by 1 of its largest value" in told
    assert (
        "each layer by itself is right, so a delegate is wrong as a whole" in told and "note: delegate 0: why" in told
    )
