"""The 28 prim ops, with ExecuTorch's quirks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from delegraph.errors import InvalidArgument, InvalidProgram, InvalidType
from delegraph.program.prim_op_names import ET_COPY_INDEX, ET_VIEW, PRIM_OPS
from delegraph.runtime.resolution.prim_ops import SCALAR_OPS, et_copy_index, view_shape
from delegraph.runtime.values.tensors import as_array

CONTEXT: Any = None  # not asked for what is refused
CASES = [
    ("add", (2, 3), 5),
    ("add", (2, 0.5), 2.5),
    ("sub", (2, 3), -1),
    ("mul", (2.0, 3), 6.0),
    ("neg", (3,), -3),
    ("neg", (0.5,), -0.5),
    ("floordiv", (-7, 2), -4),
    ("floordiv", (7, -2), -4),
    ("floordiv", (-7.5, 2), -4.0),
    ("floordiv", (-1.0, 0.0), -math.inf),
    ("floordiv", (1, 0.0), math.inf),
    ("floordiv.int", (-7, 2), -3),
    ("floordiv.int", (-7, -2), 3),
    ("truediv", (7, 2), 3.5),
    ("truediv", (1.0, 0), math.inf),
    ("truediv", (-1, 0), -math.inf),
    ("mod", (-7, 3), -1),
    ("mod", (7, -3), 1),
    ("mod.int", (-7, 3), -1),
    ("ceil", (1.2,), 2),
    ("ceil", (-1.5,), -1),
    ("round", (2.5,), 2),
    ("round", (-1.5,), -2),
    ("round", (0.5,), 0),
    ("trunc", (-1.7,), -1),
    ("sym_float", (3,), 3.0),
    ("sym_float", (True,), 1.0),
    ("sym_int", (-2.7,), -2),
    ("sym_int", (True,), 1),
    ("sym_max", (2, 3), 3),
    ("sym_min", (2, 3), 2),
    ("sym_not", (True,), False),
    ("sym_ite", (True, 1, 2), 1),
    ("sym_ite", (False, 1, 2), 2),
    ("eq", (2, 2.0), True),
    ("eq", (True, False), False),
    ("gt", (3, 2), True),
    ("lt", (3, 2), False),
    ("ge", (2, 2), True),
    ("le", (2.5, 2), False),
    # of 64 bits, which wrap
    ("add", (2**63 - 1, 1), -(2**63)),
    ("sub", (-(2**63), 1), 2**63 - 1),
    ("mul", (2**62, 6), -(2**63)),
    ("mul", (2**63 - 1, 2**63 - 1), 1),
    ("neg", (-(2**63),), -(2**63)),
    ("floordiv", (-(2**63), -1), -(2**63)),
    ("floordiv.int", (-(2**63), -1), -(2**63)),
    ("mod.int", (-(2**63), -1), 0),
    ("eq", (2**53 + 1, 2.0**53), True),
    ("mul", (1e308, 10.0), math.inf),
    ("trunc", (-(2.0**63),), -(2**63)),
]


def operator(name: str) -> Any:
    base, _, overload = name.partition(".")
    return SCALAR_OPS[f"executorch_prim::{base}.{overload or 'Scalar'}"].function


@pytest.mark.parametrize(("name", "args", "expected"), CASES)
def test_scalar_operators(name: str, args: tuple[Any, ...], expected: Any) -> None:
    result = operator(name)(*args)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("name", "args"),
    [("ceil", (1,)), ("round", (1,)), ("trunc", (1,)), ("sym_max", (1.0, 2)), ("mod", (1.0, 2)), ("add", (True, 1))],
)
def test_scalar_operators_refuse_other_types(name: str, args: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidType, match=r"takes .*, got "):
        operator(name)(*args)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SCALAR_OPS["aten::sym_size.int"].function(np.zeros(2), 0.0), "takes an int as dim, got float"),
        (lambda: SCALAR_OPS["aten::sym_numel"].function(2), "takes a tensor, got int"),
        (lambda: operator("sym_ite")(1, 2, 3), "takes a bool as condition, got int"),
        (lambda: et_copy_index(CONTEXT, np.zeros(2), np.zeros(2), True), "takes an int as index, got bool"),
        (lambda: as_array("text"), "expected an array, got str"),
    ],
)
def test_what_is_taken_for_another_thing(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidType, match=f"^{message}$"):
        call()


@pytest.mark.parametrize("name", ["ceil", "round", "trunc", "sym_int"])
@pytest.mark.parametrize("value", [2.0**63, -(2.0**64), math.inf, math.nan])
def test_doubles_that_are_no_integers_of_64_bits(name: str, value: float) -> None:
    with pytest.raises(InvalidArgument, match="is not within the range of 64-bit integers"):
        operator(name)(value)


def test_a_number_that_multiplies_itself_stays_small(build: Any, load_method: Any) -> None:
    x, done = build.int(3), build.bool(False)
    for _ in range(300):
        build.prim("executorch_prim::mul.Scalar", x, x, x)
    (result,) = load_method(build, build.plan([], [x, done])).execute([])[:1]
    assert result == (pow(3, 2**300, 2**64) + 2**63) % 2**64 - 2**63


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten::sym_size.int", (1, 0)),
        ("aten::sym_size.int", (np.ones(1), 0.5)),
        ("aten::sym_numel", (1,)),
        ("aten::_local_scalar_dense", (1,)),
        ("aten::_local_scalar_dense", (np.ones(1, np.complex64),)),
        ("executorch_prim::sym_ite.Scalar", (1, 2, 3)),
    ],
)
def test_what_is_no_such_argument(name: str, args: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidType, match=r"takes an? .*, got "):
        SCALAR_OPS[name].function(*args)


def test_the_operators_that_executorch_has() -> None:
    assert len(PRIM_OPS) == 28
    assert {*SCALAR_OPS, ET_COPY_INDEX, ET_VIEW} == PRIM_OPS


def test_scalars_of_tensors() -> None:
    tensor = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert SCALAR_OPS["aten::sym_numel"].function(tensor) == 6
    assert SCALAR_OPS["aten::sym_size.int"].function(tensor, -1) == 3
    with pytest.raises(InvalidArgument, match="dim 2 of a tensor with 2 dims"):
        SCALAR_OPS["aten::sym_size.int"].function(tensor, 2)
    first = SCALAR_OPS["aten::_local_scalar_dense"].function
    assert first(np.array([2.5], np.float32)) == 2.5
    assert type(first(np.array(True))) is bool
    assert first(np.array([2**64 - 1], np.uint64)) == -1
    with pytest.raises(InvalidArgument, match="the tensor has no element"):
        first(np.empty(0))


def test_view_shapes() -> None:
    tensor = np.empty((2, 6))
    assert view_shape(tensor, [3, -1]) == (3, 4)
    assert view_shape(tensor, [12]) == (12,)
    assert view_shape(np.empty(1), []) == ()
    with pytest.raises(InvalidArgument, match=r"shape \[2, 6\] cannot be viewed as \[5, -1\]"):
        view_shape(tensor, [5, -1])
    with pytest.raises(InvalidArgument, match=r"shape \[0\] cannot be viewed as \[0, -1\]"):
        view_shape(np.empty(0), [0, -1])


def test_division_by_zero_says_where(build: Any, load_method: Any) -> None:
    build.prim("executorch_prim::floordiv.Scalar", build.int(1), build.int(0), build.int(0))
    method = load_method(build, build.plan())
    with pytest.raises(
        InvalidArgument, match=r"instruction 0, executorch_prim::floordiv.Scalar\(1, 0, 0\): ZeroDivision"
    ):
        method.execute([])


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [
        ("executorch_prim::add.Scalar", 2, "takes 2 arguments and a result, got 2 values"),
        ("executorch_prim::add.Scalar", 0, "takes 2 arguments and a result, got 0 values"),
        ("executorch_prim::et_view.default", 2, "takes a tensor, sizes and a result, got 2 values"),
        ("executorch_prim::et_copy_index.tensor", 2, "takes two tensors and an index, got 2 values"),
    ],
)
def test_a_wrong_number_of_values(build: Any, load_method: Any, name: str, count: int, message: str) -> None:
    build.prim(name, *(build.int(1) for _ in range(count)))
    with pytest.raises(InvalidProgram, match=f"instruction 0, .*{message}"):
        load_method(build, build.plan())


def test_copying_to_a_negative_row(build: Any, load_method: Any) -> None:
    rows, row = build.tensor(2, 2, dynamic=True), build.tensor(2)
    build.prim("executorch_prim::et_copy_index.tensor", rows, row, build.int(-1))
    with pytest.raises(InvalidArgument, match="index -1 is negative"):
        load_method(build, build.plan()).execute([])
