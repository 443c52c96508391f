"""Sorting, scanning, searching, writing by index and norms against torch on the samples of its operator database.

Where values are equal torch leaves open which place it names, so the operators that name one are compared on floats
only, whose samples differ. So are bags: those of bfloat16 have other outputs than those of float32.
"""

from __future__ import annotations

import pytest
import torch
from plugins.portable.tests.test_against_torch import DTYPES as ALL_DTYPES
from tests.kernels.oracle import Oracle
from tests.kernels.samples import check_samples

WANTED = {
    "_segment_reduce": "segment_reduce.out",
    "argsort": "sort.values_stable",
    "as_strided_scatter": "as_strided_scatter.out",
    "bincount": "bincount.out",
    "bucketize": "bucketize.Tensor_out",
    "cummax": "cummax.out",
    "cummin": "cummin.out",
    "cumprod": "cumprod.out",
    "diagonal_scatter": "diagonal_scatter.out",
    "dist": "dist.out",
    "histc": "histc.out",
    "histogram": "histogram.bin_ct_out",
    "histogramdd": "_histogramdd_bin_edges.out _histogramdd_from_bin_cts.out",
    "index_reduce": "index_reduce.out",
    "kthvalue": "kthvalue.values",
    "linalg.vector_norm": "linalg_vector_norm.out",
    "logcumsumexp": "logcumsumexp.out",
    "masked_scatter": "masked_scatter.out",
    "median": "median.dim_values median.out",
    "mode": "mode.values",
    "msort": "sort.values",
    "nanmedian": "nanmedian.dim_values nanmedian.out",
    "nn.functional.embedding_bag": "_embedding_bag_forward_only.out",
    "nonzero_static": "nonzero_static.out",
    "norm": "linalg_vector_norm.out",
    "put": "put.out",
    "scatter": "scatter.src_out",
    "scatter_reduce": "scatter_reduce.two_out",
    "searchsorted": "searchsorted.Tensor_out",
    "sort": "sort.values_stable sort.values",
    "topk": "topk.values",
    "tril_indices": "tril_indices.out",
    "triu_indices": "triu_indices.out",
    "unique": "_unique2.out unique_dim.out",
    "unique_consecutive": "unique_consecutive.out",
    "view_as_complex": "view_as_complex_copy.out",
}
"""Database entry -> the kernels that it must reach; `aten::` is left out."""

ON_FLOATS = {
    "argsort",
    "kthvalue",
    "median",
    "mode",
    "msort",
    "nanmedian",
    "nn.functional.embedding_bag",
    "sort",
    "topk",
}
FLOATS = (torch.float32, torch.float64)
DTYPES = (*ALL_DTYPES, torch.float64, torch.complex64)


@pytest.mark.database
@pytest.mark.parametrize("name", WANTED)
def test_database_entry(oracle: Oracle, name: str) -> None:
    modes = Oracle.modes if "as_strided" not in name else ("run", "bind", "constant")  # strides are those of the input
    check_samples(oracle, name, WANTED[name], FLOATS if name in ON_FLOATS else DTYPES, modes=modes)
