"""Writes through every way of naming the same memory: the other names see them, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from core.tests.aot.propagation import assert_values_are_what_operators_give
from torch.export import Dim
from torch.nn import functional as F

import delegraph
from delegraph.aot.edge.to_edge_dialect import to_edge_dialect
from delegraph.aot.functional.functionalize import functionalize
from delegraph.errors import LoweringError

X = torch.linspace(-1, 1.5, 6).reshape(2, 3)


class Does(torch.nn.Module):
    """A model that calls a function, with a buffer for it to change."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("state", torch.arange(3.0))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, self.state)


def assert_lowers(function: Callable[..., Any], args: Any = (X,), shapes: Any = None, calls: int = 2) -> None:
    """Lowered and run without torch's operators, over several calls, it gives what eager mode gives."""
    model = Does(function).eval()
    program = torch.export.export(model, args, dynamic_shapes=shapes)
    for functional in (functionalize(program, {}), to_edge_dialect(functionalize(program, {}))):
        assert_values_are_what_operators_give(functional)
    module = delegraph.load(bytes(delegraph.lower(program)))
    for _ in range(calls):
        wanted = model(*(x.clone() for x in args))
        got = module(*(x.numpy().copy() for x in args))
        pairs = zip(got, wanted, strict=True) if isinstance(wanted, tuple) else [(got, wanted)]
        for ours, theirs in pairs:
            assert np.asarray(ours).dtype == theirs.numpy().dtype
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-6, atol=1e-6)


WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    # the same tensor under another name
    "to its device": lambda t: t.to(t.device).clamp_(0),
    "to its dtype": lambda t: t.to(torch.float32).mul_(3),
    "type_as": lambda t: t.type_as(t).mul_(3),
    "float": lambda t: t.float().mul_(3),
    "cpu": lambda t: t.cpu().mul_(3),
    "contiguous": lambda t: t.contiguous().mul_(3),
    "real": lambda t: t.real.mul_(3),
    "positive": lambda t: torch.positive(t).mul_(3),
    "resolve_conj": lambda t: t.resolve_conj().mul_(3),
    "dropout": lambda t: F.dropout(t, training=False).mul_(3),
    "dropout in place": lambda t: F.dropout(t, training=False, inplace=True).mul_(3),
    "feature_alpha_dropout": lambda t: F.feature_alpha_dropout(t[None], training=False).mul_(3),
    "detach": lambda t: t.detach().mul_(3),
    # a copy, which nobody else sees
    "to another dtype": lambda t: t.to(torch.float64).mul_(3),
    "contiguous copy": lambda t: t.t().contiguous().mul_(3),
    # views
    "permute": lambda t: t.permute(1, 0).mul_(3),
    "view_as": lambda t: t.view_as(t).mul_(3),
    "reshape_as": lambda t: t.reshape_as(t).mul_(3),
    "T": lambda t: t.T.mul_(3),
    "mT": lambda t: t.mT.mul_(3),
    "adjoint": lambda t: t.adjoint().mul_(3),
    "movedim": lambda t: t.movedim(0, 1).mul_(3),
    "movedim of three": lambda t: t[None].movedim((0, 1), (1, 2)).mul_(3),
    "swapaxes": lambda t: t.swapaxes(0, 1).mul_(3),
    "ravel": lambda t: t.ravel().mul_(3),
    "unfold": lambda t: t.unfold(1, 2, 2).mul_(3),
    "unflatten": lambda t: t.unflatten(1, (3, 1)).mul_(3),
    "squeeze": lambda t: t.unsqueeze(0).squeeze().mul_(3),
    "expand": lambda t: t.expand(1, 2, 3).mul_(3),
    "broadcast_to": lambda t: t.broadcast_to(2, 3).mul_(3),
    "atleast_3d": lambda t: torch.atleast_3d(t).mul_(3),
    "view of another dtype": lambda t: t.view(torch.int32).bitwise_and_(0x7FFFFFFF),
    "tensor_split": lambda t: t.tensor_split(2)[1].mul_(3),
    "hsplit": lambda t: t.hsplit(3)[1].mul_(3),
    "chunk of T": lambda t: t.T.chunk(3)[1].mul_(3),
    "unbind of T": lambda t: t.T.unbind()[0].mul_(3),
    "T of a split": lambda t: t.split([1, 1])[0].T.mul_(3),
    "all of a split": lambda t: [piece.mul_(2) for piece in t.hsplit(3)],
    "setitem of T": lambda t: t.T.__setitem__((slice(0, 2),), 5.0),
    "view_as_real": lambda t: torch.view_as_real(torch.view_as_complex(t.view(3, 2))).mul_(3),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_every_name_of_a_tensor_sees_a_write_through_another(write: Callable[[torch.Tensor], Any]) -> None:
    def function(x: torch.Tensor, _state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        t = x * 2
        row, turned = t[1], t.t()
        write(t)
        return t, x + t, row * 1, turned.sum(0)

    assert_lowers(function)


def test_a_write_through_what_a_buffer_was_cast_to() -> None:
    def function(x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        same = state.to(x.device).contiguous()
        y = same + x
        state.add_(1)
        same.float().mul_(2)
        return y, same + x

    assert_lowers(function, calls=3)


def test_a_write_to_a_constant_is_gone_at_the_next_call() -> None:
    def function(x: torch.Tensor, _state: torch.Tensor) -> torch.Tensor:
        return torch.tensor([1.0, 2.0, 3.0]).add_(x.sum())

    assert_lowers(function)


def test_writes_in_a_dynamic_shape() -> None:
    def function(x: torch.Tensor, _state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        t = x * 2
        t.ravel().mul_(2)
        t.permute(1, 0).add_(1)
        t.unfold(1, 2, 2).mul_(3)
        return t, t.t() + 1

    model, rows = Does(function), Dim("rows", min=1, max=8)
    module = delegraph.load(bytes(delegraph.lower(model, (X,), dynamic_shapes=({0: rows},))))
    for count in (1, 2, 8):
        x = torch.randn(count, 3)
        for ours, theirs in zip(module(x.numpy()), model(x), strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-6)


def test_a_write_in_a_region_without_gradients_is_seen_outside_and_one_outside_inside() -> None:
    def function(x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        t = x * 2
        with torch.no_grad():
            view = t.view(-1)
            with torch.autocast("cpu", enabled=False):
                view.mul_(3)
                state.add_(1)
            with torch.enable_grad():
                view.add_(1)
        view.mul_(2)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            t.sub_(1)
        return t, state + x

    assert_lowers(function)


def test_branches_of_equal_names_in_and_out_of_a_region() -> None:
    def function(x: torch.Tensor, _state: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))
        return torch.cond(y.sum() > 100, lambda a: a * 2, lambda a: a * 3, (y,))

    assert_lowers(function)


def test_out_arguments() -> None:
    def function(x: torch.Tensor, _state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        whole, rows, resized = torch.empty(2, 3), torch.zeros(4, 3), torch.empty(0)
        wide = torch.empty(2, 3, dtype=torch.float64)
        values, places = torch.empty(2), torch.empty(2, dtype=torch.int64)
        same = torch.mul(x, 2, out=whole)
        same.add_(1)
        torch.add(x, x, out=rows[1:3])
        torch.add(x, 1, out=resized)
        torch.add(x, 1, out=wide)
        torch.max(x, 1, out=(values, places))
        return whole, rows, resized, wide, values, places

    assert_lowers(function)


def test_an_out_view_of_another_shape_is_refused() -> None:
    def function(x: torch.Tensor, _state: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(4, 3)
        torch.add(x, x, out=y[:0])
        return y

    text = r"aten\.add\.out writes a result of shape \[2, 3\] into a view of shape \[0, 3\]"
    with pytest.raises(LoweringError, match=text) as error:
        functionalize(torch.export.export(Does(function), (X,)), {})
    assert "in forward: return self.function(x, self.state)" in str(error.value)


def test_a_branch_that_changes_what_is_outside_names_the_line() -> None:
    class Region(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))

    program = torch.export.export(Region(), (X,))
    branch = program.graph_module.true_graph_0
    add = next(node for node in branch.graph.nodes if node.op == "call_function")
    add.target, add.meta["stack_trace"] = (
        torch.ops.aten.add_.Tensor,
        'File "model.py", line 7, in branch\n    a.add_(1)',
    )
    with pytest.raises(LoweringError, match="changes a tensor from outside it") as error:
        functionalize(program, {})
    assert "model.py:7, in branch: a.add_(1)" in str(error.value)
