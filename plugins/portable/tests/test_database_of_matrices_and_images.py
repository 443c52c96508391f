"""Matrix products, pooling, resampling and transforms against torch on the samples of torch's operator database."""

from __future__ import annotations

import pytest
import torch
from tests.kernels.oracle import Oracle
from tests.kernels.samples import SAMPLES, check_samples

OPINFOS = {
    "addbmm": "addbmm.out",
    "addmv": "addmv.out",
    "baddbmm": "baddbmm.out",
    "fft.fftn": "_fft_c2c.out",
    "fft.ifft2": "_fft_c2c.out",
    "grid_sampler_3d": "grid_sampler_3d.out",
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
}
"""Database entry -> the kernels that it must reach; `aten::` is left out."""

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float16, torch.bfloat16, torch.int64)
SAMPLES_OF_INTERPOLATION = 60  # which has one entry for all of its modes


@pytest.mark.database
@pytest.mark.parametrize("name", OPINFOS)
def test_database_entry(oracle: Oracle, name: str) -> None:
    samples = SAMPLES_OF_INTERPOLATION if name.endswith("interpolate") else SAMPLES
    check_samples(oracle, name, OPINFOS[name], DTYPES, samples=samples)
