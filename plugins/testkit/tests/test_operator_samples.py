"""Examples of operators out of torch's database: the same every time, and a reason where there are none."""

from __future__ import annotations

import pytest
import torch

from delegraph_testkit.operator_samples import SAMPLES, operator_examples
from delegraph_testkit.outcomes import Declined


def test_examples_are_the_same_every_time() -> None:
    first, second = operator_examples("add", "float32"), operator_examples("add", "float32")
    assert len(first) == len(second) == SAMPLES
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one.calls, other.calls, rtol=0, atol=0)


@pytest.mark.parametrize(("entry", "dtype"), [("no such operator", "float32"), ("bitwise_and", "float32")])
def test_what_torch_has_no_samples_of_is_declined(entry: str, dtype: str) -> None:
    with pytest.raises(Declined, match=f"has no samples of {entry} in {dtype}"):
        operator_examples(entry, dtype)
