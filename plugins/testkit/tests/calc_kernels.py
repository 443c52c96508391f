"""calc's kernels: arithmetic on whatever NumPy computes as torch does."""

import numpy as np

from delegraph.interfaces import KernelLibrary

library = KernelLibrary("calc")


@library.kernel("aten::mul.out")
def mul_out(context, self, other, out):
    """`out = self other`."""
    out = context.resize(out, np.broadcast_shapes(self.shape, other.shape))
    np.multiply(self, other, out=out)


def prepared(context, self, other, alpha, out):
    """The call of `add`, with its arguments in it."""
    return lambda: np.add(self, other * out.dtype.type(alpha), out=out)


@library.kernel("aten::add.out", bind=prepared)
def add_out(context, self, other, alpha, out):
    """`out = self + alpha other`."""
    out = context.resize(out, np.broadcast_shapes(self.shape, other.shape))
    np.add(self, other * out.dtype.type(alpha), out=out)


@library.kernel("aten::neg.out")
def neg_out(context, self, out):
    """`out = -self`."""
    np.negative(self, out=context.resize(out, self.shape))
