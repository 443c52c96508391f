"""Kernels against torch on a few samples of torch's own operator database; `opinfo/` runs all of them.

Each entry of the database is run in torch; the ATen operators that it comes down to are recorded, and each that has a
kernel here is compared with it, in every way in which the runtime may call a kernel.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from tests.kernels.opinfo.compare import check, why_not_compared
from tests.kernels.opinfo.entries import ENTRIES
from tests.kernels.opinfo.record import record
from tests.kernels.oracle import Oracle

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool, torch.uint8)
SAMPLES = 8  # of float32, taken evenly from an entry's list
FEW_SAMPLES = 3  # of the other dtypes
CALLS = 3  # of one sample: entries that call an operator over and over add nothing

OPINFOS = {
    "__getitem__": "index.Tensor_out",
    "_native_batch_norm_legit": "_native_batch_norm_legit.out",
    "_upsample_bilinear2d_aa": "_upsample_bilinear2d_aa.out",
    "abs": "abs.out",
    "acos": "acos.out",
    "acosh": "acosh.out",
    "add": "add.out",
    "addmm": "addmm.out",
    "alias_copy": "alias_copy.out",
    "amax": "amax.out",
    "amin": "amin.out",
    "any": "any.all_out any.dims_out any.out",
    "arange": "arange.out arange.start_out",
    "argmax": "argmax.out",
    "argmin": "argmin.out",
    "as_strided_copy": "as_strided_copy.out",
    "asin": "asin.out",
    "asinh": "asinh.out",
    "atan": "atan.out",
    "atan2": "atan2.out",
    "atanh": "atanh.out",
    "bitwise_and": "bitwise_and.Tensor_out",
    "bitwise_left_shift": "bitwise_left_shift.Tensor_out",
    "bitwise_not": "bitwise_not.out",
    "bitwise_or": "bitwise_or.Tensor_out",
    "bitwise_right_shift": "bitwise_right_shift.Tensor_out",
    "bitwise_xor": "bitwise_xor.Tensor_out",
    "bmm": "bmm.out",
    "cat": "cat.out",
    "cdist": "_cdist_forward.out",
    "ceil": "ceil.out",
    "clamp": "clamp.Tensor_out",
    "clone": "clone.out",
    "constant_pad_nd": "constant_pad_nd.out",
    "cos": "cos.out",
    "cosh": "cosh.out",
    "cumsum": "cumsum.out",
    "diagonal_copy": "diagonal_copy.out",
    "div": "div.out div.out_mode",
    "eq": "eq.Tensor_out",
    "erf": "erf.out",
    "exp": "exp.out",
    "expand_copy": "expand_copy.out",
    "expm1": "expm1.out",
    "fft.irfftn": "_fft_c2r.out",
    "fft.rfftn": "_fft_r2c.out",
    "fill": "fill.Scalar_out",
    "flip": "flip.out",
    "floor": "floor.out",
    "floor_divide": "floor_divide.out",
    "fmod": "fmod.Tensor_out",
    "full": "full.out",
    "full_like": "full_like.out",
    "gather": "gather.out",
    "ge": "ge.Tensor_out",
    "grid_sampler_2d": "grid_sampler_2d.out",
    "gt": "gt.Tensor_out",
    "index_put": "index_put.out",
    "index_select": "index_select.out",
    "isinf": "isinf.out",
    "isnan": "isnan.out",
    "le": "le.Tensor_out",
    "log": "log.out",
    "log10": "log10.out",
    "log1p": "log1p.out",
    "log2": "log2.out",
    "log_softmax": "_log_softmax.out",
    "logical_and": "logical_and.out",
    "logical_not": "logical_not.out",
    "logical_or": "logical_or.out",
    "logical_xor": "logical_xor.out",
    "logit": "logit.out",
    "lt": "lt.Tensor_out",
    "max": "max.dim_max max.unary_out",
    "max_pool2d_with_indices_backward": "max_pool2d_with_indices_backward.grad_input",
    "maximum": "maximum.out",
    "mean": "mean.dtype_out mean.out",
    "min": "min.dim_min min.unary_out",
    "minimum": "minimum.out",
    "mm": "mm.out",
    "mul": "mul.out",
    "narrow_copy": "narrow_copy.out",
    "native_group_norm": "native_group_norm.out",
    "native_layer_norm": "native_layer_norm.out",
    "ne": "ne.Tensor_out",
    "neg": "neg.out",
    "nn.functional.adaptive_avg_pool2d": "_adaptive_avg_pool2d.out",
    "nn.functional.avg_pool2d": "avg_pool2d.out",
    "nn.functional.conv1d": "convolution.out",
    "nn.functional.conv2d": "convolution.out",
    "nn.functional.conv3d": "convolution.out",
    "nn.functional.conv_transpose1d": "convolution.out",
    "nn.functional.conv_transpose2d": "convolution.out",
    "nn.functional.conv_transpose3d": "convolution.out",
    "nn.functional.elu": "elu.out",
    "nn.functional.embedding": "embedding.out",
    "nn.functional.gelu": "gelu.out",
    "nn.functional.glu": "glu.out",
    "nn.functional.group_norm": "native_group_norm.out",
    "nn.functional.hardtanh": "hardtanh.out",
    "nn.functional.layer_norm": "native_layer_norm.out",
    "nn.functional.leaky_relu": "leaky_relu.out",
    "nn.functional.max_pool2d": "max_pool2d_with_indices.out",
    "nn.functional.pad": "reflection_pad1d.out reflection_pad2d.out replication_pad1d.out replication_pad2d.out",
    "nn.functional.pdist": "_pdist_forward.out",
    "nn.functional.pixel_shuffle": "pixel_shuffle.out",
    "nn.functional.pixel_unshuffle": "pixel_unshuffle.out",
    "nn.functional.relu": "relu.out",
    "nonzero": "nonzero.out",
    "ones": "ones.out",
    "permute_copy": "permute_copy.out",
    "pow": "pow.Tensor_Tensor_out",
    "prod": "prod.int_out prod.out",
    "reciprocal": "reciprocal.out",
    "remainder": "remainder.Tensor_out",
    "repeat": "repeat.out",
    "repeat_interleave": "repeat_interleave.Tensor_out",
    "roll": "roll.out",
    "round": "round.out",
    "rsqrt": "rsqrt.out",
    "scalar_tensor": "scalar_tensor.out",
    "scatter": "scatter.src_out",
    "scatter_add": "scatter_add.out",
    "select": "select_copy.int_out",
    "select_scatter": "select_scatter.out",
    "sigmoid": "sigmoid.out",
    "sign": "sign.out",
    "sin": "sin.out",
    "sinh": "sinh.out",
    "slice": "slice_copy.Tensor_out",
    "slice_scatter": "slice_scatter.out",
    "softmax": "_softmax.out",
    "split": "split_copy.Tensor_out",
    "split_with_sizes_copy": "split_with_sizes_copy.out",
    "sqrt": "sqrt.out",
    "squeeze": "squeeze_copy.dims_out",
    "squeeze_copy": "squeeze_copy.dim_out",
    "stack": "stack.out",
    "sub": "sub.out",
    "sum": "sum.IntList_out",
    "t_copy": "t_copy.out",
    "tan": "tan.out",
    "tanh": "tanh.out",
    "transpose_copy": "transpose_copy.int_out",
    "tril": "tril.out",
    "trunc": "trunc.out",
    "unbind_copy": "unbind_copy.int_out",
    "unfold_copy": "unfold_copy.out",
    "unsqueeze_copy": "unsqueeze_copy.out",
    "var": "var.correction_out",
    "var_mean": "var_mean.correction_out",
    "view_copy": "view_copy.out",
    "where": "where.self_out",
    "zeros": "zeros.out",
}
"""Database entry -> the kernels that it must reach; `aten::` is left out."""

DATABASE = {name: [info for info in ENTRIES.values() if info.name == name] for name in OPINFOS}
"""An entry may have variants: rounding modes, kinds of padding."""


def _samples(info: Any, dtype: torch.dtype) -> list[Any]:
    try:
        samples = list(info.sample_inputs("cpu", dtype, requires_grad=False))
    except (NotImplementedError, RuntimeError):  # some entries make no samples of a dtype that they name
        return []
    wanted = SAMPLES if dtype == torch.float32 else FEW_SAMPLES
    return samples[:: max(1, len(samples) // wanted)][:wanted]


@pytest.mark.parametrize("name", OPINFOS)
def test_database_entry(oracle: Oracle, name: str) -> None:
    reached = set()
    for info, dtype in product(DATABASE[name], DTYPES):
        for sample in _samples(info, dtype) if dtype in info.dtypes else ():
            calls = record(partial(info, sample.input, *sample.args, **sample.kwargs)).calls
            for call in [call for call in calls if not why_not_compared(call)][:CALLS]:
                reached.add(call.op)
                check(oracle, call)
    assert reached >= {f"aten::{op}" for op in OPINFOS[name].split()}
