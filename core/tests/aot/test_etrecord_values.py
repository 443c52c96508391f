"""Sound files through an ETRecord's readers: tensors as they were saved, sizes and guards as torch wrote them."""

from __future__ import annotations

import io
from collections import OrderedDict
from typing import Any

import pytest
import sympy
import torch
from torch import nn
from torch.utils._sympy.functions import FloorDiv, IntTrueDiv, Max, Min, Mod, PythonMod, ToFloat

from delegraph.aot.etrecord.expressions import is_guard, read_guard, read_size
from delegraph.aot.etrecord.tensors import read_tensors

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.bool, torch.complex64, torch.complex128),
]


def saved(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        assert (one.storage_offset(), one.requires_grad) == (other.storage_offset(), other.requires_grad)
        as_bytes = (
            tensor.detach().contiguous().view(torch.uint8) if tensor.dim() else tensor for tensor in (one, other)
        )
        assert torch.equal(*as_bytes)
    elif isinstance(one, dict):
        assert [*one] == [*other]
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            same(left, right)
    else:
        assert one == other


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_every_dtype(dtype: torch.dtype) -> None:
    value = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    for tensor in (value, value.T, value[1:], value[:, ::2], value[:0], value.expand(4, 2, 3)):
        same(read_tensors(saved([tensor]), "x"), [tensor])


def test_a_parameter_that_has_attributes() -> None:
    """torch.export gives the parameters of some models one."""
    parameter = nn.Parameter(torch.ones(2), requires_grad=False)
    parameter.tag = "of the model's own"  # type: ignore[attr-defined]
    (read,) = read_tensors(saved([parameter]), "x")
    same([read], [parameter])
    assert not hasattr(read, "tag")


def test_what_programs_keep() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    frozen = nn.Parameter(torch.ones(2), requires_grad=False)
    grad = torch.ones(2, requires_grad=True)
    values: list[Any] = [
        module.state_dict(),
        {"w": nn.Parameter(torch.ones(2)), "f": frozen, "g": grad},
        ((torch.ones(1), 3, 2**70, 1.5, True, None, "text", 1 + 2j), {"k": [torch.Size([1, 2]), torch.float32]}),
        OrderedDict(a=torch.device("cpu"), b=()),
        torch.tensor(3.0),
        {number: str(number) for number in range(300)},
    ]
    same(read_tensors(saved(values), "x"), values)


def test_tensors_that_share_a_storage_share_it() -> None:
    base = torch.arange(6.0)
    first, second, again = read_tensors(saved([base[:4], base[2:], base]), "x")
    first[2] = 7
    assert second[0] == again[2] == 7


N, M = sympy.symbols("s0 s1", integer=True)
SIZES = [
    *(N, 2 * N + 1, N - M, -N, N * M, N**2, (N + 1) ** 2, FloorDiv(N, 2), Mod(N, 4), PythonMod(N - M, 3)),
    *(
        Max(1, N, M),
        Min(N, 4) + 1,
        N * FloorDiv(M + 1, 2),
        IntTrueDiv(N, 2),
        ToFloat(N) * 0.5,
        N + sympy.Rational(1, 2),
    ),
    *(sympy.Eq(N, 2), sympy.Ne(N, M), N < M, N <= 3, N > M, M >= 1, sympy.And(N > 1, M > 2), sympy.Not(sympy.Eq(N, M))),
]


@pytest.mark.parametrize("expression", SIZES, ids=str)
def test_sizes_as_torch_and_as_executorch_write_them(expression: sympy.Basic) -> None:
    plain = expression.subs({})
    assert read_size(sympy.srepr(expression)) == plain
    assert read_size(str(expression)) == plain


def test_the_assumptions_of_a_symbol_are_not_what_it_is() -> None:
    assert read_size("Mul(Integer(2), Symbol('s77', positive=True, integer=True))") == 2 * sympy.Symbol(
        "s77", integer=True
    )
    assert read_size("True") is sympy.true
    assert read_size("false") is sympy.false


@pytest.mark.parametrize(
    "guard",
    [
        "L['x'].size()[0] % 4 == 0",
        "L['y']['a b'].size()[0] >= 3",
        "L['x'].size()[0] // 2 + max(7, L['x'].size()[0]) <= 2 * L['x'].size()[0]",
        "not L['x'].size()[0] == 2 and L['args'][0][1].stride()[0] != -1",
        "L['mode'] == 'fast' or L['n'] is None",
    ],
)
def test_guards(guard: str) -> None:
    assert read_guard(f"({guard})") == guard
    assert is_guard(guard)
    assert not is_guard(f"print({guard})")
