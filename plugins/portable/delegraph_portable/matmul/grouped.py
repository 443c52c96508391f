"""Rows in groups, each group times a matrix of its own, as the experts of a mixture compute.

Models of the package `transformers` (5 and later) export `transformers::grouped_mm_fallback`. Its own
implementation asks for the groups' sizes while it runs, so no graph of fixed shapes can stand for it, except with every
expert computing every row, or a copy of a matrix for every row. A kernel computes each row once.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import check_index, check_same_dtype, compute_type
from delegraph.runtime.numpy_kernels.shapes import check_rank

from ..library import kernel


@kernel("transformers::grouped_mm_fallback.out")
def grouped_mm(context: Context, input: Array, weight: Array, offs: Array, out: Array) -> BoundCall:
    """input (s, k), weight (g, k, n), offs (g,) the ascending ends of the groups of rows -> (s, n).

    Rows behind the last group give 0.
    """
    check_rank(input, (2,), "input")
    check_rank(weight, (3,), "weight")
    check_rank(offs, (1,), "offs")
    check_same_dtype(input, "input", weight, "weight")
    check_same_dtype(out, "out", input, "input")
    check_index(offs, "offs")
    if input.shape[1] != weight.shape[1]:
        raise InvalidArgument(f"arguments 'input' {input.shape} and 'weight' {weight.shape} cannot be multiplied")
    if offs.shape[0] != weight.shape[0]:
        raise InvalidArgument(f"argument 'offs' has {offs.shape[0]} groups, but argument 'weight' {weight.shape[0]}")
    out = context.resize(out, (input.shape[0], weight.shape[2]))
    compute = compute_type(input.dtype)

    def call() -> None:
        ends = [0, *offs.tolist()]
        if any(end < start for start, end in pairwise(ends)) or ends[-1] > len(input):
            raise InvalidArgument(f"argument 'offs' must ascend to at most {len(input)}, but is {ends[1:]}")
        for group, (start, end) in enumerate(pairwise(ends)):
            if start < end:
                rows, matrix = (part.astype(compute, copy=False) for part in (input[start:end], weight[group]))
                out[start:end] = np.matmul(rows, matrix)
        out[ends[-1] :] = 0

    return call
