"""Matrices, pooling, resampling and transforms against torch on the samples of torch's operator database."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest
import torch
from plugins.portable.tests.opinfo.compare import check, why_not_compared
from plugins.portable.tests.opinfo.entries import ENTRIES
from plugins.portable.tests.opinfo.record import record
from plugins.portable.tests.oracle import HALVES, Oracle

OPINFOS = {
    "addbmm": "addbmm.out",
    "addmv": "addmv.out",
    "baddbmm": "baddbmm.out",
    "cholesky": "cholesky.out",
    "cholesky_inverse": "cholesky_inverse.out",
    "cholesky_solve": "cholesky_solve.out",
    "fft.fftn": "_fft_c2c.out",
    "fft.ifft2": "_fft_c2c.out",
    "geqrf": "geqrf.a",
    "grid_sampler_3d": "grid_sampler_3d.out",
    "linalg.cholesky_ex": "linalg_cholesky_ex.L",
    "linalg.householder_product": "linalg_householder_product.out",
    "linalg.inv_ex": "linalg_inv_ex.inverse",
    "linalg.ldl_factor_ex": "linalg_ldl_factor_ex.out",
    "linalg.ldl_solve": "linalg_ldl_solve.out",
    "linalg.lu": "linalg_lu.out",
    "linalg.lu_factor_ex": "linalg_lu_factor_ex.out",
    "linalg.lu_solve": "linalg_lu_solve.out",
    "linalg.qr": "linalg_qr.out",
    "linalg.solve_triangular": "linalg_solve_triangular.out",
    "lu_unpack": "lu_unpack.out",
    "matrix_exp": "linalg_matrix_exp.out",
    "nn.functional.adaptive_avg_pool3d": "_adaptive_avg_pool3d.out",
    "nn.functional.adaptive_max_pool1d": "adaptive_max_pool2d.out",
    "nn.functional.adaptive_max_pool2d": "adaptive_max_pool2d.out",
    "nn.functional.adaptive_max_pool3d": "adaptive_max_pool3d.out",
    "nn.functional.avg_pool1d": "avg_pool2d.out",
    "nn.functional.avg_pool3d": "avg_pool3d.out",
    "nn.functional.fractional_max_pool2d": "fractional_max_pool2d.output",
    "nn.functional.fractional_max_pool3d": "fractional_max_pool3d.output",
    "nn.functional.interpolate": "upsample_bilinear2d.vec_out upsample_nearest2d.vec_out",
    "nn.functional.max_pool3d": "max_pool3d_with_indices.out",
    "nn.functional.unfold": "im2col.out",
    "ormqr": "ormqr.out",
    "triangular_solve": "triangular_solve.X",
}
"""Database entry -> the kernels that it must reach; `aten::` is left out."""

KERNELS = {f"aten::{op}" for ops in OPINFOS.values() for op in ops.split()}
DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float16, torch.bfloat16, torch.int64)
SAMPLES = 12  # of one dtype, taken evenly from an entry's list
SAMPLES_OF_INTERPOLATION = 60  # which has one entry for all of its modes


@pytest.mark.parametrize("name", OPINFOS)
def test_database_entry(oracle: Oracle, name: str) -> None:
    reached = set()
    infos = [info for info in ENTRIES.values() if info.name == name]
    wanted = SAMPLES_OF_INTERPOLATION if name.endswith("interpolate") else SAMPLES
    # Halves of exp(A) are rounded from float32 results that differ in their last bits: by one unit, now and then.
    dtypes = [dtype for dtype in DTYPES if name != "matrix_exp" or dtype not in HALVES]
    for info, dtype in product(infos, dtypes):
        samples = list(info.sample_inputs("cpu", dtype, requires_grad=False)) if dtype in info.dtypes else []
        for sample in samples[:: max(1, len(samples) // wanted)]:
            for call in record(partial(info, sample.input, *sample.args, **sample.kwargs)).calls:
                if call.op in KERNELS and not why_not_compared(call):
                    reached.add(call.op)
                    check(oracle, call)
    assert reached >= {f"aten::{op}" for op in OPINFOS[name].split()}
