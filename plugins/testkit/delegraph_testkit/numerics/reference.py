"""A program's call -> torch's results, and others that are torch's as well.

Torch computes an operator in several ways: element by element or by vector instructions, as its memory lies; by its
kernel, by the reference in Python that it keeps for it, or decomposed as it is for compilers; in other precisions.
Where they agree they are the contract; where they don't, torch leaves the result open, and any of them is right.

Results in half precision are those of float32, rounded once, or torch's own, which round more often. What double
precision gives, rounded once, is right too: where single precision overflows on the way, the order of a sum decides.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch._decomp import decomposition_table
from torch.export import ExportedProgram, default_decompositions
from torch.fx import Node
from torch.utils import _pytree as pytree

from delegraph_testkit.arrays import Array
from delegraph_testkit.lowering import to_array

__all__ = ["Answers", "QuantizedWays", "Ways"]

Tensors: TypeAlias = Sequence[Tensor]
Way: TypeAlias = Callable[..., Any]

_HALVES: Final = (torch.float16, torch.bfloat16)
_WIDER: Final = {**dict.fromkeys((*_HALVES, torch.float32), torch.float64), torch.complex64: torch.complex128}


class Ways:
    """The ways in which torch computes a program, an ATen program of `module`, that calls the operator of `entry`."""

    def __init__(self, entry: str, module: nn.Module, exported: ExportedProgram) -> None:
        self._entry, self._module, self._exported = entry, module, exported
        self._made: dict[str, Any] = {}

    def results(self, inputs: Tensors) -> Iterator[list[Tensor]]:
        """The results of each way, in turn; what differs is told as differing from the first."""
        own = _run(self._module, inputs)
        ways = [self._in(dict.fromkeys(_HALVES, torch.float32), inputs), lambda: own]
        ways += [lambda: _run(self._module, inputs, _with_gaps), partial(self._wide, inputs)]
        ways += [partial(self._by, made, inputs) for made in ("_by_reference", "_core", "_decomposed")]
        for way in ways:
            results = _tried(way)
            if [r.shape for r in results] == [r.shape for r in own]:
                yield [_as(like, result) for like, result in zip(own, results, strict=True)]

    def slack(self, inputs: Tensors) -> list[Array]:
        """How far each element of each result may be off: twice what torch's own is off from double precision's."""
        own = _run(self._module, inputs)
        return [_apart(*pair) for pair in zip(own, _tried(partial(self._wide, inputs)) or own, strict=True)]

    def rounding(self, inputs: Tensors) -> list[Array]:
        """How far sums that cancel may be off: a few units of the last place of the sum of their terms' magnitudes,
        which the operands' magnitudes give."""
        own = _run(self._module, inputs)
        magnitudes = [tensor.abs() if tensor.is_floating_point() else tensor for tensor in inputs]
        return [_units(*pair) for pair in zip(own, _tried(partial(self._wide, magnitudes)) or own, strict=True)]

    def _wide(self, inputs: Tensors) -> list[Tensor]:
        """Computes floats, and what integers become among them, in double precision."""
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return self._converted(_WIDER, inputs)
        finally:
            torch.set_default_dtype(before)

    def _in(self, dtypes: Mapping[torch.dtype, torch.dtype], inputs: Tensors) -> Callable[[], list[Tensor]]:
        """Computes in other dtypes; nothing where no input is of them."""
        if not any(tensor.dtype in dtypes for tensor in inputs):
            return list
        return partial(self._converted, dtypes, inputs)

    def _converted(self, dtypes: Mapping[torch.dtype, torch.dtype], inputs: Tensors) -> list[Tensor]:
        return _run(copy.deepcopy(self._module), [t.to(dtypes.get(t.dtype, t.dtype)) for t in inputs])

    def _by(self, made: str, inputs: Tensors) -> list[Tensor]:
        """The results of a program that is made when it is first asked for; none if it cannot be."""
        if made not in self._made:
            self._made[made] = None
            self._made[made] = getattr(self, made)()
        return [] if self._made[made] is None else _run(self._made[made], inputs)

    def _by_reference(self) -> Way:
        """By the function of `torch._refs`."""
        names = self._entry.partition(" ")[0].split(".")
        function = functools.reduce(getattr, names, torch._refs)
        changed = copy.deepcopy(self._module)
        for part in changed.modules():
            if "function" in vars(part):
                vars(part)["function"] = function
        return changed

    def _core(self) -> Way:
        """Decomposed into core ATen."""
        module: Way = self._exported.run_decompositions().module()
        return module

    def _decomposed(self) -> Way:
        """Decomposed as far as torch knows how."""
        table = {**default_decompositions().materialize(), **decomposition_table}
        module: Way = self._exported.run_decompositions(table).module()
        return module


