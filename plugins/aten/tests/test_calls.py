"""Single kernels on arrays: what each kind of argument becomes, and what is written where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from plugins.aten.tests.context import Array, Context

from delegraph.errors import InvalidArgument, InvalidType, RuntimeFault
from delegraph.interfaces import Kernel
from delegraph.program import ScalarType
from delegraph_aten import library

MODES = ("bind", "run")


def find(op: str) -> Kernel:
    kernel = library.lookup(op, ())
    assert kernel is not None
    return kernel


def call(mode: str, op: str, *args: Any, context: Context | None = None) -> Any:
    kernel, context = find(op), context or Context()
    if mode == "run":
        return kernel.function(context, *args)
    assert kernel.bind is not None
    bound = kernel.bind(context, *args)
    assert bound is not None
    return bound()


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("op", "arguments", "expected"),
    [
        ("aten::add.out", [floats(1, 2), floats(3, 4), 2], [7, 10]),
        ("aten::sum.IntList_out", [floats(1.5, 2), [0], True, int(ScalarType.FLOAT)], [3.5]),
        ("aten::sum.IntList_out", [floats(1.5, 2), None, False, None], 3.5),
        ("aten::sum.IntList_out", [np.bool_([True, True]), [0], False, int(ScalarType.FLOAT)], 2),
        ("aten::cat.out", [[floats(1), floats(2, 3)], 0], [1, 2, 3]),
        ("aten::index.Tensor_out", [np.eye(2, dtype=np.float32), [None, np.array([1])]], [[0], [1]]),
        ("aten::clamp.out", [floats(-1, 5), None, 2], [-1, 2]),
        ("aten::clone.out", [floats(1, 2), 0], [1, 2]),
        ("aten::full_like.out", [floats(1, 2), 4.5, 1], [4.5, 4.5]),
        ("aten::full.out", [[2], True], [1, 1]),
        ("aten::permute_copy.out", [np.float32([[1, 2], [3, 4]]), [1, 0]], [[1, 3], [2, 4]]),
        ("aten::addmm.out", [floats(1, 1), np.ones((1, 2), np.float32), np.eye(2, dtype=np.float32), 2, 3], [[5, 5]]),
        ("dim_order_ops::_to_dim_order_copy.out", [floats(1, 2), False, [0]], [1, 2]),
        ("dim_order_ops::_clone_dim_order.out", [floats(1, 2), False, None], [1, 2]),
        ("quantized_decomposed::dequantize_per_tensor.out", [np.int8([3]), 0.5, 1, -128, 127, 1, None], [1]),
        (
            "quantized_decomposed::dequantize_per_tensor.Tensor_out",
            [np.int8([3]), np.float64([0.5]), np.int64([1]), -128, 127, 1, None],
            [1],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arguments_are_translated(mode: str, op: str, arguments: Sequence[Any], expected: Any) -> None:
    out = np.zeros(np.shape(expected), np.float32)
    call(mode, op, *arguments, out, context=Context(out))
    np.testing.assert_array_equal(out, np.float32(expected))


@pytest.mark.parametrize("mode", MODES)
def test_several_outs_and_lists_of_outs(mode: str) -> None:
    values, indices = floats(0, 0), np.zeros(2, np.int64)
    call(mode, "aten::topk.values", floats(1, 3, 2), 2, -1, True, True, values, indices)
    assert (values.tolist(), indices.tolist()) == ([3, 2], [1, 2])
    pieces = [floats(0, 0), floats(0)]
    call(mode, "aten::split_with_sizes_copy.out", floats(1, 2, 3), [2, 1], 0, pieces)
    assert [piece.tolist() for piece in pieces] == [[1, 2], [3]]
    scale, zero_point = np.zeros(1), np.zeros(1, np.int64)
    arguments = [floats(-1, 1), -128, 127, 1e-5, int(ScalarType.CHAR)]
    call(mode, "quantized_decomposed::choose_qparams.Tensor_out", *arguments, scale, zero_point)
    np.testing.assert_allclose(scale, 2 / 255, rtol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_in_place_and_both_in_place_and_out(mode: str) -> None:
    self = floats(1, 2)
    call(mode, "aten::copy_", self, floats(3, 4), False)
    assert self.tolist() == [3, 4]
    call(mode, "aten::index_put_", self, [np.array([1])], floats(9), False)
    assert self.tolist() == [3, 9]
    mean, variance = floats(0), floats(1)
    out, saved_mean, saved_deviation = np.zeros((2, 1), np.float32), floats(0), floats(0)
    x = np.float32([[1], [3]])
    rest = [None, None, mean, variance, True, 0.5, 1e-5, out, saved_mean, saved_deviation]
    call(mode, "aten::_native_batch_norm_legit.out", x, *rest)
    assert mean.tolist() == [1]  # 0.5 * 0 + 0.5 * 2
    np.testing.assert_allclose(out, [[-1], [1]], rtol=1e-4)


def test_scalars_are_returned() -> None:
    assert call("run", "aten::_local_scalar_dense", np.array(2.5)) == 2.5
    assert call("run", "aten::equal", floats(1), floats(1)) is True


@pytest.mark.parametrize("mode", MODES)
def test_a_result_that_is_not_wanted_is_not_written(mode: str) -> None:
    """ExecuTorch writes a tensor without bytes where a result is None."""
    ones = np.ones((1, 1, 4, 4), np.float32)
    weight = np.ones((1, 1, 3, 3), np.float32)
    absent = np.empty(0, np.uint8)
    to_input, to_bias = np.zeros_like(ones), floats(0)
    options = [None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, False, True]]
    gradient = np.ones((1, 1, 2, 2), np.float32)
    call(mode, "aten::convolution_backward.out", gradient, ones, weight, *options, to_input, absent, to_bias)
    assert to_bias.tolist() == [4]
    assert to_input.sum() == 36


@pytest.mark.parametrize(
    ("op", "other"),
    [("aten::add.out", [floats(1), 1]), ("aten::view_copy.out", [[2]]), ("aten::clone.out", [None])],
)
def test_a_bound_call_sees_what_its_arrays_hold_then(op: str, other: list[Any]) -> None:
    """Also where loading happened in inference mode, whose tensors cannot be written to outside of it."""
    self, out = floats(0, 0), floats(0, 0)
    kernel = find(op)
    assert kernel.bind is not None
    with torch.inference_mode():
        bound = kernel.bind(Context(out), self, *other, out)
    assert bound is not None
    for content in (5, 6):
        self[:] = content
        bound()
        assert out.tolist() == [content + (op == "aten::add.out")] * 2
    with torch.inference_mode():
        bound()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "dtype",
    [
        *(np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint16, np.uint32, np.uint64),
        *(np.float16, np.float32, np.float64, np.complex64, np.complex128),
        *(ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn),
        *(ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e4m3fnuz),
    ],
)
def test_every_dtype_crosses_without_a_copy(mode: str, dtype: Any) -> None:
    """On memory in another order, with gaps, and that cannot be written to; and nothing warns of that."""
    self = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    gaps = np.zeros((3, 2, 2), dtype)
    strided = gaps[..., 0].T
    strided[:] = self
    constant = np.frombuffer(self.tobytes(), dtype).reshape(2, 3)
    for source in (self, strided, constant):
        out = np.zeros((3, 4), dtype)[:, ::2]
        call(mode, "aten::permute_copy.out", source, [1, 0], out, context=Context(out))
        np.testing.assert_array_equal(out.astype(np.complex128), self.T.astype(np.complex128))


@pytest.mark.parametrize(
    ("op", "arguments", "dtype"),
    [
        ("aten::relu.out", [], np.float32),  # torch's own out kernel: fresh memory once, then straight into out
        ("aten::roll.out", [[1], [0]], np.float32),  # generated by torch: copied
        ("aten::view_copy.out", [[-1]], np.float32),  # a view: copied
        ("aten::nonzero.out", [], np.int64),  # the content decides
        ("dim_order_ops::_clone_dim_order.out", [False, [0]], np.float32),
    ],
)
def test_outs_of_any_size_are_resized(op: str, arguments: list[Any], dtype: Any) -> None:
    kernel = find(op)
    overload = getattr(getattr(torch.ops.aten, op[6:].partition(".")[0], None), "default", torch.clone)
    out = np.zeros((9, 1) if "nonzero" in op else 9, dtype)
    for size in (3, 5, 9, 0, 3, 5):
        self = (np.arange(size) % 3 - 1).astype(np.float32)
        context = Context()
        kernel.function(context, self, *arguments, out)
        expected = overload(torch.from_numpy(self), *(arguments if "aten" in op else []))
        out = context.result(out)
        np.testing.assert_array_equal(out, expected.numpy())
        assert out.shape == tuple(expected.shape)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_of_complex_numbers(mode: str, dtype: Any, dims: int, transposed: bool) -> None:
    """Torch's kernels of `convolution` have none; its `conv1d` … make them of real ones."""
    x, weight, bias = (
        (np.arange(np.prod(shape)) % 5 - 1.5j * np.arange(np.prod(shape))).astype(dtype).reshape(shape)
        for shape in ((2, 4, *[5] * dims), (4, 2, *[2] * dims), (4,))
    )
    stride, padding, dilation, output_padding = ([number] * dims for number in (2, 1, 1, int(transposed)))
    operands = [torch.from_numpy(array) for array in (x, weight, bias)]
    if transposed:
        function = getattr(torch, f"conv_transpose{dims}d")
        expected = function(*operands, stride, padding, output_padding, 2, dilation)
    else:
        expected = getattr(torch, f"conv{dims}d")(*operands, stride, padding, dilation, 2)
    out = np.zeros(expected.shape, dtype)
    options = [stride, padding, dilation, transposed, output_padding, 2]
    call(mode, "aten::convolution.out", x, weight, bias, *options, out, context=Context(out))
    np.testing.assert_array_equal(out, expected.numpy())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", ["_embedding_bag", "_embedding_bag_forward_only"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("offsets", "last", "padding", "bags"),
    [([0, 3], False, -1, [0, 0, 0, 1, 1]), ([0, 3, 3, 5], True, -1, [0, 0, 0, 2, 2]), ([0], False, 3, [0] * 5)],
)
def test_embedding_bags_of_bfloat16_say_to_which_bag_a_row_went(
    mode: str, op: str, index: Any, offsets: list[int], last: bool, padding: int, bags: list[int]
) -> None:
    """As torch plans it, and has it of float64; of bfloat16 its kernel leaves it out."""
    weight, rows = np.arange(20).reshape(10, 2).astype(ml_dtypes.bfloat16), np.array([5, 1, 6, 5, 6], index)
    options = [False, 0, False, None, last, padding]
    places = torch.from_numpy(rows), torch.from_numpy(np.array(offsets, index))
    expected = getattr(torch, op)(torch.from_numpy(weight.astype(np.float64)), *places, *options)
    outs = [np.zeros(t.shape, index if i else weight.dtype) for i, t in enumerate(expected)]
    call(mode, f"aten::{op}.out", weight, rows, np.array(offsets, index), *options, *outs, context=Context(*outs))
    for out, like in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(out.astype(np.float64), like.double().numpy())
    assert outs[1].tolist() == bags


