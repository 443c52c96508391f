"""Pieces, parts and updates without copies: what is elided, what may not be; programs compute what eager does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import delegraph
from delegraph.aot import ExecutorchBackendConfig
from delegraph.interfaces import Memory, MemoryHierarchy

ONE = torch.tensor([1])
X = torch.arange(64.0).reshape(4, 16) / 50


class Net(nn.Module):
    """A function, and a buffer for it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("cache", torch.zeros(4, 16))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def called(function: Callable[..., Any], x: torch.Tensor = X, **config: Any) -> tuple[Counter[str], Any]:
    """How often each operator is called, and the program; its results are eager's, twice."""
    dynamic = config.pop("dynamic_shapes", None)
    model = Net(function)
    options = ExecutorchBackendConfig(**config)
    lowered = delegraph.lower(Net(function), (x,), config=options, dynamic_shapes=dynamic)
    run = delegraph.load(bytes(lowered))
    for one_x in (x, x * -2 + 1):
        wanted, got = model(one_x), run(one_x)
        for one, other in zip(*((r if isinstance(r, tuple) else (r,)) for r in (wanted, got)), strict=True):
            torch.testing.assert_close(torch.as_tensor(np.asarray(other)), one)
    (plan,) = lowered.program.executorch_program.execution_plan
    operators = [
        str(plan.operators[call.op_index]) for call in plan.chains[0].instructions if hasattr(call, "op_index")
    ]
    return Counter(operators), lowered.program


CUT = {"aten::slice_copy.Tensor_out", "aten::select_copy.int_out", "aten::split_copy.Tensor_out"}
CUT |= {"aten::split_with_sizes_copy.out", "aten::unbind_copy.int_out", "aten::narrow_copy.out"}
JOIN = {"aten::cat.out", "aten::stack.out", "aten::clone.out"}

ELIDED: dict[str, Callable[..., Any]] = {
    "slices": lambda self, x: x[1:3].exp() + x[:2].sin(),
    "slices of a result": lambda self, x: (x + 1)[1:3].exp() + x[-2:].sin(),
    "rows": lambda self, x: x[1].exp() + x[-1],
    "split": lambda self, x: sum(one.exp() for one in x.split(2)),
    "split in sizes": lambda self, x: torch.split(x * 2, [1, 3])[1].exp(),
    "unbind": lambda self, x: sum(one.exp() for one in (x * 2).unbind()),
    "narrow": lambda self, x: x.narrow(0, 1, 2).exp(),
    "channels of one image": lambda self, x: x.reshape(1, 4, 4, 4)[:, 1:3].exp(),
    "a slice of a slice": lambda self, x: x[1:4][1:].exp() * x[2:].view(1, 8, 4)[:, 4:].sum(),
    "cat": lambda self, x: torch.cat([x.exp(), x.sin()]) * 2,
    "cat is a result": lambda self, x: torch.cat([x.exp(), x.sin()]),
    "cat of channels": lambda self, x: torch.cat([x.view(1, 4, 4, 4).exp(), x.view(1, 4, 4, 4).sin()], 1).sum(),
    "stack": lambda self, x: torch.stack([x.exp(), x.sin()]).sum(0),
    "cat of a cat": lambda self, x: torch.cat([torch.cat([x.exp(), x.sin()]), x.cos()]) * 2,
    "a part that is read after": lambda self, x: torch.cat([y := x.exp(), x.sin()]).sum(0) + y,
    "cut and join": lambda self, x: torch.cat([one.exp() for one in (x + 1).split(1)]) * 2,
    "elements of a call": lambda self, x: torch.cat([*torch.max(x, 0, keepdim=True)[:1], x.exp()]).repeat(4, 1),
}


