"""Writes of another dtype, through views that show an element several times, and through `as_strided`: what the program
gives is what eager torch gives, with the dtypes that its nodes are said to have, or lowering says where it cannot."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from core.tests.aot.propagation import assert_values_are_what_operators_give
from torch.export import Dim, ExportedProgram
from torch.utils._pytree import tree_leaves

import delegraph
from delegraph.aot.edge.dialects import EDGE, verify
from delegraph.aot.edge.to_edge_dialect import to_edge_dialect
from delegraph.aot.functional.decompose import core_aten_table
from delegraph.aot.functional.functionalize import functionalize
from delegraph.errors import LoweringError

aten = torch.ops.aten

BOOLS = torch.tensor([[True, False, True], [False, False, True], [True, True, False]])
INTS = torch.arange(9).reshape(3, 3)
FLOATS = torch.tensor([[0.5, 2.7, -3.2], [7.9, 16777217.0, -0.4], [1.0, 4.4, -6.6]])
FIRST = torch.tensor([0, 2])


def functional(function: Callable[..., Any], *args: torch.Tensor, shapes: Any = None) -> ExportedProgram:
    class Model(torch.nn.Module):
        def forward(self, *inputs: torch.Tensor) -> Any:
            return function(*inputs)

    return functionalize(torch.export.export(Model(), args, dynamic_shapes=shapes and (shapes,)), {})


def assert_as_eager(function: Callable[..., Any], *args: torch.Tensor) -> None:
    program = to_edge_dialect(functional(function, *args))
    verify(program, EDGE)
    assert_values_are_what_operators_give(program)
    given, due = program.module()(*copy.deepcopy(args)), function(*copy.deepcopy(args))
    torch.testing.assert_close(given, due, rtol=0, atol=0)


# ---- dtypes ----------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "select_scatter": lambda x, y: torch.select_scatter(x, y[0], 1, -1),
    "slice_scatter": lambda x, y: torch.slice_scatter(x, y[:, :2], 1, 0, 2),
    "diagonal_scatter": lambda x, y: torch.diagonal_scatter(x, y[0]),
    "as_strided_scatter": lambda x, y: torch.as_strided_scatter(x, y[0], (3,), (2,), 1),
    "masked_fill": lambda x, y: x.masked_fill(y > 1, y[0, 1]),
    "copy_": lambda x, y: x.clone().copy_(y),
    "copy_ to a row": lambda x, y: (z := x.clone(), z[1].copy_(y[0]))[0],
    "fill_": lambda x, y: x.clone().fill_(y[0, 1]),
    "eq_": lambda x, y: x.clone().eq_(y),
    "gt_ to a column": lambda x, y: (z := x.clone(), z[:, 1].gt_(y[0]))[0],
    "logical_and_": lambda x, y: x.clone().logical_and_(y),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("value", [BOOLS, INTS, FLOATS], ids=["bool", "int64", "float32"])
@pytest.mark.parametrize("target", [BOOLS, INTS, FLOATS], ids=["bool", "int64", "float32"])
def test_what_is_written_gets_the_dtype_of_the_tensor(write: Any, target: torch.Tensor, value: torch.Tensor) -> None:
    assert_as_eager(write, target, value)


@pytest.mark.parametrize(
    ("target", "value"),
    [
        (FLOATS.half(), FLOATS / 3),
        (FLOATS.bfloat16(), INTS),
        (FLOATS, FLOATS.double() / 3),
        (INTS.to(torch.int8), INTS),
    ],
)
def test_in_place_arithmetic_is_done_in_the_dtype_that_operands_promote_to(
    target: torch.Tensor, value: torch.Tensor
) -> None:
    assert_as_eager(lambda x, y: x.clone().add_(y, alpha=3).mul_(y), target, value)


FACTORS: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "index_add of bool": (lambda x, i: x.index_add(0, i, x[:2], alpha=2), (BOOLS, FIRST)),
    "index_add of uint8": (lambda x, i: x.index_add(0, i, x[:2], alpha=-1), (INTS.to(torch.uint8), FIRST)),
    "addcmul with a half": (lambda x: torch.addcmul(x, x, x, value=0.5), (INTS,)),
    "addcmul rounds down": (lambda x: torch.addcmul(x, x, x, value=2.9), (INTS,)),
    "addcmul_": (lambda x: x.clone().addcmul_(x, x, value=-2.9), (INTS,)),
    "addcmul of two kinds": (lambda x, y: torch.addcmul(x, y, y, value=0.5), (INTS, FLOATS.round())),
    "addcmul in front of a write": (lambda x: torch.addcmul(x, x, x, value=0.5).add_(1), (INTS,)),
}


@pytest.mark.parametrize(("call", "args"), FACTORS.values(), ids=FACTORS)
def test_a_factor_has_the_kind_of_the_tensors(
    call: Callable[..., torch.Tensor], args: tuple[torch.Tensor, ...]
) -> None:
    assert_as_eager(call, *args)


def test_a_factor_that_the_dtype_cannot_hold_is_refused() -> None:
    text = r"torch cannot trace what aten\.addcmul\.default stands for: RuntimeError: value cannot be converted"
    with pytest.raises(LoweringError, match=text) as refused:
        functional(lambda x: torch.addcmul(x, x, x, value=300), INTS.to(torch.uint8))
    assert "test_writes.py" in str(refused.value)


def test_what_torch_raises_in_a_decomposition_is_told_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise ValueError("no such number")

    monkeypatch.setitem(core_aten_table(), aten.silu.default, fails)
    text = r"torch cannot trace what aten\.silu\.default stands for: ValueError: no such number(.|\n)*node: silu"
    with pytest.raises(LoweringError, match=text) as refused:
        functional(torch.nn.functional.silu, FLOATS)
    assert "test_writes.py" in str(refused.value)


def test_a_decomposition_that_gives_another_dtype_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(core_aten_table(), aten.silu.default, lambda x: x.double())
    text = r"decomposition of aten\.silu\.default gives float64 where the operator gives float32"
    with pytest.raises(LoweringError, match=text):
        functional(torch.nn.functional.silu, FLOATS)


# ---- elements that are shown several times -----------------------------------------------------------

Write = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


def written(x: torch.Tensor, view: torch.Tensor, write: Callable[[torch.Tensor], Any]) -> tuple[torch.Tensor, ...]:
    """`x` and `view`, a view of it, once `write` has written to that."""
    write(view)
    return x.clone(), view.clone()


OVERLAPS: dict[str, Write] = {
    "a row of rows": lambda x: written(x, x[0].unsqueeze(0).expand(2, 3), lambda v: v[1:2].tanh_()),
    "the first row": lambda x: written(x, x[0].expand(2, 3), lambda v: v[0].add_(1)),
    "an element": lambda x: written(x, x[:1].expand(3, 3), lambda v: v[1, 2].mul_(5)),
    "a column": lambda x: written(x, x[:, :1].expand(3, 4), lambda v: v[:, 3].add_(x[0])),
    "a piece": lambda x: written(x, x[0].expand(4, 3), lambda v: v.split(1)[2].add_(1)),
    "turned": lambda x: written(x, x[0].expand(4, 3).t(), lambda v: v[1:, 3].add_(1)),
    "expanded twice": lambda x: written(
        x, x[:1, :1].expand(2, 1).unsqueeze(0).expand(3, 2, 1), lambda v: v[2, 1].add_(1)
    ),
    "a window": lambda x: written(x, x.flatten().unfold(0, 4, 2), lambda v: v[1].add_(7)),
    "strides": lambda x: written(x, x.as_strided((3, 3), (1, 1)), lambda v: v[1].mul_(7)),
    "filled": lambda x: written(x, x[0].expand(2, 3), lambda v: v.fill_(7)),
    "a column filled": lambda x: written(x, x[0].expand(2, 3), lambda v: v[:, 1].zero_()),
    "written twice": lambda x: written(x, x[0].expand(2, 3), lambda v: (v[0].add_(1), v[1].mul_(3))),
}


@pytest.mark.parametrize("write", OVERLAPS.values(), ids=OVERLAPS)
def test_a_write_to_one_place_of_an_element_is_seen_in_all(write: Write) -> None:
    assert_as_eager(lambda x: write(x * 1), FLOATS)
    assert_as_eager(write, FLOATS)


def test_an_expanded_tensor_of_a_dynamic_size() -> None:
    def write(x: torch.Tensor) -> torch.Tensor:
        v = (x * 1).unsqueeze(0).expand(2, x.shape[0])
        v[1:2].tanh_()
        return v

    program = to_edge_dialect(functional(write, torch.randn(3), shapes=({0: Dim("n", max=9)},)))
    for n in (1, 3, 9):
        x = torch.randn(n)
        torch.testing.assert_close(program.module()(x), write(x))


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x[0].expand(2, 3).masked_fill_(x[:2] > 1, 0),
        lambda x: x[0].expand(2, 3).add_(x[:2]),
        lambda x: x.flatten().unfold(0, 4, 2).mul_(2),
    ],
)
def test_a_write_that_gives_one_element_several_values_is_refused(
    write: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    with pytest.raises(LoweringError, match=r"shows some element several times(.|\n)*write to a clone") as refused:
        functional(write, FLOATS)
    assert "test_writes.py" in str(refused.value)


def test_a_part_of_complex_numbers_that_are_shown_twice_is_refused() -> None:
    with pytest.raises(LoweringError, match=r"view_as_real\.default is written through(.|\n)*write to a clone"):
        functional(lambda x: torch.view_as_real((x * 1).expand(2, 3))[0].add_(1), torch.ones(3, dtype=torch.complex64))


# ---- as_strided ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "show",
    [
        lambda x: x.t().as_strided((3,), (1,)),
        lambda x: x[1].as_strided((3,), (2,), 0),
        lambda x: x[1].as_strided((3,), (2,)),
        lambda x: (y := x[1:], z := y.as_strided((2,), (3,)), y.add_(1), z * 2)[1:],
        lambda x: (y := x.t()[1].as_strided((2,), (3,)), y.add_(1), x * 2)[1:],
    ],
)
def test_as_strided_shows_the_memory_of_the_base(show: Callable[[torch.Tensor], Any]) -> None:
    assert_as_eager(lambda x: show(x * 1), FLOATS)


@pytest.mark.parametrize(
    "show",
    [
        lambda x: x.select(0, -1).as_strided((2, 2), (1, 2)) + 1,
        lambda x: (y := x * 1, z := y[-1].as_strided((2,), (3,)), y.add_(1), z * 2)[1:],
        lambda x: (y := x * 1, z := y.as_strided((x.shape[0], 2), (4, 1)), y.add_(1), z.mul_(2))[::2],
        lambda x: x.as_strided((2,), (1,), x.shape[0]) + 1,
    ],
)
def test_as_strided_from_an_element_that_the_sizes_tell(show: Callable[[torch.Tensor], Any]) -> None:
    program = to_edge_dialect(functional(show, torch.randn(4, 4), shapes=({0: Dim("rows", min=2, max=9)},)))
    verify(program, EDGE)
    for rows in (2, 4, 7):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(program.module()(x.clone()), show(x.clone()))


def test_as_strided_of_what_is_not_contiguous_is_refused() -> None:
    with pytest.raises(LoweringError, match="memory that is not laid out here as in torch") as refused:
        functional(lambda x: (x.t() * 2).as_strided((3,), (1,)), FLOATS)
    assert "test_writes.py" in str(refused.value)


# ---- layouts and sizes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        lambda x: (y := x[:2, 2:], y.index_add_(0, FIRST // 2, y + 1), y.split(2)[0].mul_(0.5))[1:],
        lambda x: x.t().index_fill_(1, FIRST, 2.0),
        lambda x: torch.lerp(x.t(), x.t() * 2, x.t().sigmoid()),
    ],
)
def test_the_layout_is_that_of_the_new_values(write: Callable[[torch.Tensor], Any]) -> None:
    assert_as_eager(lambda x: write(x * 1), FLOATS)


@pytest.mark.parametrize("roll", [lambda x: x.roll(1, 0), lambda x: x.roll(-4), lambda x: x.roll((5, -1), (0, 1))])
def test_roll_of_any_number_of_rows(roll: Callable[[torch.Tensor], torch.Tensor]) -> None:
    program = to_edge_dialect(functional(roll, torch.randn(3, 4), shapes=({0: Dim("rows", min=0, max=9)},)))
    for rows in (0, 1, 2, 9):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(program.module()(x), roll(x))


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_rrelu_has_the_mean_of_its_slopes(decomposed: bool, inplace: bool, dtype: torch.dtype) -> None:
    """Torch defines it by a call that writes the slopes to a tensor of noise."""
    module = torch.nn.Sequential(torch.nn.Hardtanh(-2, 3), torch.nn.RReLU(0.1, 0.9, inplace)).eval()
    x = torch.tensor([-2.0, -0.3, -0.0, 0.0, 3.0, float("nan")], dtype=dtype)
    exported = torch.export.export(module, (x,))
    program = to_edge_dialect(functionalize(exported.run_decompositions() if decomposed else exported, {}))
    verify(program, EDGE)
    torch.testing.assert_close(program.module()(x), module(x), rtol=0, atol=0, equal_nan=True)


def test_rrelu_outside_of_training_leaves_its_noise() -> None:
    rrelu = aten.rrelu_with_noise_functional.default
    assert_as_eager(lambda x, noise: rrelu(x, noise, 0.25, 0.75), FLOATS, FLOATS + 1)


def test_rrelu_in_training_draws_slopes() -> None:
    rrelu = aten.rrelu_with_noise_functional.default
    x = torch.randn(1000)
    program = to_edge_dialect(functional(lambda x: rrelu(x, torch.empty_like(x), 0.25, 0.75, True), x))
    result, slopes = program.module()(x)
    assert torch.equal(result, x * slopes) and (slopes[x > 0] == 1).all()
    drawn = slopes[x <= 0]
    assert 0.25 <= drawn.min() < 0.3 and 0.7 < drawn.max() <= 0.75


def test_as_many_values_as_the_data_have_are_written_into_a_view() -> None:
    """Whether there is one of them is not known while lowering."""

    class Padded(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out, chosen = torch.zeros(8), x[x > 0]
            out[: chosen.shape[0]] = chosen
            return out

    inputs = [torch.tensor(values) for values in ([1.0, -2, 3, 0, 5], [-1.0, -2, 3, 0, 0], [-1.0, 0, 0, 0, 0])]
    run = delegraph.load(bytes(delegraph.lower(Padded(), (inputs[0],))))
    for x in inputs:
        assert run(x).tolist() == Padded()(x).tolist()


def test_a_number_written_into_a_view_of_any_size() -> None:
    """The size of the view, to which the number is expanded, is a value that the graph computes."""

    def write(x: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
        x = x * 1
        x.select(1, 0).copy_(number)
        return x

    x, number = torch.randn(3, 4), torch.tensor(2.0)
    program = to_edge_dialect(functional(write, x, number, shapes=({0: Dim("rows", max=9)}, None)))
    assert not any(isinstance(n, torch.SymInt) for node in program.graph.nodes for n in tree_leaves(node.args))
    for rows in (3, 9):
        torch.testing.assert_close(program.module()(x := torch.randn(rows, 4), number), write(x, number))
