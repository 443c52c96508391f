"""Tensors with an upper bound: resized over the same memory by inputs and kernels, viewed without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from delegraph.errors import InvalidArgument, InvalidProgram
from delegraph.program.contract import DimRange, MethodContract
from delegraph.runtime.calls.contract import dims_of_inputs


def doubled(build: Any, *bound: int, planned: bool = True, **options: Any) -> Any:
    x = build.tensor(*bound, dynamic=True, planned=planned, **options)
    out = build.tensor(*bound, dynamic=True, planned=planned, **options)
    return build.plan([x], [build.call("aten::add.out", x, x, build.int(1), out)])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (((4, 3), None), "its shape contract is for 2 inputs, it has 1"),
        (((4,),), "its shape contract does not fit input 0"),
        (((DimRange("rows", 5, 9), 3),), "its shape contract does not fit input 0"),
    ],
)
def test_a_contract_of_another_program(build: Any, inputs: Any, message: str) -> None:
    with pytest.raises(InvalidProgram, match=f"^method 'forward': {message}$"):
        dims_of_inputs(MethodContract(("x",), inputs), doubled(build, 4, 3))


@pytest.mark.parametrize("planned", [True, False])
def test_shapes_up_to_the_bound(build: Any, load_method: Any, planned: bool) -> None:
    method = load_method(build, doubled(build, 4, 3, planned=planned))
    results = []
    for rows in (2, 4, 1, 3, 0):
        array = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        results.append((method.execute([array])[0], array * 2))
    for result, expected in results:
        np.testing.assert_array_equal(result, expected)


def test_shapes_of_another_dim_order(build: Any, load_method: Any) -> None:
    method = load_method(build, doubled(build, 2, 3, 4, 4, dim_order=(0, 2, 3, 1)))
    array = np.random.default_rng(0).random((1, 3, 2, 3), np.float32)
    (result,) = method.execute([array])
    np.testing.assert_array_equal(result, array * 2)
    assert result.transpose(0, 2, 3, 1).flags.c_contiguous


def test_inputs_beyond_the_bound(build: Any, load_method: Any) -> None:
    method = load_method(build, doubled(build, 8, 4))
    expected = r"method 'forward', input 0: expected float32\[0..8, 0..4\], got shape "
    with pytest.raises(InvalidArgument, match=expected + r"\[9, 4\]"):
        method.execute([np.ones((9, 4), np.float32)])
    with pytest.raises(InvalidArgument, match=expected + r"\[1, 16\]"):  # fewer elements than the bound has
        method.execute([np.ones((1, 16), np.float32)])
    with pytest.raises(InvalidArgument, match=expected + r"\[32\]"):
        method.execute([np.ones(32, np.float32)])
    assert method.execute([np.ones((2, 4), np.float32)])[0].shape == (2, 4)


def test_kernels_cannot_exceed_a_bound(build: Any, load_method: Any) -> None:
    x = build.tensor(4, dynamic=True)
    joined = build.call("aten::cat.out", build.tensors(x, x), build.int(0), build.tensor(6, dynamic=True))
    method = load_method(build, build.plan([x], [joined]))
    assert method.execute([np.ones(3, np.float32)])[0].shape == (6,)
    with pytest.raises(
        InvalidArgument,
        match=r"aten::cat.out\(\[float32\[4\], float32\[4\]\], 0, .*upper bound \[6\] cannot become \[8\]",
    ):
        method.execute([np.ones(4, np.float32)])


def test_kernels_cannot_resize_static_tensors(build: Any, load_method: Any) -> None:
    x = build.tensor(4, dynamic=True)
    out = build.call("aten::add.out", x, x, build.int(1), build.tensor(3))
    method = load_method(build, build.plan([x], [out]))
    assert method.execute([np.ones(3, np.float32)])[0].tolist() == [2, 2, 2]
    with pytest.raises(InvalidArgument, match=r"a static tensor of shape \[3\] cannot become \[4\]"):
        method.execute([np.ones(4, np.float32)])


def test_lists_follow_their_items(build: Any, load_method: Any) -> None:
    x = build.tensor(4, dynamic=True)
    rows = build.int(0)
    build.prim("aten::sym_size.int", x, build.int(0), rows)
    build.prim("executorch_prim::mul.Scalar", rows, build.int(2), rows)
    ones = build.call("aten::full.out", build.ints(rows), build.double(1.0), build.tensor(8, dynamic=True))
    joined = build.call("aten::cat.out", build.tensors(x, ones), build.int(0), build.tensor(12, dynamic=True))
    method = load_method(build, build.plan([x], [joined]))
    for size in (1, 4, 2):
        assert method.execute([np.zeros(size, np.float32)])[0].tolist() == [0] * size + [1] * (2 * size)


def test_dynamic_views_alias(build: Any, load_method: Any) -> None:
    x = build.tensor(4, 3, dynamic=True)
    flat = build.tensor(12, dynamic=True, planned=False)
    build.prim("executorch_prim::et_view.default", x, build.ints(build.int(-1)), flat)
    build.call("aten::add.out", flat, flat, build.int(1), flat)
    method = load_method(build, build.plan([x], [x, flat]))
    for rows in (2, 4, 1):
        array = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        matrix, row = method.execute([array])
        np.testing.assert_array_equal(matrix, array * 2)
        np.testing.assert_array_equal(row, array.ravel() * 2)


@pytest.mark.parametrize(("sizes", "shape"), [((-1, 5), "[-1, 5]"), ((-1, -1), "[-1, -1]"), ((5,), "[5]")])
def test_views_of_another_size(build: Any, load_method: Any, sizes: tuple[int, ...], shape: str) -> None:
    x = build.tensor(2, 3)
    out = build.tensor(*(6 for _ in sizes), dynamic=True, planned=False)
    build.prim("executorch_prim::et_view.default", x, build.ints(*map(build.int, sizes)), out)
    method = load_method(build, build.plan([x], [out]))
    with pytest.raises(InvalidArgument, match=r"a tensor of shape .* cannot be viewed as ") as caught:
        method.execute([np.ones((2, 3), np.float32)])
    assert shape in str(caught.value)


def test_views_beyond_their_bound(build: Any, load_method: Any) -> None:
    x, out = build.tensor(2, 3), build.tensor(5, dynamic=True, planned=False)
    build.prim("executorch_prim::et_view.default", x, build.ints(build.int(6)), out)
    with pytest.raises(InvalidArgument, match=r"the view of shape \[6\] exceeds its bound \[5\]"):
        load_method(build, build.plan([x], [out])).execute([np.ones((2, 3), np.float32)])


def test_views_of_what_cannot_move(build: Any, load_method: Any) -> None:
    x = build.tensor(2)
    build.prim("executorch_prim::et_view.default", x, build.ints(build.int(2)), build.constant(np.float32([1, 2])))
    with pytest.raises(InvalidProgram, match=r"et_view\.default\(.*\): it writes value 3, which is a constant"):
        load_method(build, build.plan([x], []))