def _all(functions: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    """One model that computes everything: a lowering takes longer than what it has to show here."""
    return lambda self, x: tuple(function(self, x) for function in functions.values())


def test_no_copy_is_left() -> None:
    operators, _ = called(_all(ELIDED))
    assert not (CUT | JOIN) & operators.keys()
    with_copies, _ = called(_all(ELIDED), remove_view_copy=False)
    assert {"aten::cat.out", "aten::slice_copy.Tensor_out", "aten::split_with_sizes_copy.out"} <= with_copies.keys()


COPIED: dict[str, Callable[..., Any]] = {
    "slice_copy: an output is its own": lambda self, x: x[1:3],
    "slice_copy: every other row": lambda self, x: x[::2].exp(),
    "slice_copy: columns": lambda self, x: x[:, :8].exp(),
    "slice_copy: a place that is not aligned": lambda self, x: x.view(64)[1:5].exp(),
    "slice_copy: of a state that changes": lambda self, x: (
        (old := self.cache[1:3]) * 2,
        self.cache.add_(x),
        old.sum(),
    )[0],
    "cat: of columns": lambda self, x: torch.cat([x.exp(), x.sin()], 1) * 2,
    "cat: parts that are not aligned": lambda self, x: torch.cat([x.view(64)[:1].exp(), x.view(64).sin()]) * 2,
    "cat: another dtype": lambda self, x: torch.cat([x.exp(), x.int()]) * 2,
    "cat: the same twice": lambda self, x: torch.cat([y := x.exp(), y]) * 2,
    "cat: inputs": lambda self, x: torch.cat([x, x + 1, x]) * 2,
}


def test_what_is_no_stretch_of_its_own_memory_is_copied() -> None:
    operators, _ = called(_all(COPIED))
    assert operators["aten::slice_copy.Tensor_out"] == sum(name.startswith("slice_copy") for name in COPIED)
    assert operators["aten::cat.out"] == sum(name.startswith("cat") for name in COPIED)


def test_most_parts_in_place_and_the_others_copied() -> None:
    operators, _ = called(lambda self, x: torch.cat([x.exp(), x, x.sin()]) * 2)
    assert operators["aten::clone.out"] == 1 and "aten::cat.out" not in operators


def test_a_tensor_has_one_home() -> None:
    operators, _ = called(lambda self, x: torch.cat([y := x.exp(), x.sin()]) * torch.cat([x.cos(), y]))
    assert operators["aten::clone.out"] == 1 and "aten::cat.out" not in operators


def test_what_the_caller_has_is_not_shown() -> None:
    def cut(self: Net, x: torch.Tensor) -> Any:
        return x[1:3].exp(), torch.cat([x.exp(), x.sin()])

    operators, _ = called(cut, alloc_graph_input=False, alloc_graph_output=False)
    assert operators["aten::slice_copy.Tensor_out"] == 1 and operators["aten::cat.out"] == 1


def test_places_are_aligned_as_the_memories_ask() -> None:
    memory = MemoryHierarchy((Memory("sram", alignment=256),))
    assert "aten::slice_copy.Tensor_out" in called(lambda self, x: x[1:3].exp(), memory=memory)[0]
    memory = MemoryHierarchy((Memory("sram", alignment=64),))
    assert "aten::slice_copy.Tensor_out" not in called(lambda self, x: x[1:3].exp(), memory=memory)[0]


def test_different_memories_are_left_apart() -> None:
    def exp_elsewhere(module: torch.fx.GraphModule) -> None:
        for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.exp.default):
            node.meta["memory_id"] = 2

    operators, _ = called(ELIDED["cat"], passes=[exp_elsewhere])
    assert operators["aten::clone.out"] == 1


def test_a_small_piece_of_much_is_copied_where_keeping_all_of_it_costs_more() -> None:
    def rows(self: Net, x: torch.Tensor) -> Any:
        big = [(x.repeat(64, 1) + i)[:4] for i in range(4)]
        return big[0] + big[1] + big[2] + big[3]

    operators, program = called(rows)
    assert operators["aten::slice_copy.Tensor_out"] >= 3
    assert program.memory["forward"].planned_bytes < 3 * 64 * X.nbytes


def test_dynamic_sizes_are_copied() -> None:
    rows = ({0: torch.export.Dim("n", min=2, max=8)},)
    operators, _ = called(lambda self, x: torch.cat([x.exp(), x[:1].sin()]) * 2, dynamic_shapes=rows)
    assert "aten::cat.out" in operators


