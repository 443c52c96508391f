"""A program's call -> torch's results, and others that are torch's as well.

Torch computes an operator in several ways: element by element or by vector instructions, as its memory lies; by its
kernel, by the reference in Python that it keeps for it, or decomposed as it is for compilers; in other precisions. Where
they agree they are the contract; where they don't, torch leaves the result open, and any of them is right.

Results in half precision are those of float32, rounded once, or torch's own, which round more often. What double
precision gives, rounded once, is right too: where single precision overflows on the way, the order of a sum decides.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch._decomp import decomposition_table
from torch.export import ExportedProgram, default_decompositions
from torch.utils import _pytree as pytree

from delegraph_testkit.arrays import Array
from delegraph_testkit.lowering import to_array

__all__ = ["Answers", "Ways"]

Tensors: TypeAlias = Sequence[Tensor]
Way: TypeAlias = Callable[..., Any]

_HALVES: Final = (torch.float16, torch.bfloat16)
_WIDER: Final = {torch.float32: torch.float64, torch.complex64: torch.complex128}


class Ways:
    """The ways in which torch computes a program: its module; the same by torch's references in Python; decomposed."""

    def __init__(self, entry: str, module: nn.Module, exported: ExportedProgram) -> None:
        self.module, self._entry, self._exported = module, entry, exported

    @cached_property
    def by_reference(self) -> Way | None:
        """By the function of `torch._refs`, if there is one for the entry."""
        names = self._entry.partition(" ")[0].split(".")
        function = functools.reduce(lambda found, name: getattr(found, name, None), names, torch._refs)
        return None if function is None else _with_function(self.module, function)

    @cached_property
    def core(self) -> Way | None:
        """Decomposed into core ATen."""
        return self._decomposed({})

    @cached_property
    def decomposed(self) -> Way | None:
        """Decomposed as far as torch knows how."""
        return self._decomposed(decomposition_table)

    def _decomposed(self, further: Mapping[Any, Way]) -> Way | None:
        try:
            table = {**default_decompositions().materialize(), **further}
            return self._exported.run_decompositions(table).module()
        except Exception:  # whatever torch raises
            return None


def _with_function(module: nn.Module, function: Way) -> nn.Module:
    """A copy that calls `function` in place of the operator."""
    changed = copy.deepcopy(module)
    for part in changed.modules():
        if hasattr(part, "function"):
            part.function = function
    return changed


@dataclass(slots=True)
class Answers:
    """Torch's results for a call of a program, those of further ways computed when they are asked for."""

    ways: Ways
    inputs: Tensors
    _known: list[list[Array]] = field(default_factory=list)
    _more: Iterator[list[Array]] | None = None
    _slack: list[Array] | None = None

    def __iter__(self) -> Iterator[list[Array]]:
        """The results of each way. Those of the first are what the rest is told apart from."""
        if self._more is None:
            self._more = self._computed()
        yield from self._known
        for results in self._more:
            self._known.append(results)
            yield results

    @property
    def first(self) -> list[Array]:
        """The results of the first way."""
        return next(iter(self))

    def slack(self, position: int) -> Array:
        """How far each element of a result may be off: twice what torch's own is off from double precision's."""
        if self._slack is None:
            own = _run(self.ways.module, self.inputs)
            precise = self._in(_WIDER, own) or own
            self._slack = [_apart(*pair) for pair in zip(own, precise, strict=True)]
        return self._slack[position]

    def _computed(self) -> Iterator[list[Array]]:
        own = _run(self.ways.module, self.inputs)
        for results in self._by_any_way(own):
            if results is not None:
                yield [to_array(_as(like, result)) for like, result in zip(own, results, strict=True)]

    def _by_any_way(self, own: Tensors) -> Iterator[Tensors | None]:
        yield self._in(dict.fromkeys(_HALVES, torch.float32), own)
        yield own
        yield _run(self.ways.module, self.inputs, _with_gaps)
        yield self._in(_WIDER, own)
        for name in ("by_reference", "core", "decomposed"):  # each made when it is asked for
            way = getattr(self.ways, name)
            yield None if way is None else _tried(way, self.inputs, own)

    def _in(self, dtypes: Mapping[torch.dtype, torch.dtype], own: Tensors) -> Tensors | None:
        """The results in other dtypes; None where no input is of them, or torch does not compute them."""
        if not any(tensor.dtype in dtypes for tensor in self.inputs):
            return None
        inputs = [tensor.to(dtypes.get(tensor.dtype, tensor.dtype)) for tensor in self.inputs]
        return _tried(copy.deepcopy(self.ways.module), inputs, own)


def _run(way: Way, inputs: Tensors, place: Callable[[Tensor], Tensor] = torch.clone) -> list[Tensor]:
    """The results on copies of the inputs, laid down as `place` does it."""
    with torch.no_grad():
        results = pytree.tree_leaves(way(*map(place, inputs)))
    return [result.resolve_conj().resolve_neg() for result in results if isinstance(result, Tensor)]


def _tried(way: Way, inputs: Tensors, own: Tensors) -> list[Tensor] | None:
    """The results, if there are any of the same shapes."""
    try:
        results = _run(way, inputs)
    except Exception:  # whatever torch raises
        return None
    return results if [r.shape for r in results] == [r.shape for r in own] else None


def _as(like: Tensor, result: Tensor) -> Tensor:
    """A float in the dtype of `like`; `like` itself if that is none: of another dtype's integers nothing follows."""
    if result.dtype == like.dtype:
        return result
    return result.to(like.dtype) if like.is_floating_point() or like.is_complex() else like


def _with_gaps(tensor: Tensor) -> Tensor:
    """A copy in which between two numbers lies a third."""
    return torch.stack([tensor, tensor], -1)[..., 0]


def _apart(result: Tensor, precise: Tensor) -> Array:
    if not (result.is_floating_point() or result.is_complex()):
        return np.zeros(tuple(result.shape))
    apart = (result.to(precise.dtype) - precise).abs()
    return np.asarray(torch.where(apart.isfinite(), 2 * apart, 0.0).double().numpy())