def test_outs_in_another_dim_order_keep_it() -> None:
    self = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    channels_last = np.zeros((1, 3, 4, 2), np.float32).transpose(0, 3, 1, 2)
    for mode in (*MODES, "run"):
        channels_last[:] = 0
        call(mode, "aten::relu.out", self, channels_last, context=Context(channels_last))
        np.testing.assert_array_equal(channels_last, self)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("op", "arguments", "out", "fault", "text"),
    [
        ("aten::add.out", [floats(1, 2), floats(1, 2, 3), 1], floats(0, 0), InvalidArgument, "size of tensor"),
        ("aten::add.out", [floats(1), "one", 1], floats(0), InvalidType, "has 'one' where"),
        ("aten::add.out", [floats(1)], floats(0), InvalidArgument, "takes 3 arguments and 1 outs"),
        ("aten::index_select.out", [floats(1), 0, np.array([3])], floats(0), InvalidArgument, "index out of range"),
        ("aten::sum.IntList_out", [floats(1), [4], False, None], floats(0), InvalidArgument, "Dimension out of range"),
        ("aten::sum.IntList_out", [floats(1), [0], False, 99], np.float32(0), InvalidArgument, "99 is no code of a d"),
        ("aten::full_like.out", [floats(1), 1, 7], floats(0), InvalidArgument, "7 is no code of a memory format"),
        ("aten::view_copy.out", [floats(1, 2), [3]], floats(0, 0, 0), InvalidArgument, "is invalid for input"),
        ("aten::permute_copy.out", [floats(1), [0]], np.int32([0]), InvalidType, "out is torch.int32"),
        ("aten::exp.out", [floats(1)], np.int32([0]), InvalidArgument, "can't be cast"),
        (
            "aten::relu.out",
            [floats(2, 1)[::-1]],
            floats(0, 0),
            InvalidArgument,
            "torch takes no array with the strides",
        ),
        ("dim_order_ops::_clone_dim_order.out", [floats(1), False, [1]], floats(0), InvalidArgument, "no order of 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals_are_faults_that_name_the_operator(
    mode: str, op: str, arguments: list[Any], out: Any, fault: type[RuntimeFault], text: str
) -> None:
    with pytest.raises(fault, match=text) as caught:
        call(mode, op, *arguments, np.asarray(out))
    assert str(caught.value).startswith(f"{op}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")  # torch, before it refuses
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", ["aten::relu.out", "aten::alias_copy.out", "aten::roll.out"])
@pytest.mark.parametrize("size", [2, 4])
def test_a_static_out_of_another_size_is_refused_and_nothing_around_it_written(mode: str, op: str, size: int) -> None:
    memory = np.full(12, 7, np.float32)
    out = memory[4 : 4 + size]
    arguments = [[1], [0]] if "roll" in op else []
    with pytest.raises(InvalidArgument, match=op):
        call(mode, op, floats(1, 2, 3), *arguments, out, context=Context(out))
    assert memory[:4].tolist() == [7] * 4
    assert memory[4 + size :].tolist() == [7] * (8 - size)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("op", "arguments"),
    [
        ("aten::add.out", [floats(1), floats(2), 1]),
        ("aten::permute_copy.out", [floats(1), [0]]),
        ("aten::split_copy.Tensor_out", [floats(1, 2), 1, 0]),
    ],
)
def test_what_is_read_only_is_not_written(mode: str, op: str, arguments: list[Any]) -> None:
    constant = floats(5)
    constant.flags.writeable = False
    outs: Any = [constant, constant] if "split" in op else constant
    with pytest.raises(InvalidArgument, match="it writes into a tensor that is read-only"):
        call(mode, op, *arguments, outs)
    assert constant.tolist() == [5]


def test_nor_in_place() -> None:
    constant = floats(5)
    constant.flags.writeable = False
    with pytest.raises(InvalidArgument, match="it writes into a tensor that is read-only"):
        call("run", "aten::copy_", constant, floats(1), False)
