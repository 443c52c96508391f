"""Values on the way as outputs of a program: what the runtime gives for a tap is what the exported program does."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.executorch
taps = pytest.importorskip(
    "delegraph_executorch.devtools.intermediate_output_tap", reason="taps are the wheel's own: `make test-upstream`"
)

MODEL = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)).eval()
X = torch.linspace(-2, 2, 24).reshape(4, 6)


def test_statistics_at_run_time_are_those_of_the_exported_program() -> None:
    table, specs = taps.tap_compare(MODEL, (X,), rules=(taps.select_all_call_function(), taps.STATS))
    assert [spec.op_target for spec in specs] == ["aten.linear.default", "aten.relu.default", "aten.linear.default"]
    for name in taps.STATS.fields:
        assert table[f"rt_{name}"].tolist() == pytest.approx(table[f"aot_{name}"].tolist(), rel=1e-5, abs=1e-6), name
    relu = MODEL[1](MODEL[0](X))
    row = table.iloc[1]
    assert row["aot_max"] == relu.max().item()
    assert row["aot_zero_count"] == (relu == 0).sum().item()
    assert row["aot_std"] == pytest.approx(relu.std(unbiased=False).item(), rel=1e-5)


def test_whole_tensors_are_compared_by_their_noise() -> None:
    table, (spec,) = taps.tap_compare(
        MODEL, (X,), rules=(taps.select_by_op_type("aten.relu.default"), taps.FULL_TENSOR)
    )
    assert (spec.reducer_name, table["aot_numel"][0], table["rt_numel"][0]) == ("FULL_TENSOR", 20, 20)
    assert table["sqnr_db"][0] > 100 or math.isinf(table["sqnr_db"][0])
