"""An entry of the operator database and a dtype -> small modules that call the operator, on operands at the edges.

How an operator is called, the database's samples say; what its tensors hold is replaced:

of one operand        all edges; each dangerous one alone, at the begin, the middle and the end of a longer vector
of two operands       every pair of edges, side by side and broadcast; edges as Python numbers on either side
of other shapes       each dangerous value alone, at the begin, the middle and the end of each tensor; all of them; ties
all of them           0-d and empty
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from delegraph_testkit.numerics.edges import dangerous_values, edge_numbers, edge_values
from delegraph_testkit.numerics.undefined import defined, left
from delegraph_testkit.operator_samples import OperatorModule, entries, samples_of

__all__ = ["EntryProgram", "finite", "programs"]

Inputs: TypeAlias = tuple[Tensor, ...]

LONG: Final = 67
"""Elements of a long vector: more than vector instructions of any width take at a time, and some over."""

_VARIANTS: Final = 4
"""Samples of an entry that differ in what is not a tensor."""

_LARGEST: Final = 4096
"""Elements of a sample's tensor."""


@dataclass(frozen=True, slots=True)
class EntryProgram:
    """A module and its calls, all of the same shapes and dtypes. `elementwise`: an element of a result comes of the
    elements of the operands in its place."""

    name: str
    module: nn.Module
    calls: Sequence[Inputs]
    elementwise: bool = False


def programs(entry: str, dtype: torch.dtype) -> Iterator[EntryProgram]:
    """The programs of an entry, none that eager torch does not run."""
    info = entries()[entry]
    with warnings.catch_warnings(action="ignore"), torch.random.fork_rng(devices=()):
        for program in _PLANS.get(type(info).__name__, _of_samples)(entry, info, dtype):
            calls = [call for call in program.calls if _runs(program.module, call)]
            if calls:
                yield EntryProgram(program.name, program.module.eval(), calls, program.elementwise)


_COMPARED_AS_FLOATS: Final = frozenset({"isclose"})
"""Entries whose integers are floats before they are compared."""


def finite(program: EntryProgram, entry: str, computes_in: str = "") -> EntryProgram:
    """The program of an entry on operands that a device of finite numbers has, of those of the dtype it computes in: 1
    stands for each that is infinite or NaN there, others are rounded to it, and numbers beside them are left out."""
    module, calls = program.module, program.calls
    if isinstance(module, _SideBySide):
        modules: list[Any] = list(module.side_by_side)
        numbers = torch.tensor([each.number for each in modules], dtype=torch.float64)
        kept = torch.nonzero(_within(numbers, computes_in) == numbers)[:, 0].tolist()
        module = _SideBySide([modules[position] for position in kept])
        calls = [tuple(call[position] for position in kept) for call in calls]
    too = entry in _COMPARED_AS_FLOATS
    return replace(program, module=module, calls=[tuple(_within(x, computes_in, too) for x in call) for call in calls])


def _within(tensor: Tensor, dtype: str, integers: bool = False) -> Tensor:
    is_rounded = dtype and (tensor.is_floating_point() or integers)
    rounded = tensor.to(getattr(torch, dtype)) if is_rounded else tensor
    return torch.where(rounded.isfinite(), rounded, torch.ones_like(rounded)).to(tensor.dtype)


# ---- one operand ---------------------------------------------------------------------------------


