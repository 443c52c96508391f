"""The operator in eager torch, and its kernel."""

import numpy as np
import pytest
import torch
from sample_name.kernels import library
from sample_name.operators import scaled_tanh

from delegraph.errors import InvalidArgument


class Context:
    """The runtime's services for a kernel: here shapes are right already."""

    def resize(self, out, shape):
        assert out.shape == shape
        return out


def kernel(x: np.ndarray, factor: float, out: np.ndarray) -> None:
    library.lookup("sample_name::scaled_tanh.out", ()).function(Context(), x, factor, out)


def test_the_kernel_is_the_operator() -> None:
    x = torch.randn(4, 5)
    out = np.empty((4, 5), np.float32)
    kernel(x.numpy(), 3.0, out)
    np.testing.assert_allclose(out, scaled_tanh(x, 3.0), rtol=1e-6)


def test_integers_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="floating point"):
        kernel(np.ones(3, np.int32), 1.0, np.empty(3, np.int32))
