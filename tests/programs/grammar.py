"""A seed -> a random `Program`: calls that eager torch takes, with both sizes of the dim that varies.

A call is a row of the tables with its fields filled in: the names of values made before, and what fits the first of
them, a dim, a permutation, an index. Whether it is a call at all eager torch decides, which runs it at once.
"""

from __future__ import annotations

import random
import string
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Final

import torch
from tests.programs.program import DYNAMIC, PYTHONS, SIZES, Call, Input, Program, namespace
from tests.programs.rows import (
    BODIES,
    BODY,
    BUFFERS,
    CONTINUOUS,
    ELEMENTWISE,
    INDEXING,
    PRODUCTS,
    REDUCTIONS,
    SHAPES,
    STATES,
    VIEWS,
    WRITES,
)
from torch import Tensor

__all__ = ["random_program"]

_FLOATS: Final = ("float32", "float32", "float32", "float16", "bfloat16", "float64")
_INTEGERS: Final = ("int64", "int32", "int16", "int8", "uint8")
_TABLES: Final[Sequence[tuple[int, Sequence[Any]]]] = (
    *((12, ELEMENTWISE), (10, VIEWS), (4, SHAPES), (4, REDUCTIONS), (4, PRODUCTS), (4, INDEXING), (8, WRITES)),
    *((2, BODIES), (4, STATES), (3, BUFFERS)),
)
_QUANTIZED_TABLES: Final[Sequence[tuple[int, Sequence[Any]]]] = ((3, CONTINUOUS), (2, STATES[:8]))
ATTEMPTS: Final = 400
"""Of filling in a row, for each program."""

LARGEST: Final = 400
"""Elements of a value."""


def random_program(seed: int) -> Program:
    """The program of this number: five to fifteen calls, as far as eager torch takes enough of what is tried."""
    draw = random.Random(seed)
    quantized = draw.random() < _QUANTIZED
    return _Builder(draw, quantized).program(draw.randint(5, 15))


_QUANTIZED: Final = 0.15
_VARIES: Final = 0.3


class _Builder:
    """Calls taken so far, and for each size of the dim that varies the values that they have."""

    def __init__(self, draw: random.Random, quantized: bool) -> None:
        self.draw, self.quantized = draw, quantized
        self.inputs = tuple(self._input(f"x{i}") for i in range(draw.choice((1, 2, 2, 3))))
        self.calls: list[Call] = []
        self.sizes = SIZES if any(DYNAMIC in value.shape for value in self.inputs) else SIZES[:1]
        program = Program(self.inputs, (), ())
        names = [value.name for value in self.inputs]
        self.values = [dict(zip(names, program.arguments(size), strict=True)) for size in self.sizes]
        self.names, self.module = namespace(PYTHONS), torch.nn.Module()

    def _input(self, name: str) -> Input:
        draw = self.draw
        if self.quantized:
            return Input(name, draw.choice(((2, 8), (1, 3, 6, 6), (2, 4, 8))), "float32", draw.randrange(1000))
        dtype = draw.choice((*_FLOATS, "float32", "float32", *_INTEGERS, "bool"))
        shape = draw.choice(((3, 4), (4,), (2, 3, 4), (1, 4), (3, 1), (2, 1, 6), (), (1, 2, 4, 4), (6, 2)))
        if shape and draw.random() < _VARIES:
            at = draw.randrange(len(shape))
            shape = (*shape[:at], DYNAMIC, *shape[at + 1 :])
        return Input(name, shape, dtype, draw.randrange(1000))

    def program(self, length: int) -> Program:
        for _ in range(ATTEMPTS):
            if len(self.calls) >= length:
                break
            call, table = self._filled()
            if self._take(call, table in (WRITES, BUFFERS)) and table is BUFFERS:
                self._take(Call(f"self.s{len(self.calls) - 1}.clone()", f"v{len(self.calls)}"), False)
        made = [call.makes for call in self.calls if call.makes]
        chosen = self.draw.sample(made, min(len(made), self.draw.randint(1, 4)))
        last = made[-1:] or [self.inputs[0].name]
        return Program(self.inputs, tuple(self.calls), tuple(dict.fromkeys([*chosen, *last])), self.quantized)

    def _filled(self) -> tuple[Call | None, Sequence[Any]]:
        """A row with its fields filled in, None where there is no value of the dtype; and the table that it is from."""
        table = self._table()
        row = self.draw.choice(table)
        made, text = row if isinstance(row, tuple) else ("", row)
        fields = self._fields(f"{text} {made}")
        if fields is None:
            return None, table
        name, state = f"v{len(self.calls)}", f"s{len(self.calls)}"
        text, made = (part.format_map(fields | {"s": state}) for part in (text, made))
        if table is BUFFERS:
            return Call(text, state=f"self.register_buffer({state!r}, {made})"), table
        return Call(text, "" if table is WRITES else name, f"self.{state} = {made}" if made else ""), table

    def _table(self) -> Sequence[Any]:
        tables = _QUANTIZED_TABLES if self.quantized else _TABLES
        return self.draw.choices([table for _, table in tables], [weight for weight, _ in tables])[0]

    def _fields(self, text: str) -> dict[str, str] | None:
        names = dict.fromkeys(field for _, field, _, _ in string.Formatter().parse(text) if field and field != "s")
        fields: dict[str, str] = {}
        first: Tensor | None = None
        for field in sorted(names, key=lambda field: field.rstrip("2") not in _VALUES):
            kind = field.rstrip("2")
            if kind in _VALUES:
                # late values more often, so that programs are deep
                fits = [name for name, value in self.values[0].items() if _VALUES[kind](value)]
                if not fits:
                    return None
                fields[field] = fits[max(self.draw.randrange(len(fits)) for _ in range(2))]
                first = self.values[0][fields[field]] if first is None else first
            else:
                fields[field] = _OTHERS[kind](self.draw, torch.zeros(2, 3) if first is None else first)
        return fields

    def _take(self, call: Call | None, writes: bool) -> bool:
        """Take the call if eager torch does, for each size, and its value is worth going on with."""
        if call is None:
            return False
        # together, so that views stay views of what they are views of
        values = deepcopy(self.values) if writes else [dict(known) for known in self.values]
        module = deepcopy(self.module) if call.state else self.module
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("error")
                if call.state:
                    exec(call.state, self.names | {"self": module})
                    module.eval().requires_grad_(False)
                for known in values:
                    names = self.names | {"self": module} | known
                    exec(call.statement, names)
                    if call.makes:
                        known[call.makes] = names[call.makes]
                    if not all(_is_worth(value) for value in (known.values() if writes else [known[call.makes]])):
                        return False
        except Exception:  # eager torch's no
            return False
        self.calls.append(call)
        self.values, self.module = values, module
        return True


