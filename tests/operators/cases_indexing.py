"""Indexing: gathers and scatters, masks, and results whose size depends on the content."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from tests.operators.case import ALL, COMMON, FLOATS, Case, call, indices, special, tensor

from delegraph.program.schema import KernelCall, Operator, Program

aten = torch.ops.aten


def reading() -> Iterator[Case]:
    index, select, gather = aten.index.Tensor, aten.index_select.default, aten.gather.default
    rows, other = torch.tensor([2, 0, 2]), torch.tensor([1, 3, 0])
    for dtype in ALL:
        x = tensor(3, 4, dtype=dtype)
        yield call("aten::index.Tensor_out", dtype, index, x, [rows])
        yield call("aten::index_select.out", dtype, select, x, 0, rows)
        yield call("aten::gather.out", dtype, gather, x, 1, indices(3, 2, below=4))
        yield call("aten::masked_select.out", dtype, aten.masked_select.default, x, tensor(3, 4, dtype="bool"))
        yield call("aten::nonzero.out", dtype, aten.nonzero.default, tensor(3, 4, dtype=dtype, low=-1, high=1))
    x, cube = tensor(3, 4), tensor(2, 3, 4)
    name = "aten::index.Tensor_out"
    yield call(name, "two indices", index, x, [rows, other])
    yield call(name, "second dim", index, x, [None, other])
    yield call(name, "first and last dim", index, cube, [rows.clamp(max=1), None, other])
    yield call(name, "broadcast indices", index, x, [rows[:, None], other[None, :2]])
    yield call(name, "negative", index, x, [torch.tensor([-1, -3])])
    yield call(name, "int32 index", index, x, [rows.int()])
    yield call(name, "mask", index, x, [tensor(3, 4, dtype="bool")])
    yield call(name, "mask of rows", index, x, [torch.tensor([True, False, True])])
    yield call(name, "no index", index, x, [torch.zeros(0, dtype=torch.int64)])
    yield call(name, "0-d index", index, x, [torch.tensor(1)])
    name = "aten::index_select.out"
    yield call(name, "dim -1", select, cube, -1, other)
    yield call(name, "int32 index", select, cube, 1, rows.int())
    yield call(name, "0-d index", select, x, 0, torch.tensor(2))
    yield call(name, "0-d", select, tensor(), 0, torch.tensor([0]))
    yield call(name, "empty index", select, x, 0, torch.zeros(0, dtype=torch.int64))
    name = "aten::gather.out"
    yield call(name, "dim 0, fewer columns", gather, x, 0, indices(5, 2, below=3))
    yield call(name, "dim -1", gather, cube, -1, indices(2, 3, 6, below=4))
    yield call(name, "empty index", gather, x, 0, torch.zeros(0, 2, dtype=torch.int64))
    yield call(name, "0-d", gather, tensor(), 0, torch.tensor(0))
    yield call(
        "aten::masked_select.out", "broadcast", aten.masked_select.default, x, torch.tensor([True, False, True, True])
    )
    yield call("aten::masked_select.out", "nothing", aten.masked_select.default, x, torch.zeros(3, 4, dtype=torch.bool))
    yield call("aten::nonzero.out", "special values", aten.nonzero.default, special())
    yield call("aten::nonzero.out", "nothing", aten.nonzero.default, torch.zeros(2, 3))
    yield call("aten::nonzero.out", "3-d", aten.nonzero.default, tensor(2, 3, 2, dtype="bool"))
    for dtype in FLOATS:
        yield call(
            "aten::embedding.out", dtype, aten.embedding.default, tensor(6, 4, dtype=dtype), indices(2, 3, below=6)
        )
    weight = tensor(6, 4)
    yield call(
        "aten::embedding.out", "int32 indices", aten.embedding.default, weight, indices(2, 3, below=6, dtype="int32")
    )
    yield call("aten::embedding.out", "0-d index", aten.embedding.default, weight, torch.tensor(5))
    yield call("aten::embedding.out", "no indices", aten.embedding.default, weight, torch.zeros(0, dtype=torch.int64))
    yield call("aten::embedding.out", "padding_idx", aten.embedding.default, weight, indices(5, below=6), 2)
    name, repeats = "aten::repeat_interleave.Tensor_out", torch.tensor([2, 0, 1, 3])
    yield call(name, "int64", aten.repeat_interleave.Tensor, repeats, output_size=6)
    yield call(name, "int32", aten.repeat_interleave.Tensor, repeats.int(), output_size=6)
    yield call(name, "all zero", aten.repeat_interleave.Tensor, torch.zeros(3, dtype=torch.int64), output_size=0)


def writing() -> Iterator[Case]:
    put = aten.index_put.default
    rows, columns = torch.tensor([2, 0]), torch.tensor([1, 3])
    for dtype in ALL:
        x, y = tensor(3, 4, dtype=dtype), tensor(2, 4, dtype=dtype, seed=1)
        index = torch.tensor([[0, 1, 2, 0], [2, 0, 1, 1]])
        yield call("aten::index_put.out", dtype, put, x, [rows], y)
        yield _in_place(dtype, x, [rows], y)
        yield call("aten::scatter.src_out", dtype, aten.scatter.src, x, 0, index, y)
        yield call("aten::scatter.value_out", dtype, aten.scatter.value, x, 0, index, 1)
        yield call("aten::scatter_add.out", dtype, aten.scatter_add.default, x, 0, index, y)
        yield call("aten::masked_fill.Scalar_out", dtype, aten.masked_fill.Scalar, x, tensor(3, 4, dtype="bool"), 1)
        yield call(
            "aten::masked_scatter.out",
            dtype,
            aten.masked_scatter.default,
            x,
            tensor(3, 4, dtype="bool"),
            tensor(12, dtype=dtype),
        )
        yield call("aten::select_scatter.out", dtype, aten.select_scatter.default, x, y[0], 0, 1)
        yield call("aten::slice_scatter.out", dtype, aten.slice_scatter.default, x, y, 0, 1, 3)
    x = tensor(3, 4)
    for dtype in ("float32", "float16", "int64", "bool"):
        y = tensor(3, 4, dtype=dtype)
        twice = torch.tensor([2, 2])
        yield call("aten::index_put.out", f"accumulate {dtype}", put, y, [twice, columns], tensor(2, dtype=dtype), True)
        yield _in_place(f"accumulate {dtype}", y, [rows, columns], tensor(2, dtype=dtype), True)
    name = "aten::index_put.out"
    yield call(name, "two indices", put, x, [rows, columns], tensor(2))
    yield call(name, "one value", put, x, [rows, columns], tensor())
    yield call(name, "second dim", put, x, [None, columns], tensor(3, 2))
    yield call(name, "mask", put, x, [tensor(3, 4, dtype="bool")], tensor())
    yield call(name, "negative", put, x, [torch.tensor([-1, -2])], tensor(2, 4))
    yield call(name, "broadcast", put, x, [rows[:, None], columns], tensor(2, 1))
    yield call(name, "accumulate twice into one", put, x, [torch.tensor([1, 1]), torch.tensor([2, 2])], tensor(2), True)
    yield _in_place("mask", x, [tensor(3, 4, dtype="bool")], tensor())
    yield _in_place("int32 index", x, [rows.int()], tensor(2, 4))
    for name, target in (("scatter.src_out", aten.scatter.src), ("scatter_add.out", aten.scatter_add.default)):
        yield call(f"aten::{name}", "dim -1", target, tensor(2, 3), -1, torch.tensor([[0], [2]]), tensor(2, 1))
        yield call(f"aten::{name}", "empty index", target, x, 0, torch.zeros(0, 4, dtype=torch.int64), tensor(2, 4))
        yield call(f"aten::{name}", "0-d", target, tensor(), 0, torch.tensor(0), tensor(seed=1))
    yield call(
        "aten::scatter.value_out", "dim -1, float number", aten.scatter.value, x, -1, indices(3, 2, below=4), 2.5
    )
    yield call(
        "aten::scatter.value_out",
        "float number into int64",
        aten.scatter.value,
        x.long(),
        -1,
        indices(3, 2, below=4),
        2.5,
    )
    fill = aten.masked_fill.Scalar
    yield call("aten::masked_fill.Scalar_out", "-inf", fill, x, tensor(3, 4, dtype="bool"), float("-inf"))
    yield call("aten::masked_fill.Scalar_out", "broadcast mask", fill, x, tensor(3, 1, dtype="bool"), 2.5)
    yield call("aten::masked_fill.Scalar_out", "broadcast self", fill, tensor(4), tensor(3, 4, dtype="bool"), 2.5)
    yield call("aten::masked_fill.Scalar_out", "0-d", fill, tensor(), torch.tensor(True), 2.5)
    yield call("aten::masked_fill.Scalar_out", "empty", fill, tensor(0, 2), tensor(0, 2, dtype="bool"), 2.5)
    yield call(
        "aten::masked_scatter.out",
        "broadcast mask",
        aten.masked_scatter.default,
        x,
        torch.tensor([True, False, True, True]),
        tensor(12),
    )
    yield call(
        "aten::masked_scatter.out",
        "broadcast self",
        aten.masked_scatter.default,
        tensor(4),
        tensor(3, 4, dtype="bool"),
        tensor(12),
    )
    yield call("aten::select_scatter.out", "negative", aten.select_scatter.default, x, tensor(3), -1, -2)
    for variant, arguments in {"step": (1, 0, 4, 2), "negative": (-1, -2, 9), "from the start": (1, None, 2)}.items():
        width = tensor(3, 4)[:, slice(*arguments[1:])].shape[1]
        yield call(
            "aten::slice_scatter.out", variant, aten.slice_scatter.default, x, tensor(3, width, seed=1), *arguments
        )
    for dtype in COMMON:
        yield call(
            "aten::slice_scatter.out",
            f"nothing {dtype}",
            aten.slice_scatter.default,
            tensor(3, 4, dtype=dtype),
            tensor(0, 4, dtype=dtype),
            0,
            1,
            1,
        )


def _in_place(
    variant: str, x: torch.Tensor, index: list[torch.Tensor], values: torch.Tensor, accumulate: bool = False
) -> Case:
    """`index_put_` on a tensor of the program's own."""
    plain = call("aten::index_put_", variant, _into_a_copy, x, index, values, accumulate)
    return Case("aten::index_put_", variant, plain.function, plain.calls, edit=_write_in_place)


def _into_a_copy(x: torch.Tensor, index: list[torch.Tensor], values: torch.Tensor, accumulate: bool) -> torch.Tensor:
    own = x ^ True if x.dtype is torch.bool else x + 1
    written: torch.Tensor = aten.index_put.default(own, index, values, accumulate)
    return written


def _write_in_place(program: Program) -> Program:
    """The last call, `index_put.out`, becomes `index_put_`: its first argument is what it writes and the result.

    A pass of ExecuTorch does this; lowering here leaves programs functional.
    """
    plan = program.execution_plan[0]
    (*before, put) = plan.chains[0].instructions
    assert isinstance(put, KernelCall)
    own, result = put.args[0], put.args[-1]
    operators = tuple(Operator("aten::index_put_") if str(o) == "aten::index_put.out" else o for o in plan.operators)
    instructions = (*before, KernelCall(put.op_index, (*put.args[:4], own)))
    outputs = tuple(own if value == result else value for value in plan.outputs)
    chain = replace(plan.chains[0], instructions=instructions)
    return replace(program, execution_plan=(replace(plan, operators=operators, chains=(chain,), outputs=outputs),))


def indexing_cases() -> Iterator[Case]:
    yield from reading()
    yield from writing()