def test_a_body_has_its_own_parts() -> None:
    def branches(self: Net, x: torch.Tensor) -> Any:
        double = lambda x: torch.cat([x.exp(), x.sin()]) * 2  # noqa: E731
        return torch.cond(x.sum() > 0, double, lambda x: torch.cat([x, x]), (x,))

    operators, _ = called(branches)
    assert operators["aten::cat.out"] == 1

    def rounds(self: Net, x: torch.Tensor) -> Any:
        from torch._higher_order_ops.map import map as torch_map

        return torch_map(lambda row: torch.cat([row.exp(), row.sin()]) * 2, x) + 1

    assert not JOIN & called(rounds)[0].keys()


UPDATES: dict[str, Callable[..., Any]] = {
    "index_put": lambda self, x: (x + 1).index_put((ONE,), x[:1]),
    "slice": lambda self, x: (y := x * 2, y[1:3].copy_(x[:2]), y)[-1],
    "twice": lambda self, x: (y := x * 2, y[1:3].copy_(x[:2]), y[0].fill_(3), y)[-1],
    "read before": lambda self, x: (y := x * 2, z := y.sum(), y[1:3].copy_(x[:2] + z), y)[-1],
}


def test_an_update_of_a_result_works_on_the_result() -> None:
    _, program = called(_all(UPDATES))
    (plan,) = program.executorch_program.execution_plan
    calls = [(str(plan.operators[call.op_index]), call) for call in plan.chains[0].instructions]
    updates = [call for name, call in calls if "scatter" in name or "index_put" in name]
    assert len(updates) >= 4 and all(call.args[0] == call.args[-1] for call in updates)


def test_an_update_of_what_is_read_after_is_a_copy() -> None:
    """What `called` compares would differ."""
    read: dict[str, Callable[..., Any]] = {
        "the old value": lambda self, x: (y := x * 2).index_put((ONE,), x[:1]) + y,
        "a piece of it": lambda self, x: ((y := x * 2).index_put((ONE,), x[:1]), y[1:3] * 2)[1],
        "by the update": lambda self, x: (y := x * 2).index_put((ONE,), y[2:3]),
        "a view of it": lambda self, x: (y := x * 2, v := y.view(64), y.index_put((ONE,), x[:1]) + v.sum())[-1],
    }
    called(_all(read))


# ---- random graphs ---------------------------------------------------------------------------------

OPERATIONS: dict[str, Callable[..., Any]] = {
    "exp": lambda a, b: a.tanh(),
    "add": lambda a, b: a + b.sum(0),
    "slice": lambda a, b: a[1:] if len(a) > 1 else a * 2,
    "first": lambda a, b: a[:1],
    "row": lambda a, b: a[-1].unsqueeze(0),
    "split": lambda a, b: a.split(1)[-1],
    "halves": lambda a, b: torch.cat(a.split((len(a) + 1) // 2)[::-1]),
    "cat": lambda a, b: torch.cat([a, b])[:6],
    "cat new": lambda a, b: torch.cat([a.sin(), b.cos()])[:6],
    "put": lambda a, b: a.index_put((torch.tensor([0]),), b[:1]),
    "write": lambda a, b: torch.slice_scatter(a, b[:1], 0, 0, 1),
    "view": lambda a, b: a.reshape(-1).reshape(a.shape),
    "stack": lambda a, b: torch.stack([a[0], b[0]]),
}


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    steps = draw(st.integers(1, 9))
    return [
        (draw(st.sampled_from(sorted(OPERATIONS))), draw(st.integers(0, at)), draw(st.integers(0, at)))
        for at in range(steps)
    ]


@settings(deadline=None, max_examples=5)  # a lowering takes a tenth of a second
@given(programs(), st.sets(st.integers(0, 9), min_size=1, max_size=3), st.booleans())
def test_random_mixes_compute_what_eager_does(
    program: list[tuple[str, int, int]], results: set[int], keeps_state: bool
) -> None:
    def run(self: Net, x: torch.Tensor) -> Any:
        values = [x]
        for name, a, b in program:
            values.append(OPERATIONS[name](values[a], values[b]))
        if keeps_state:
            self.cache.index_put_((ONE + 1,), values[-1][:1])
            values.append(self.cache[1:] + 1)
        return tuple(values[min(i, len(values) - 1)] * 1 if i % 2 else values[min(i, len(values) - 1)] for i in results)

    called(run)