_VALUES: Final[dict[str, Callable[[Tensor], bool]]] = {
    **dict.fromkeys("abc", lambda value: True),
    "v": lambda value: not _overlaps(value),
    "f": lambda value: value.is_floating_point(),
    "i": lambda value: not value.is_floating_point() and value.dtype != torch.bool,
    "m": lambda value: value.dtype == torch.bool,
    "d": lambda value: _memory(value).is_contiguous() and _memory(value).dtype == value.dtype,
}
"""Fields that are names of values, and what these are; a 2 behind one asks for another of the kind."""


def _memory(value: Tensor) -> Tensor:
    """What it is a view of. Where that is not contiguous as_strided is refused: how it lies only torch's fake tensors
    say, and not always rightly (`running._Layouts`)."""
    return value if value._base is None else value._base


def _overlaps(value: Tensor) -> bool:
    """Whether it shows some element several times: torch leaves open what a write into it does."""
    spread = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True)) + 1
    return (
        value.numel() > 1
        and torch.arange(spread).as_strided(value.shape, value.stride()).unique().numel() < value.numel()
    )


def _dim(draw: random.Random, value: Tensor) -> str:
    return str(draw.randrange(-value.dim(), value.dim()) if value.dim() else 0)


def _order(draw: random.Random, value: Tensor) -> str:
    return str(tuple(draw.sample(range(value.dim()), value.dim())))


def _shape(draw: random.Random, value: Tensor) -> str:
    """A factorization of the elements, with -1 for one factor."""
    left, sizes = value.numel(), []
    while left > 1 and len(sizes) < 4:
        factor = draw.choice([n for n in range(1, left + 1) if left % n == 0])
        sizes.append(factor)
        left //= factor
    sizes.append(left)
    sizes[draw.randrange(len(sizes))] = -1
    return str(tuple(sizes))


def _index(draw: random.Random, value: Tensor) -> str:
    parts = ("0", "-1", ":", "1:", ":2", "::2", "None", "...", "1", "-2:", "1:3", ":-1")
    chosen = draw.choices(parts, k=draw.randint(1, max(1, value.dim())))
    return ", ".join(part for i, part in enumerate(chosen) if part != "..." or "..." not in chosen[:i])


_OTHERS: Final[dict[str, Callable[[random.Random, Tensor], str]]] = {
    "number": lambda draw, value: draw.choice(("2", "-1", "0.5", "3", "-0.25", "1", "0", "True")),
    "divisor": lambda draw, value: draw.choice(("2", "3", "-2", "1.5")),
    "low": lambda draw, value: draw.choice(("-1", "0", "-0.5")),
    "high": lambda draw, value: draw.choice(("1", "2", "0.75")),
    "dtype": lambda draw, value: draw.choice((*_FLOATS, *_INTEGERS) if not value.is_floating_point() else _FLOATS),
    "integer": lambda draw, value: draw.choice(_INTEGERS[:4]),
    "body": lambda draw, value: draw.choice(BODY),
    "last": lambda draw, value: str(value.shape[-1] if value.dim() else 1),
    "channels": lambda draw, value: str(value.shape[1] if value.dim() > 1 else 1),
    "dim": _dim,
    "order": _order,
    "shape": _shape,
    "index": _index,
}
"""The other fields, from the first value of the call."""


def _is_worth(value: object) -> bool:
    """Whether a value is a tensor that a program may have, not too large, and half of it numbers."""
    if not isinstance(value, Tensor) or value.is_complex() or value.numel() > LARGEST or value.dim() > 5:
        return False
    finite = value.isfinite()
    largest = value[finite].abs().max() if value.is_floating_point() and finite.any() else 0
    return 2 * int(finite.sum()) >= value.numel() and bool(largest <= 1e4)
