"""(operator, torch call, inputs) -> `Case`: a small program that reaches one operator of ExecuTorch's registry."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from delegraph.program.schema import Program

FLOATS: Final = ("float32", "float64", "float16", "bfloat16")
INTEGERS: Final = ("int64", "int32", "int16", "int8", "uint8")
NUMBERS: Final = (*FLOATS, *INTEGERS)
ALL: Final = (*NUMBERS, "bool")
COMMON: Final = ("float32", "float16", "int64", "uint8", "bool")
"""A selection for operators that treat dtypes alike."""

Inputs = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """One program and what it is run on. `operator` is the runtime's name of what it is there for.

    `calls` are the inputs of several calls in a row. `keep` stays whole in lowering. For operators that no torch
    program lowers to, `renamed` gives operators of the finished program another name, and `edit` changes it; `expected`
    then gives the outputs instead of `function`, if they change.
    """

    operator: str
    variant: str
    function: Callable[..., Any] | torch.nn.Module
    calls: tuple[Inputs, ...]
    keep: tuple[Any, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    dynamic_shapes: Any = None
    edit: Callable[[Program], Program] | None = None
    expected: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        """How tests and the list of differences call it."""
        return f"{self.operator} {self.variant}"


def call(operator: str, variant: str, target: Any, *args: Any, **kwargs: Any) -> Case:
    """The case of one call of the overload `target`: tensors among its arguments are inputs, the rest is fixed."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def function(*tensors: torch.Tensor) -> Any:
        filled = list(leaves)
        for position, value in zip(positions, tensors, strict=True):
            filled[position] = value
        call_args, call_kwargs = pytree.tree_unflatten(filled, spec)
        return target(*call_args, **call_kwargs)

    return Case(operator, variant, function, (tuple(leaves[i] for i in positions),), keep=(target,))


def by_dtype(
    operator: str, target: Any, dtypes: Sequence[str], arguments: Callable[[str], Inputs], **kwargs: Any
) -> Iterator[Case]:
    """The same call for each dtype: `arguments(dtype)` makes its arguments."""
    for dtype in dtypes:
        yield call(operator, dtype, target, *arguments(dtype), **kwargs)


def rounded_once(case: Case) -> Case:
    """`case`, expecting what torch gives in float32, rounded: its kernel for halves rounds intermediate results too."""
    dtype = case.calls[0][0].dtype

    def expected(*tensors: torch.Tensor) -> torch.Tensor:
        wide: torch.Tensor = case.function(*(x.float() if x.dtype is dtype else x for x in tensors))
        return wide.to(dtype)

    return replace(case, expected=expected)


def function(operator: str, variant: str, body: Callable[..., Any], *inputs: Any, keep: Sequence[Any] = ()) -> Case:
    """The case of any function of tensors."""
    return Case(operator, variant, body, (inputs,), keep=tuple(keep))


_STAND_INS: Final = torch.library.Library("stand_in", "FRAGMENT")


def stand_in(schema: str, body: Callable[..., Any]) -> Any:
    """A custom operator with the arguments of one that torch does not have, or that lowering never leaves behind.

    Its out variant is then renamed in the program: see `Case.renamed`.
    """
    name = schema.partition("(")[0]
    _STAND_INS.define(schema)
    _STAND_INS.impl(name, body, "CompositeExplicitAutograd")
    return getattr(torch.ops.stand_in, name).default


def renamed_call(operator: str, variant: str, target: Any, *args: Any, **kwargs: Any) -> Case:
    """The case of a call of a stand-in, whose out variant is renamed to `operator`."""
    plain = call(operator, variant, target, *args, **kwargs)
    out_variant = f"{target._schema.name}.out"
    return Case(operator, variant, plain.function, plain.calls, renamed={out_variant: operator})


# ---- inputs ----------------------------------------------------------------------------------------


def tensor(*shape: int, dtype: str = "float32", low: float = -3.0, high: float = 3.0, seed: int = 0) -> torch.Tensor:
    """Values between `low` and `high`, always the same for the same arguments; unsigned ones from 0 at least."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{shape} {seed}".encode()))
    kind = getattr(torch, dtype)
    if kind is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if kind.is_floating_point or kind.is_complex:
        values = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
        if kind.is_complex:
            return torch.complex(values, values.flip(0) if shape else values).to(kind)
        return values.to(kind)
    least = max(int(low), 0) if dtype == "uint8" else int(low)
    return torch.randint(least, int(high) + 1, shape, generator=generator).to(kind)


def indices(*shape: int, below: int, dtype: str = "int64", seed: int = 0) -> torch.Tensor:
    """Indices of a dim of size `below`."""
    return tensor(*shape, dtype=dtype, low=0, high=below - 1, seed=seed)


def channels_last(*shape: int, dtype: str = "float32") -> torch.Tensor:
    """A batch of images with their channels innermost in memory."""
    return tensor(*shape, dtype=dtype).to(memory_format=torch.channels_last)


def special(dtype: str = "float32") -> torch.Tensor:
    """Zeros of both signs, infinities, NaN, and numbers on and near the edges of rounding."""
    inf, nan = float("inf"), float("nan")
    return torch.tensor([0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-4, 60000.0]).to(
        getattr(torch, dtype)
    )
