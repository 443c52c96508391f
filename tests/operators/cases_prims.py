"""Operators on sizes and loop counters, and those of control flow, dynamic shapes and mutable buffers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from tests.operators.case import ALL, Case, function, tensor
from torch.export import Dim

from delegraph.program.schema import KernelCall, Operator, Program

ROWS = {0: Dim("rows", min=2, max=8)}


def dynamic(
    operator: str, variant: str, body: Callable[..., Any], *rows: int, expected: Any = None, **renamed: str
) -> Case:
    """The case of a function of one tensor [rows, 3], run with each number of rows."""
    names = {f"executorch_prim::{old}.Scalar": f"executorch_prim::{new}" for old, new in renamed.items()}
    calls = tuple((tensor(n, 3),) for n in rows)
    return Case(operator, variant, body, calls, dynamic_shapes=(ROWS,), renamed=names, expected=expected)


def _size(x: torch.Tensor) -> Any:
    return x.shape[0]


def scalar_prims() -> Iterator[Case]:
    """Each on sizes; the result is an output of the program."""
    n = _size
    table: dict[str, Callable[[torch.Tensor], Any]] = {
        "add": lambda x: n(x) + 3,
        "sub": lambda x: n(x) - 5,
        "mul": lambda x: n(x) * -4,
        "floordiv": lambda x: (n(x) - 20) // 3,
        "truediv": lambda x: n(x) / 3,
        "neg": lambda x: torch.sym_int(-torch.sym_float(n(x))),
        "eq": lambda x: n(x) == 4,
        "lt": lambda x: n(x) < 4,
        "le": lambda x: n(x) <= 4,
        "gt": lambda x: n(x) > 4,
        "ge": lambda x: n(x) >= 4,
        "ceil": lambda x: math.ceil(n(x) / 3),
        "trunc": lambda x: math.trunc(n(x) / 3),
        "round": lambda x: round(n(x) / 2),
        "sym_float": lambda x: torch.sym_float(n(x)) * 1.5,
        "sym_max": lambda x: torch.sym_max(n(x), 4),
        "sym_min": lambda x: torch.sym_min(n(x), 4),
        "sym_not": lambda x: torch.sym_not(n(x) > 4),
        "sym_ite": lambda x: torch.sym_ite(n(x) > 4, n(x) * 2, n(x) + 1),
    }
    for name, body in table.items():
        yield dynamic(f"executorch_prim::{name}.Scalar", "of a size", body, 4, 8, 2, 5)


def renamed_prims() -> Iterator[Case]:
    """Operators that no lowering emits: programs with `-` or `//` in which that is renamed to them."""
    difference, quotient = (lambda x: _size(x) - 3), (lambda x: _size(x) // 3)
    yield dynamic(
        "executorch_prim::mod.Scalar",
        "of a size",
        difference,
        4,
        8,
        2,
        expected=lambda x: _size(x) % 3,
        sub="mod.Scalar",
    )
    yield dynamic(
        "executorch_prim::mod.int", "of a size", difference, 4, 8, 2, expected=lambda x: _size(x) % 3, sub="mod.int"
    )
    yield dynamic("executorch_prim::floordiv.int", "of a size", quotient, 4, 8, 2, floordiv="floordiv.int")
    truncated: Callable[[torch.Tensor], Any] = lambda x: math.trunc(_size(x) / 3)  # noqa: E731
    yield dynamic("executorch_prim::sym_int.Scalar", "of a float", truncated, 4, 8, 2, trunc="sym_int.Scalar")
    numel = dynamic("aten::sym_numel", "of a tensor", _size, 4, 8, 2, expected=lambda x: x.numel())
    yield replace(numel, edit=_count_all)
    negative = (lambda x: (3 - 2 * _size(x)) // 3), (lambda x: math.trunc((3 - 2 * _size(x)) / 3))
    yield dynamic(
        "executorch_prim::floordiv.int",
        "negative, as in C",
        negative[0],
        4,
        8,
        2,
        expected=negative[1],
        floordiv="floordiv.int",
    )


def _count_all(program: Program) -> Program:
    """`sym_size.int(x, dim)` becomes `sym_numel(x)`, for which torch.export writes a product of sizes."""
    plan = program.execution_plan[0]
    (size,) = plan.chains[0].instructions
    assert isinstance(size, KernelCall)
    chain = replace(plan.chains[0], instructions=(KernelCall(0, (size.args[0], size.args[-1])),))
    return replace(program, execution_plan=(replace(plan, operators=(Operator("aten::sym_numel"),), chains=(chain,)),))


def sizes_and_views() -> Iterator[Case]:
    yield dynamic("aten::sym_size.int", "of a tensor", _size, 4, 8, 2)
    yield dynamic("executorch_prim::et_view.default", "flat", lambda x: (x + 1).reshape(x.shape[0] * 3) * 2, 4, 8, 2)
    yield dynamic("executorch_prim::et_view.default", "-1", lambda x: (x + 1).reshape(-1) * 2, 4, 8, 2)
    yield dynamic("executorch_prim::et_view.default", "new dim", lambda x: (x + 1).reshape(-1, 3, 1) * 2, 4, 2)
    for dtype in ("int64", "float64", "float32", "int32", "bool", "uint8"):
        yield function("aten::_local_scalar_dense", dtype, _item_of, tensor(1, dtype=dtype, low=1))


def _item_of(x: torch.Tensor) -> Any:
    return x.item()


def control_flow() -> Iterator[Case]:
    from torch._higher_order_ops.map import map as torch_map

    name = "executorch_prim::et_copy_index.tensor"
    yield function(name, "map", lambda xs, y: torch_map(lambda x, y: x * y + 1, xs, y), tensor(3, 4), tensor(4))
    yield function(name, "map int64", lambda xs: torch_map(lambda x: x + 1, xs), tensor(3, 4, dtype="int64"))


class _Buffer(torch.nn.Module):
    """A buffer that each call overwrites."""

    def __init__(self, like: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros_like(like))
        self.state: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state.copy_(x)
        return self.state.clone()


def buffers() -> Iterator[Case]:
    for dtype in ALL:
        x = tensor(3, 4, dtype=dtype)
        yield Case("aten::copy_", dtype, _Buffer(x), ((x,), (tensor(3, 4, dtype=dtype, seed=1),)))


def prim_cases() -> Iterator[Case]:
    yield from scalar_prims()
    yield from renamed_prims()
    yield from sizes_and_views()
    yield from control_flow()
    yield from buffers()
