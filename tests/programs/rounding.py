"""An exported program -> how far rounding can move each of its results, found by running it with other roundings.

Kernels and backends add in another order, keep more digits than a dtype has or fewer, and choose among zeros of two
signs. Where a comparison, a place or a code hangs on that, no answer is the right one. So each operator's result is
moved by a few units of the dtype's last place where it was rounded at all (doubles tell), zeros get a sign by chance,
and a quantized code stays or becomes a neighbour; what comes of it at the end is what differences are measured by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

__all__ = ["Disturbed", "is_close"]

PLACES: Final = 4
"""Units in the last place by which a rounded result is moved."""

RUNS: Final = 16
"""Of the same program, each with other roundings: enough for each way that a comparison or a branch can go, which
one run in four takes, to be seen in 99 programs of 100."""

SHARE: Final = 6
"""A difference may be so many times what was seen in these runs."""


_QUANTIZES: Final = frozenset(f"quantized_decomposed::quantize_per_tensor{of}" for of in ("", ".tensor"))
_DEQUANTIZES: Final = frozenset(f"quantized_decomposed::dequantize_per_tensor{of}" for of in ("", ".tensor"))


class Disturbed(Interpreter):
    """Runs a program's module with each rounded result moved."""

    def __init__(self, module: GraphModule, seed: int) -> None:
        super().__init__(module)
        self.seed = seed
        self.generator = torch.Generator().manual_seed(seed)

    def run_node(self, n: Node) -> Any:
        if n.op == "call_function" and n.target is torch.ops.higher_order.cond:
            (chosen, on_true, on_false, *operands), _ = self.fetch_args_kwargs_from_env(n)
            branch = Disturbed(on_true if chosen else on_false, self.seed)
            branch.generator = self.generator
            return branch.run(*(operands[0] if operands else ()))
        if n.op != "call_function" or not isinstance(n.target, OpOverload):
            result = super().run_node(n)
            if n.op == "call_function" and isinstance(n.target, torch._ops.HigherOrderOperator):
                self._move(result, None)
            return result
        if n.target.is_view:
            return super().run_node(n)
        exact = self._in_doubles(n)
        result = super().run_node(n)
        if n.target.name() in _QUANTIZES:
            return self._other_codes(result, *self.fetch_args_kwargs_from_env(n)[0])
        if n.target.name() in _DEQUANTIZES:
            return self._beside_the_grid(result, *self.fetch_args_kwargs_from_env(n)[0])
        # otherwise an element that comes out right has rounded parts: 0 is x - mean in some order of sums
        keeps = torch.Tag.pointwise in n.target.tags or _is_same(result, exact)
        self._move(result, exact, keeps)
        return result

    def _other_codes(self, codes: Tensor, _: Tensor, scale: Any, zero: Any, low: int, high: int, *__: Any) -> Tensor:
        step = torch.randint(-1, 2, codes.shape, generator=self.generator)
        return (codes.to(torch.int64) + step).clamp(low, high).to(codes.dtype)

    def _beside_the_grid(self, real: Tensor, _: Tensor, scale: Any, zero: Any, low: int, high: int, *__: Any) -> Tensor:
        """Who computes a value without its code rounds it by the range of the codes, and 0 may be beside 0."""
        chance = torch.rand(real.shape, generator=self.generator) * 2 - 1
        return real + (chance * (high - low) * float(scale) * PLACES * torch.finfo(real.dtype).eps).to(real.dtype)

    def _in_doubles(self, node: Node) -> Any:
        """What the call gives of doubles; None where it cannot."""
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        if not any(leaf.is_floating_point() for leaf in _tensors((args, kwargs))):
            return None
        args, kwargs = pytree.tree_map(_doubled, (args, kwargs))
        try:
            return node.target(*args, **kwargs)  # type: ignore[operator]
        except Exception:
            return None

    def _move(self, result: Any, exact: Any, keeps: bool = False) -> None:
        results, exacts = _tensors(result), _tensors(exact)
        for index, tensor in enumerate(results):
            if not tensor.is_floating_point() or tensor.dtype == torch.float64:
                continue
            known = exacts[index] if len(exacts) == len(results) and exacts[index].shape == tensor.shape else None
            tensor.copy_(self._moved(tensor, known, keeps))

    def _moved(self, tensor: Tensor, exact: Tensor | None, keeps: bool) -> Tensor:
        """The tensor, each element moved by what rounding to its dtype does, and by what it is away from doubles (a
        normalisation of equal elements gives the rounding of their difference, times 316); `keeps` those that are not.
        """
        chance = torch.rand(tensor.shape, generator=self.generator) * 2 - 1
        size = torch.where(tensor.isfinite(), tensor.double().abs(), 0)
        scale = size + (size.max() if size.numel() else 0)
        reach = PLACES * torch.finfo(tensor.dtype).eps
        away = torch.zeros(()) if exact is None else (exact.double() - tensor.double()).abs().nan_to_num(0, 0, 0)
        away = away if keeps or not away.numel() else away.max()
        moved = tensor.double() + chance * (scale * reach + PLACES * away)
        if self.seed % 2:  # terms that cancel but for rounding cancel
            moved = torch.where(size <= size.max() * reach, 0.0, moved) if size.numel() else moved
        if exact is not None and keeps:
            moved = torch.where(exact.double() == tensor.double(), tensor.double(), moved)
        return torch.where(moved == 0, torch.copysign(moved, chance), moved).to(tensor.dtype)


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def _is_same(result: Any, exact: Any) -> bool:
    """Whether nothing was rounded."""
    pairs = zip(_tensors(result), _tensors(exact), strict=False)
    return all(a.shape == b.shape and torch.equal(a.double(), b.double()) for a, b in pairs)


def _doubled(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value.clone()
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def is_close(
    actual: Tensor, expected: Tensor, disturbed: Sequence[Tensor], limits: Callable[[torch.dtype], dict[str, float]]
) -> Tensor:
    """Of each element whether it is right: equal, both NaN, within `limits` of the dtype, or within what rounding
    does."""
    alike = [other for other in disturbed if other.shape == expected.shape]
    if len(alike) < len(disturbed):  # the shape itself hangs on it
        return torch.ones(expected.shape, dtype=torch.bool)
    a, e, others = actual.double(), expected.double(), [other.double() for other in alike]
    right = (a == e) | (a.isnan() & e.isnan())
    moved = [(other != e) & ~(other.isnan() & e.isnan()) for other in others]
    if not expected.is_floating_point():
        return right | torch.stack(moved).any(0) if moved else right
    close = limits(expected.dtype)
    spread = torch.zeros_like(e)
    for m, other in zip(moved, others, strict=True):
        spread = spread.maximum(torch.where(m, (other - e).abs(), 0))
    open_ = ~spread.isfinite()  # an infinity or NaN hangs on it
    near = (a - e).abs() <= close["atol"] + close["rtol"] * e.abs() + SHARE * spread
    return right | open_ | (e.isfinite() & near)
