"""The calls that are taken, and those that are taken back."""

import pytest
import torch

import delegraph


class Steps(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 1).relu() * x


@pytest.mark.parametrize(("minimum_calls", "delegates"), [(1, 1), (3, 1), (4, 0)])
def test_small_partitions_are_left(minimum_calls: int, delegates: int) -> None:
    backend = f"sample_name{{minimum_calls={minimum_calls}}}"
    report = delegraph.lower(Steps(), (torch.randn(3),), backends=[backend]).report.methods["forward"]
    assert len(report.delegates) == delegates
    for left in report.leftovers:
        assert "sample_name takes 4 or more" in left.reasons["sample_name"]


def test_an_option_that_makes_no_sense() -> None:
    with pytest.raises(delegraph.PluginError, match="at least one"):
        delegraph.lower(Steps(), (torch.randn(3),), backends=["sample_name{minimum_calls=0}"])
