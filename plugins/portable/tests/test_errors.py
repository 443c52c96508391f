"""Arguments that kernels refuse: the error names the operator, the argument and what is wrong with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels.oracle import Oracle

from delegraph.errors import InvalidArgument, InvalidType, RuntimeFault

F = np.zeros((2, 3), np.float32)
D = np.zeros((2, 3), np.float64)
I = np.zeros((2, 3), np.int64)  # noqa: E741
B = np.zeros((2, 3), np.bool_)
C = np.zeros((2, 3), np.complex64)
IMAGE = np.zeros((1, 4, 5, 5), np.float32)
KERNEL = np.zeros((4, 4, 3, 3), np.float32)
ONE = np.zeros((), np.float32)


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


# operator, inputs, outputs, exception, what its message says after the operator's name
# fmt: off
REFUSED: list[tuple[str, list[Any], list[Any], type[RuntimeFault], str]] = [
    # ---- shapes and dims ----
    ("aten::add.out", [F, np.zeros(4, np.float32), 1], [F], InvalidArgument,
     "shapes (2, 3) and (4,) do not broadcast together"),
    ("aten::sum.IntList_out", [F, [2], False, None], [F], InvalidArgument,
     "argument 'dim' is 2, but the tensor has 2 dimensions"),
    ("aten::sum.IntList_out", [F, [0, -2], False, None], [F], InvalidArgument,
     "argument 'dim' names a dimension twice: [0, -2]"),
    ("aten::view_copy.out", [F, [4, -1]], [F], InvalidArgument,
     "argument 'size' is [4, -1], which 6 elements do not fill"),
    ("aten::view_copy.out", [F, [7]], [F], InvalidArgument, "argument 'size' is [7], which 6 elements do not fill"),
    ("aten::view_copy.out", [F, [-1, -1]], [F], InvalidArgument, "argument 'size' is no shape: [-1, -1]"),
    ("aten::expand_copy.out", [F, [3], False], [F], InvalidArgument,
     "argument 'size' [3] has fewer dims than the tensor's shape (2, 3)"),
    ("aten::expand_copy.out", [F, [4, 3], False], [F], InvalidArgument, "cannot be expanded to argument 'size' [4, 3]"),
    ("aten::permute_copy.out", [F, [0]], [F], InvalidArgument,
     "argument 'dims' is [0], but the tensor has 2 dimensions"),
    ("aten::select_copy.int_out", [F, 0, 2], [F], InvalidArgument, "argument 'index' is 2, but dimension 0 has size 2"),
    ("aten::select_copy.int_out", [ONE, 0, 0], [F], InvalidArgument, "argument 'self' is a 0-d tensor"),
    ("aten::slice_copy.Tensor_out", [F, 0, 0, 1, 0], [F], InvalidArgument,
     "argument 'step' must be positive, but is 0"),
    ("aten::narrow_copy.out", [F, 0, 1, 2], [F], InvalidArgument,
     "arguments 'start' 1 and 'length' 2 do not lie in dimension 0 of 2"),
    ("aten::unfold_copy.out", [F, 0, 3, 1], [F], InvalidArgument,
     "arguments 'size' 3 and 'step' 1 do not fit a dim of 2"),
    ("aten::unfold_copy.out", [ONE, 1, 1, 1], [F], InvalidArgument, "do not fit a 0-d tensor"),
    ("aten::unbind_copy.int_out", [ONE, 0], [[]], InvalidArgument, "argument 'self' is a 0-d tensor"),
    ("aten::as_strided_copy.out", [F, [2], [1, 1], None], [F], InvalidArgument, "describe no view"),
    ("aten::as_strided_copy.out", [F, [7], [1], None], [F], InvalidArgument,
     "the view reaches element 6, but argument 'self' has 6"),
    ("aten::t_copy.out", [IMAGE], [F], InvalidArgument, "argument 'self' must have at most 2 dimensions"),
    ("aten::cat.out", [[F, np.zeros((2, 4), np.float32)], 0], [F], InvalidArgument, "which do not join in dim 0"),
    ("aten::cat.out", [[], 0], [F], InvalidArgument, "argument 'tensors' is empty"),
    ("aten::stack.out", [[F, ONE], 0], [F], InvalidArgument, "must hold tensors of one shape"),
    ("aten::split_copy.Tensor_out", [F, 0, 0], [[F]], InvalidArgument,
     "argument 'split_size' 0 does not split a tensor of shape (2, 3)"),
    ("aten::split_copy.Tensor_out", [F, 1, 0], [[F]], InvalidArgument,
     "argument 'out' has 1 tensors, but there are 2 parts"),
    ("aten::split_with_sizes_copy.out", [F, [1, 2], 0], [[F, F]], InvalidArgument,
     "argument 'split_sizes' [1, 2] does not fill dim 0"),
    ("aten::repeat.out", [F, [2]], [F], InvalidArgument, "argument 'repeats' is [2], for a tensor of shape (2, 3)"),
    ("aten::roll.out", [F, [1, 2], [0]], [F], InvalidArgument,
     "arguments 'shifts' [1, 2] and 'dims' [0] must have one length"),
    ("aten::pixel_shuffle.out", [IMAGE, 3], [F], InvalidArgument, "cannot be shuffled by 3"),
    ("aten::pixel_unshuffle.out", [IMAGE, 2], [F], InvalidArgument, "cannot be unshuffled by 2"),
    ("aten::tril.out", [ONE, 0], [F], InvalidArgument, "argument 'self' must have at least 2 dimensions"),
    ("aten::full.out", [[-1], 0], [F], InvalidArgument, "argument 'size' has a negative dimension: [-1]"),
    ("aten::fill.Tensor_out", [F, F], [F], InvalidArgument, "argument 'value' must be a 0-d tensor"),
    ("aten::arange.start_out", [0, 5, -1], [F], InvalidArgument,
     "arguments 'start' 0, 'end' 5 and 'step' -1 make no range"),
    ("dim_order_ops::_to_dim_order_copy.out", [F, False, [0, 0]], [F], InvalidArgument,
     "argument 'dim_order' [0, 0] is no order of 2 dimensions"),
    ("aten::copy.out", [F, IMAGE, False], [F], InvalidArgument,
     "argument 'src' of shape (1, 4, 5, 5) does not broadcast to (2, 3)"),
    # ---- dtypes ----
    ("aten::add.out", [F, F, 1], [I], InvalidType,
     "the result has dtype float32, which cannot be cast to the int64 of argument 'out'"),
    ("aten::add.out", [I, I, 0.5], [I], InvalidType,
     "argument 'alpha' is 0.5, which does not fit the result's dtype int64"),
    ("aten::sub.out", [B, B, 1], [B], InvalidType, "subtraction is not defined for bool tensors; use logical_xor"),
    ("aten::pow.Tensor_Tensor_out", [B, B], [B], InvalidType, "powers are not defined for bool tensors"),
    ("aten::neg.out", [B], [B], InvalidType, "negation is not defined for bool tensors; use logical_not"),
    ("aten::exp.out", [I], [I], InvalidType, "the result has dtype float32, which cannot be cast to the int64"),
    ("aten::bitwise_and.Tensor_out", [F, F], [F], InvalidType, "bitwise operations take integers and bool"),
    ("aten::where.self_out", [F, F, F], [F], InvalidType, "argument 'condition' must be bool, but is float32"),
    ("aten::masked_select.out", [F, I], [F], InvalidType, "argument 'mask' must be bool, but is int64"),
    ("aten::masked_scatter.out", [F, I, F], [F], InvalidType, "argument 'mask' must be bool, but is int64"),
    ("aten::mean.out", [I, None, False, None], [I], InvalidType, "a mean is floating-point"),
    ("aten::gelu.out", [I, "none"], [F], InvalidType, "argument 'self' must be floating-point, but is int64"),
    ("aten::mm.out", [F, D.T], [F], InvalidType, "argument 'self' is float32, but argument 'mat2' is float64"),
    ("aten::embedding.out", [F, F, -1, False, False], [F], InvalidType,
     "argument 'indices' must hold integers, but is float32"),
    ("aten::index.Tensor_out", [F, [F]], [F], InvalidType, "argument 'indices' must hold integers, but is float32"),
    ("aten::add.out", [np.zeros(2, np.uint64), np.zeros(2, np.int64), 1], [I], InvalidType,
     "uint64 and int64 have no common integer type"),
    ("aten::abs.out", [C], [I], InvalidType, "the result has dtype float32"),
    ("aten::view_as_real_copy.out", [F], [F], InvalidArgument, "argument 'self' must be complex, but is float32"),
    ("aten::_fft_r2c.out", [F, [0], 0, True], [F], InvalidArgument, "argument 'out' must be complex, but is float32"),
    ("aten::_fft_r2c.out", [F, [], 0, True], [C], InvalidArgument, "argument 'dim' is []: nothing to transform"),
    ("aten::_fft_c2r.out", [F, [0], 0, 4], [F], InvalidArgument, "argument 'self' must be complex, but is float32"),
    # ---- values ----
    ("aten::div.out_mode", [F, F, "up"], [F], InvalidArgument,
     "argument 'rounding_mode' must be one of None, 'floor', 'trunc', but is 'up'"),
    ("aten::gelu.out", [F, "sigmoid"], [F], InvalidArgument,
     "argument 'approximate' must be one of 'none', 'tanh', but is 'sigmoid'"),
    ("aten::remainder.Scalar_out", [I, 0], [I], InvalidArgument,
     "argument 'other' holds a zero, by which no integer can be divided"),
    ("aten::div.out_mode", [I, I, "trunc"], [I], InvalidArgument, "argument 'other' holds a zero"),
    ("aten::pow.Tensor_Scalar_out", [I, -1], [I], InvalidArgument,
     "argument 'exponent' is -1: no integer has a negative integer power"),
    ("aten::clamp.out", [F, None, None], [F], InvalidArgument, "arguments 'min' and 'max' are both None"),
    ("aten::amax.out", [np.zeros((0, 3), np.float32), [0], False], [F], InvalidArgument,
     "has no element to choose in the dims [0]"),
    ("aten::topk.values", [F, 4, 1, True, True], [F, I], InvalidArgument,
     "argument 'k' is 4, but dimension 1 has size 3"),
    ("aten::glu.out", [F, -1], [F], InvalidArgument,
     "argument 'self' of shape (2, 3) cannot be halved along dimension 1"),
    ("aten::native_dropout.out", [F, 1.5, True], [F, B], InvalidArgument,
     "argument 'p' must be between 0 and 1, but is 1.5"),
    ("aten::_cdist_forward.out", [F, F, -1.0, None], [F], InvalidArgument,
     "argument 'p' must not be negative, but is -1.0"),
    ("aten::_cdist_forward.out", [F, F.T, 2.0, None], [F], InvalidArgument, "do not have rows of one length"),
    # ---- indices ----
    ("aten::embedding.out", [F, ints(0, 2), -1, False, False], [F], InvalidArgument,
     "argument 'indices' holds 2, but the dimension has size 2"),
    ("aten::index_select.out", [F, 1, ints(-1)], [F], InvalidArgument,
     "argument 'index' holds -1, but the dimension has size 3"),
    ("aten::index_select.out", [ONE, 0, ints(0, 0)], [F], InvalidArgument,
     "argument 'index' must have one element for a 0-d tensor, but has 2"),
    ("aten::gather.out", [F, 0, ints(0), False], [F], InvalidArgument,
     "argument 'index' has shape (1,), but 'self' has shape (2, 3)"),
    ("aten::gather.out", [F, 0, np.zeros((1, 4), np.int64), False], [F], InvalidArgument,
     "is larger than the tensor in dimension 1"),
    ("aten::native_layer_norm.out", [F, [3], np.zeros(3, np.complex64), None, 1e-5], [F, F, F], InvalidType,
     "argument 'weight' is complex64, which does not go with an input of float32"),
    ("aten::linear.out", [F, F, np.zeros(2, np.int64)], [F], InvalidType,
     "argument 'bias' is int64, but argument 'input' is float32"),
    ("aten::linear.out", [F, F, np.zeros((3, 2), np.float32)], [np.zeros((2, 2), np.float32)], InvalidArgument,
     "argument 'bias' of shape (3, 2) does not broadcast to (2, 2)"),
    ("aten::convolution.out", [IMAGE, KERNEL, np.zeros(4, np.bool_), [1], [0], [1], False, [0], 1], [IMAGE],
     InvalidType, "argument 'bias' is bool, but argument 'input' is float32"),
    ("aten::avg_pool2d.out", [IMAGE != 0, [2], [], [0], False, True, None], [IMAGE], InvalidType,
     "argument 'self' must be integer or floating-point, but is bool"),
    ("aten::uniform.out", [I, 0.0, 1.0, None], [F], InvalidType,
     "argument 'self' must be floating-point or complex, but is int64"),
    ("aten::scatter.src_out", [F, 0, I, ONE], [F], InvalidArgument,
     "argument 'index' has shape (2, 3), but 'src' has shape (1,)"),
    ("aten::scatter.value_out", [F, 0, np.full((1, 1), 2), 1.0], [F], InvalidArgument,
     "argument 'index' holds 2, but the dimension has size 2"),
    ("aten::index.Tensor_out", [F, [None]], [F], InvalidArgument, "argument 'indices' holds no index tensor"),
    ("aten::index.Tensor_out", [F, [ints(5)]], [F], InvalidArgument,
     "argument 'indices' holds 5, but the dimension has size 2"),
    ("aten::index.Tensor_out", [F, [None, None, ints(0)]], [F], InvalidArgument, "argument 'indices' has 3 tensors"),
    ("aten::index.Tensor_out", [F, [np.zeros(3, np.bool_)]], [F], InvalidArgument,
     "a mask in argument 'indices' has shape (3,)"),
    ("aten::index_put_", [F, [ints(0)], np.zeros(2, np.float32), False], [], InvalidArgument,
     "argument 'values' of shape (2,) does not broadcast to (1, 3)"),
    ("aten::select_scatter.out", [F, F, 0, 2], [F], InvalidArgument,
     "argument 'index' is 2, but dimension 0 has size 2"),
    ("aten::select_scatter.out", [F, F, 0, 1], [F], InvalidArgument,
     "argument 'src' must have shape (3,), but has shape (2, 3)"),
    ("aten::slice_scatter.out", [F, F, 0, 0, 2, 0], [F], InvalidArgument,
     "argument 'step' must be positive, but is 0"),
    ("aten::masked_scatter.out", [F, ~B, np.zeros(2, np.float32)], [F], InvalidArgument,
     "argument 'source' has 2 elements, but the mask chooses 6"),
    ("aten::repeat_interleave.Tensor_out", [ints(-1), None], [I], InvalidArgument,
     "argument 'repeats' holds a negative number"),
    ("aten::repeat_interleave.Tensor_out", [ints(2), 3], [I], InvalidArgument,
     "argument 'output_size' is 3, but the repeats sum to 2"),
    # ---- matrices and images ----
    ("aten::mm.out", [F, F], [F], InvalidArgument, "arguments 'self' (2, 3) and 'mat2' (2, 3) cannot be multiplied"),
    ("aten::bmm.out", [F, F], [F], InvalidArgument, "argument 'self' must have 3 dimensions, but has shape (2, 3)"),
    ("aten::addmm.out", [np.zeros(4, np.float32), F, F.T, 1, 1], [F], InvalidArgument,
     "argument 'self' of shape (4,) does not broadcast to (2, 2)"),
    ("aten::linear.out", [F, np.zeros((4, 2), np.float32), None], [F], InvalidArgument,
     "arguments 'input' (2, 3) and 'weight' (4, 2) cannot be multiplied"),
    ("aten::convolution.out", [IMAGE, KERNEL[:, :3], None, [1], [0], [1], False, [0], 1], [F], InvalidArgument,
     "does not fit argument 'weight' (4, 3, 3, 3) with groups=1"),
    ("aten::convolution.out", [F, KERNEL, None, [1], [0], [1], False, [0], 1], [F], InvalidArgument,
     "must both have 3 to 5 dims"),
    ("aten::convolution.out", [IMAGE, KERNEL, None, [0], [0], [1], False, [0], 1], [F], InvalidArgument,
     "arguments 'stride', 'dilation' and 'groups' must be positive"),
    ("aten::convolution.out", [IMAGE, KERNEL, None, [1], [0], [3], False, [0], 1], [F], InvalidArgument,
     "is smaller than the kernel (3, 3)"),
    ("aten::convolution.out", [IMAGE, KERNEL, ONE, [1], [0], [1], False, [0], 1], [F], InvalidArgument,
     "argument 'bias' must have shape (4,), but has shape ()"),
    ("aten::convolution.out", [IMAGE, KERNEL, None, [1, 1, 1], [0], [1], False, [0], 1], [F], InvalidArgument,
     "argument 'stride' must have 1 or 2 values, but is [1, 1, 1]"),
    ("aten::max_pool2d_with_indices.out", [IMAGE, [2], [1], [2], [1], False], [F, I], InvalidArgument,
     "argument 'padding' (2, 2) must be between 0 and half of the kernel (2, 2)"),
    ("aten::max_pool2d_with_indices.out", [IMAGE, [9], [1], [0], [1], False], [F, I], InvalidArgument,
     "is smaller than the window (9, 9)"),
    ("aten::max_pool2d_with_indices_backward.grad_input",
     [IMAGE[..., :1, :1], IMAGE, [5], [1], [0], [1], False, np.full((1, 4, 1, 1), 25)], [IMAGE], InvalidArgument,
     "argument 'indices' points outside of planes of 25 elements"),
    ("aten::avg_pool2d.out", [IMAGE, [2], [1], [0], False, True, 0], [F], InvalidArgument,
     "argument 'divisor_override' must not be zero"),
    ("aten::avg_pool2d.out", [IMAGE, [0], [1], [0], False, True, None], [F], InvalidArgument,
     "arguments 'kernel_size', 'stride' and 'dilation' must be positive"),
    ("aten::native_layer_norm.out", [F, [2], None, None, 1e-5], [F, F, F], InvalidArgument,
     "argument 'input' has shape (2, 3), whose last dims are not [2]"),
    ("aten::native_group_norm.out", [IMAGE, None, None, 1, 4, 25, 3, 1e-5], [F, F, F], InvalidArgument, "no 3 groups"),
    ("aten::_native_batch_norm_legit_no_training.out",
     [IMAGE, None, None, ONE, ONE, 0.1, 1e-5], [F, F, F], InvalidArgument,
     "argument 'running_mean' must have shape (4,), but has shape ()"),
    ("aten::_native_batch_norm_legit_no_training.out", [ints(1).astype(np.float32), None, None, ONE, ONE, 0.1, 1e-5],
     [F, F, F], InvalidArgument, "argument 'input' must have at least 2 dimensions"),
    ("aten::_adaptive_avg_pool2d.out", [IMAGE[..., :0], [1, 1]], [F], InvalidArgument, "has nothing to average"),
    ("aten::constant_pad_nd.out", [F, [1], 0], [F], InvalidArgument,
     "argument 'pad' must list at most 2 pairs, but is [1]"),
    ("aten::constant_pad_nd.out", [F, [-2, -2], 0], [F], InvalidArgument, "cannot lose the borders"),
    ("aten::reflection_pad1d.out", [F, [3, 0]], [F], InvalidArgument,
     "argument 'padding' (3, 0) must be smaller than the dimension of size 3"),
    ("aten::upsample_nearest2d.vec_out", [IMAGE, None, None], [F], InvalidArgument,
     "exactly one of the arguments 'output_size' and 'scale_factors' must be given"),
    ("aten::replication_pad1d.out", [F, [1]], [F], InvalidArgument,
     "argument 'padding' must have 2 values, but is [1]"),
    ("aten::replication_pad1d.out", [F[:, :0], [1, 1]], [F], InvalidArgument, "cannot have the borders"),
    ("aten::upsample_nearest2d.vec_out", [IMAGE, None, [2.0]], [F], InvalidArgument,
     "argument 'scale_factors' must have 2 values, but is [2.0]"),
    ("aten::grid_sampler_2d.out", [IMAGE[..., :0], IMAGE[..., :2], 0, 0, False], [F], InvalidArgument,
     "has nothing to sample"),
    ("aten::upsample_nearest2d.vec_out", [IMAGE, [0, 1], None], [F], InvalidArgument, "cannot be resized to (0, 1)"),
    ("aten::grid_sampler_2d.out", [IMAGE, IMAGE, 0, 0, False], [F], InvalidArgument,
     "argument 'grid' of shape (1, 4, 5, 5) does not fit argument 'input'"),
]
# fmt: on


@pytest.mark.parametrize(("op", "inputs", "outs", "fault", "message"), REFUSED)
def test_refused(
    oracle: Oracle, op: str, inputs: list[Any], outs: list[Any], fault: type[RuntimeFault], message: str
) -> None:
    oracle.assert_refused(op, inputs, outs, fault, message)


@pytest.mark.parametrize("other", [None, "text", [F], object()])
def test_arguments_of_another_kind_than_the_schema_says_are_refused(oracle: Oracle, other: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^aten::mul\.out: "):
        oracle.kernel("aten::mul.out", [F, other], [F.copy()], "run")


def test_an_index_is_checked_each_time_that_a_bound_call_runs(oracle: Oracle) -> None:
    index, out = ints(0), np.zeros((1, 3), np.float32)
    call = oracle.bind("aten::embedding.out", [F, index, -1, False, False], [out])
    call()
    index[0] = 7
    with pytest.raises(InvalidArgument, match="argument 'indices' holds 7"):
        call()