class QuantizedWays:
    """The same of a program that is quantized: as torch computes it, within what quantizing changed: a step of the
    coarsest codes, or twice the largest distance between `quantized` and the float `module` on `ordinary` inputs.

    Where the float module's result is NaN any code will do: none is NaN."""

    def __init__(self, module: nn.Module, quantized: ExportedProgram, ordinary: Tensors) -> None:
        self._module, self._quantized = module, quantized.module()
        pairs = zip(_run(self._quantized, ordinary), _run(module, ordinary), strict=True)
        steps = [_step(node) for node in quantized.graph.nodes]
        self._slack = [max(float(_apart(*pair).max(initial=0.0)), *steps) for pair in pairs]

    def results(self, inputs: Tensors) -> Iterator[list[Tensor]]:
        """The results of the one way that there is."""
        yield _run(self._quantized, inputs)

    def slack(self, inputs: Tensors) -> list[Array]:
        """How far each element of each result may be off."""
        pairs = zip(_run(self._module, inputs), self._slack, strict=True)
        return [np.where(to_array(result.isnan()), np.inf, slack) for result, slack in pairs]

    def rounding(self, inputs: Tensors) -> list[Array]:
        """Nothing more: a step of the codes is larger."""
        return [np.zeros(())] * len(self._slack)


def _step(node: Node) -> float:
    """The scale of a quantize or dequantize call; 0 of another node."""
    called = str(node.target)
    return float(node.args[1]) if "quantize_per_tensor" in called and isinstance(node.args[1], float) else 0.0


class Answers:
    """Torch's results for a call of a program, those of further ways computed when they are asked for."""

    def __init__(self, ways: Ways | QuantizedWays, inputs: Tensors) -> None:
        self._ways, self._inputs = ways, inputs
        self._known: list[list[Array]] = []
        self._more = ways.results(inputs)

    def __iter__(self) -> Iterator[list[Array]]:
        """The results of each way."""
        yield from self._known
        for results in self._more:
            self._known.append([to_array(result) for result in results])
            yield self._known[-1]

    @cached_property
    def may_overflow(self) -> bool:
        """Whether the operands are finite, and the square of one is not."""
        floats = [tensor.abs() for tensor in self._inputs if tensor.is_floating_point() or tensor.is_complex()]
        large = [tensor > torch.finfo(tensor.dtype).max ** 0.5 for tensor in floats]
        return all(bool(t.isfinite().all()) for t in floats) and any(bool(mask.any()) for mask in large)

    @cached_property
    def of_zeros(self) -> list[Array] | None:
        """The first, if operands that are denormal were 0; None where none is."""
        zeros = [_without_denormals(tensor) for tensor in self._inputs]
        if all(map(torch.equal, map(torch.nan_to_num, zeros), map(torch.nan_to_num, self._inputs))):
            return None
        return Answers(self._ways, zeros).first

    @property
    def first(self) -> list[Array]:
        """The results of the first way."""
        return next(iter(self))

    def slack(self, position: int, elementwise: bool) -> Array:
        """How far each element of a result may be off; `elementwise`: of which none is a sum of others."""
        slack = self._slacks[position]
        return slack if elementwise else slack + self._rounding[position]

    @cached_property
    def _slacks(self) -> list[Array]:
        return self._ways.slack(self._inputs)

    @cached_property
    def _rounding(self) -> list[Array]:
        return self._ways.rounding(self._inputs)


def _run(way: Way, inputs: Tensors, place: Callable[[Tensor], Tensor] = torch.clone) -> list[Tensor]:
    """The results on copies of the inputs, laid down as `place` does it."""
    with torch.no_grad():
        results = pytree.tree_leaves(way(*map(place, inputs)))
    return [result.resolve_conj().resolve_neg() for result in results if isinstance(result, Tensor)]


def _without_denormals(tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    return torch.where(tensor.abs() < torch.finfo(tensor.dtype).tiny, tensor.new_zeros(()).copysign(tensor), tensor)


def _tried(way: Callable[[], list[Tensor]]) -> list[Tensor]:
    """The results; none where torch has no such way."""
    try:
        return way()
    except Exception:  # whatever torch raises
        return []


def _as(like: Tensor, result: Tensor) -> Tensor:
    """A float in the dtype of `like`; `like` itself if that is none: of another dtype's integers nothing follows."""
    if result.dtype == like.dtype:
        return result
    return result.to(like.dtype) if like.is_floating_point() or like.is_complex() else like


def _with_gaps(tensor: Tensor) -> Tensor:
    """A copy in which between two numbers lies a third."""
    return torch.stack([tensor, tensor], -1)[..., 0]


def _units(result: Tensor, magnitude: Tensor) -> Array:
    if not result.is_floating_point() or result.shape != magnitude.shape:
        return np.zeros(tuple(result.shape))
    units = 16 * torch.finfo(result.dtype).eps * magnitude.double().abs()
    return np.asarray(torch.where(units.isfinite(), units, 0.0).numpy())


def _apart(result: Tensor, precise: Tensor) -> Array:
    if not (result.is_floating_point() or result.is_complex()):
        return np.zeros(tuple(result.shape))
    apart = (result.to(precise.dtype) - precise).abs()
    return np.asarray(torch.where(apart.isfinite(), 2 * apart, 0.0).double().numpy())