def _of_one(entry: str, info: Any, dtype: torch.dtype) -> Iterator[EntryProgram]:
    """Element by element, of one tensor."""
    edges, dangerous = edge_values(dtype), dangerous_values(dtype)
    for number, (_, sample) in enumerate(_variants(info, dtype)):
        module = _module(info, sample)
        plain = _cycled(_plain(info, dtype, sample), LONG)
        changed = [_with(plain, value, place) for value in dangerous for place in (0, LONG // 2, LONG - 1)]
        calls = [
            (_cycled(edges, -(-len(edges) // LONG) * LONG)[start : start + LONG],)
            for start in range(0, len(edges), LONG)
        ]
        yield _elementwise(entry, f"vector {number}", module, [*calls, *((vector,) for vector in changed)])
        if not number:
            yield _elementwise(entry, "0-d", module, [(value,) for value in dangerous])
            yield _elementwise(entry, "empty", module, [(edges[:0].view(0, 3),)])


def _plain(info: Any, dtype: torch.dtype, sample: Any) -> Tensor:
    """Ordinary numbers, of the operator's domain."""
    values: Tensor = sample.input.detach().reshape(-1)
    return values if values.numel() else torch.ones(1, dtype=dtype)


# ---- two operands --------------------------------------------------------------------------------


def _of_two(entry: str, info: Any, dtype: torch.dtype) -> Iterator[EntryProgram]:
    """Element by element, of two tensors, or a tensor and a number."""
    edges, dangerous = edge_values(dtype), dangerous_values(dtype)
    for number, (_, sample) in enumerate(_variants(info, dtype)):
        module = _module(info, sample)
        if _keeps_content(entry, sample):
            yield EntryProgram(f"sample {number}", module, [_tensors(sample)])
            continue
        pairs = torch.cartesian_prod(edges, edges).unbind(1) if len(edges) > 1 else (edges, edges)
        flat = (pairs[0].contiguous(), pairs[1].contiguous())
        yield _elementwise(entry, f"pairs {number}", module, [flat])
        if number:
            continue
        yield _elementwise(entry, "broadcast", module, [(edges[:, None].clone(), edges[None].clone())])
        yield _elementwise(entry, "0-d", module, [(a, b) for a in dangerous for b in dangerous])
        yield _elementwise(entry, "0-d right", module, [(edges, b) for b in dangerous])
        yield _elementwise(entry, "empty", module, [(edges[:0], edges[:1])])
        yield from _with_numbers(entry, info, dtype, sample)


def _with_numbers(entry: str, info: Any, dtype: torch.dtype, sample: Any) -> Iterator[EntryProgram]:
    """A tensor of edges beside each number, as many results of one program."""
    edges = edge_values(dtype)
    for name, allowed, first in [
        ("numbers", info.supports_rhs_python_scalar, False),
        ("numbers left", info.supports_one_python_scalar, True),
    ]:
        modules, tensors = [], []
        for number in edge_numbers(dtype) if allowed else ():
            beside = torch.tensor(number, dtype=dtype if _holds(dtype, number) else None)
            operands = defined(entry, (beside, edges) if first else (edges, beside))
            kept = torch.equal(operands[1 - first], beside) or number != number  # else: torch leaves it open
            module = _WithNumber(info.op, number, sample.kwargs, first)
            if kept and _runs(module, (operands[first],)):
                modules.append(module)
                tensors.append(operands[first])
        if modules:
            yield EntryProgram(name, _SideBySide(modules), [tuple(tensors)], True)


def _holds(dtype: torch.dtype, number: bool | int | float) -> bool:
    if isinstance(number, float):
        return dtype.is_floating_point or dtype.is_complex
    return (
        dtype.is_floating_point
        or dtype.is_complex
        or dtype == torch.bool
        or torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max
    )


class _WithNumber(nn.Module):
    """Calls `function` with a tensor and a number."""

    def __init__(self, function: Callable[..., Any], number: bool | int | float, kwargs: dict[str, Any], first: bool):
        super().__init__()
        self.function, self.number, self.kwargs, self.first = function, number, dict(kwargs), first

    def forward(self, tensor: Tensor) -> Any:
        operands = (self.number, tensor) if self.first else (tensor, self.number)
        return self.function(*operands, **self.kwargs)


class _SideBySide(nn.Module):
    """Calls each of `modules` with a tensor of its own."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.side_by_side = nn.ModuleList(modules)

    def forward(self, *tensors: Tensor) -> Any:
        return tuple(module(tensor) for module, tensor in zip(self.side_by_side, tensors, strict=True))


# ---- whatever shapes samples have ----------------------------------------------------------------


def _of_samples(entry: str, info: Any, dtype: torch.dtype) -> Iterator[EntryProgram]:
    """Tensors in the shapes of the samples, with other content where it is no place or size."""
    for number, (index, sample) in enumerate(_variants(info, dtype)):
        yield _of_sample(entry, f"sample {number}", info, sample, _data(entry, info, dtype, index, sample))
    for name, chosen in (("0-d", lambda t: t.dim() == 0 and t.numel()), ("empty", lambda t: not t.numel())):
        for index, sample in enumerate(_samples(info, dtype)):
            tensors = _tensors(sample)
            if tensors and chosen(tensors[0]):
                yield _of_sample(entry, name, info, sample, _data(entry, info, dtype, index, sample))
                break


def _reduction(entry: str, info: Any, dtype: torch.dtype) -> Iterator[EntryProgram]:
    """As samples have it, and along rows that are long."""
    yield from _of_samples(entry, info, dtype)
    for dim in (0, 1):
        sample = next(iter(_samples(info, dtype)), None)
        if sample is None:
            return
        plain = _cycled(torch.cat([s.input.reshape(-1) for s in _samples(info, dtype)][:12]), 3 * LONG)
        rows = plain.view(3, LONG) if dim else plain.view(3, LONG).t().contiguous()
        module = OperatorModule(info.op, *_flattened(rows, (), {**sample.kwargs, "dim": dim})[::-1])
        yield EntryProgram(f"long rows {dim}", module, list(_changed((rows,), (0,))))


_PLANS: Final[dict[str, Callable[[str, Any, torch.dtype], Iterator[EntryProgram]]]] = {
    "UnaryUfuncInfo": _of_one,
    "BinaryUfuncInfo": _of_two,
    "ReductionOpInfo": _reduction,
}
"""The database's own classes of operators -> how theirs are called."""


def _of_sample(entry: str, name: str, info: Any, sample: Any, data: Sequence[int]) -> EntryProgram:
    return EntryProgram(name, _module(info, sample), list(_changed(_tensors(sample), data)))


def _changed(tensors: Inputs, data: Sequence[int]) -> Iterator[Inputs]:
    """The tensors, then with other content in those that are `data`."""
    yield tensors
    for index in data:
        tensor = tensors[index]
        places = dict.fromkeys((0, tensor.numel() // 2, tensor.numel() - 1) if tensor.numel() else ())
        for value in dangerous_values(tensor.dtype):
            for place in places:
                yield _replaced(tensors, {index: _with(tensor, value, place)})
    if data:
        yield _replaced(tensors, {i: _cycled(_mixed(tensors[i].dtype).roll(7 * i), tensors[i].numel()) for i in data})
        ties = torch.tensor([2, 1, 1, 0, 1])
        yield _replaced(tensors, {i: _cycled(ties, tensors[i].numel()).to(tensors[i].dtype) for i in data})


def _mixed(dtype: torch.dtype) -> Tensor:
    """Edges that may stand side by side: no product of two finite ones overflows, for then the order decides."""
    edges = edge_values(dtype)
    return edges[(edges.abs() <= 2**24) | ~edges.isfinite()] if dtype.is_floating_point else edges


def _replaced(tensors: Inputs, changed: dict[int, Tensor]) -> Inputs:
    return tuple(changed[i].view(t.shape) if i in changed else t for i, t in enumerate(tensors))


def _data(entry: str, info: Any, dtype: torch.dtype, index: int, sample: Any) -> list[int]:
    """The tensors of a sample that hold numbers, by position: those that have another dtype in the samples of another
    dtype. The rest hold places, sizes, masks."""
    kept = left(entry)
    for other in (
        torch.float64,
        torch.float32,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.complex64,
        torch.complex128,
    ):
        alike = other.is_floating_point == dtype.is_floating_point and other.is_complex == dtype.is_complex
        if other == dtype or not alike or other not in info.dtypes:
            continue
        others = _samples(info, other)
        if index < len(others) and [t.shape for t in _tensors(others[index])] == [t.shape for t in _tensors(sample)]:
            pairs = zip(_tensors(sample), _tensors(others[index]), strict=True)
            return [i for i, (tensor, another) in enumerate(pairs) if tensor.dtype != another.dtype and i not in kept]
    floats = [
        i for i, t in enumerate(_tensors(sample)) if t.is_floating_point() or t.is_complex() or t.dtype == torch.bool
    ]
    return [i for i in floats if i not in kept]


def _keeps_content(entry: str, sample: Any) -> bool:
    return bool(left(entry)) or len(_tensors(sample)) != 2


# ---- samples -------------------------------------------------------------------------------------


@cache
def _cached(name: str, dtype: torch.dtype) -> list[Any]:
    return [
        sample
        for sample in samples_of(entries()[name], dtype)
        if all(t.layout == torch.strided for t in _tensors(sample))
    ]


def _samples(info: Any, dtype: torch.dtype) -> list[Any]:
    """All samples of an entry."""
    variant = info.variant_test_name
    return _cached(f"{info.name}{variant and ' ' + variant}", dtype)


def _variants(info: Any, dtype: torch.dtype) -> Iterator[tuple[int, Any]]:
    """The first samples, with their numbers, that differ in what is not a tensor, and that have elements."""
    seen: set[str] = set()
    for index, sample in enumerate(_samples(info, dtype)):
        tensors = _tensors(sample)
        key = repr(_leaves(sample))
        if not tensors or key in seen or not all(0 < t.numel() <= _LARGEST for t in tensors) or tensors[0].dim() == 0:
            continue
        seen.add(key)
        yield index, sample
        if len(seen) == _VARIANTS:
            return


def _leaves(sample: Any) -> list[Any]:
    leaves = pytree.tree_leaves(((sample.input, *sample.args), sample.kwargs))
    return ["tensor" if isinstance(leaf, Tensor) else leaf for leaf in leaves]


def _tensors(sample: Any) -> Inputs:
    leaves = pytree.tree_leaves(((sample.input, *sample.args), sample.kwargs))
    return tuple(leaf.detach() for leaf in leaves if isinstance(leaf, Tensor))


def _flattened(first: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
    return pytree.tree_flatten(((first, *args), kwargs))


def _module(info: Any, sample: Any) -> OperatorModule:
    leaves, structure = _flattened(sample.input, sample.args, sample.kwargs)
    return OperatorModule(info.op, structure, leaves)


# ---- content -------------------------------------------------------------------------------------


def _elementwise(entry: str, name: str, module: nn.Module, calls: Iterable[Sequence[Tensor]]) -> EntryProgram:
    return EntryProgram(name, module, [tuple(defined(entry, call)) for call in calls], True)


def _cycled(values: Tensor, count: int) -> Tensor:
    """`count` elements: `values` over and over."""
    return values.reshape(-1)[torch.arange(count) % values.numel()] if values.numel() else values.new_ones(count)


def _with(tensor: Tensor, value: Tensor, place: int) -> Tensor:
    """A contiguous copy with `value` at `place`."""
    changed = tensor.clone(memory_format=torch.contiguous_format)
    changed.view(-1)[place] = value
    return changed


def _runs(module: nn.Module, inputs: Inputs) -> bool:
    try:
        with torch.no_grad():
            module(*(tensor.clone() for tensor in inputs))
    except Exception:  # whatever torch raises: it does not compute it
        return False
    return True
