"""Random programs for hypothesis: a graph of a few nodes, each one call of torch on results of earlier ones.

A value is *exact* if every library must give the same bits for it: inputs are small dyadic fractions, and operators
that round once, or not at all, keep that. Operators that jump (comparisons, argmax, casts to integers) are only
drawn for exact values, and those that add or approximate at most twice in a row: what differs then is a fault, not
the order of additions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from plugins.aten.tests.random_nodes import ANY, FAMILIES, FLOATS, Draw, Family, Ref, Value

MOST = 1e4
"""Larger results are not drawn: overflow of a half depends on the order of additions."""

DEEPEST = 2
"""How many rounding operators may lie on a path."""


@dataclass(frozen=True, slots=True)
class Node:
    """One call. Arguments are `Ref`s, lists of them, and plain values."""

    target: Callable[..., torch.Tensor]
    args: tuple[Any, ...]

    def __call__(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        return self.target(*(_given(argument, values) for argument in self.args))

    @property
    def operands(self) -> list[int]:
        flat = [item for a in self.args for item in (a if isinstance(a, list) else [a])]
        return [item.index for item in flat if isinstance(item, Ref)]


def _given(argument: Any, values: Sequence[torch.Tensor]) -> Any:
    if isinstance(argument, list):
        return [_given(item, values) for item in argument]
    return values[argument.index] if isinstance(argument, Ref) else argument


@dataclass(frozen=True)
class Recipe:
    """A program: its inputs, and nodes whose values are numbered after them. Unused values are its outputs."""

    inputs: tuple[torch.Tensor, ...]
    nodes: tuple[Node, ...]

    def __repr__(self) -> str:
        lines = [f"v{i}: {t.dtype}{list(t.shape)} {t.stride()} = {t.tolist()}" for i, t in enumerate(self.inputs)]
        first = len(lines)
        lines += [f"v{first + i} = {node.target.__name__}{node.args}" for i, node in enumerate(self.nodes)]
        return "\n" + "\n".join(lines)

    def outputs(self) -> list[int]:
        """The values that no node takes, and no input: they are outputs."""
        used = {index for node in self.nodes for index in node.operands}
        first = len(self.inputs)
        return [index for index in range(first, first + len(self.nodes)) if index not in used]


class Program(torch.nn.Module):
    """A recipe as a model."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        values = list(inputs)
        for node in self.recipe.nodes:
            values.append(node(values))
        return [values[index] for index in self.recipe.outputs()]


def content(draw: Draw, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Quarters from -2 to 2, or integers from -3 (0 if unsigned) to 3."""
    seed = draw(st.integers(0, 2**16))
    numbers = torch.randint(0, 17, tuple(shape), generator=torch.Generator().manual_seed(seed))
    if dtype.is_floating_point:
        return ((numbers - 8) / 4).to(dtype)
    if dtype is torch.bool:
        return numbers % 2 == 0
    return (numbers % 4 if dtype is torch.uint8 else numbers % 7 - 3).to(dtype)


@st.composite
def inputs(draw: Draw) -> torch.Tensor:
    """A tensor of any rank up to 4, with sizes 0 to 4; images in either memory format."""
    if draw(st.booleans()):
        return content(draw, draw(st.lists(st.sampled_from((2, 3, 1, 4, 2, 3, 0)), max_size=4)), draw(_DTYPES))
    image = content(draw, [draw(st.integers(1, size)) for size in (2, 3, 4, 4)], draw(_DTYPES))
    return image.contiguous(memory_format=torch.channels_last) if draw(st.booleans()) else image


_DTYPES = st.sampled_from(ANY) | st.sampled_from(FLOATS)


def _companion(draw: Draw, first: torch.Tensor) -> torch.Tensor:
    """Something that broadcasts with `first`, or that it can be multiplied with."""
    if first.dim() and draw(st.booleans()):
        return content(draw, (first.shape[-1], draw(st.integers(1, 3))), first.dtype)
    shapes = (tuple(first.shape), tuple(first.shape[-1:]), ())
    return content(draw, draw(st.sampled_from(shapes)), draw(_DTYPES))


@st.composite
def recipes(draw: Draw, any_size: bool = False) -> Recipe:
    """A program of 3 to 12 nodes; with `any_size` one that fits any size of its inputs' first dimension."""
    if any_size:
        # a width of 3 would let rows meet columns, and export take them for one size
        width, dtypes = draw(st.sampled_from((1, 2, 4))), st.sampled_from(FLOATS)
        tensors = tuple(content(draw, (3, width), draw(dtypes)) for _ in range(2))
    else:
        first = draw(inputs())
        tensors = (first, _companion(draw, first), draw(inputs()))
    families = [family for family in FAMILIES if family.any_size] if any_size else FAMILIES
    values, nodes = [Value(tensor) for tensor in tensors], []
    num_nodes = draw(st.integers(3, 12))
    for turn in range(4 * num_nodes):
        # hypothesis likes to repeat a choice: the same choice in another turn is another family
        family = families[(draw(st.integers(0, len(families) - 1)) + 29 * turn) % len(families)]
        node = _node(draw, family, values, any_size)
        if node is not None:
            nodes.append(node[0])
            values.append(node[1])
        if len(nodes) == num_nodes:
            break
    return Recipe(tensors, tuple(nodes))


def _node(draw: Draw, family: Family, values: Sequence[Value], any_size: bool) -> tuple[Node, Value] | None:
    """A node of `family` and its value, or None if it does not fit what is there, or torch refuses it."""
    deepest = 0 if family.jumps else DEEPEST - family.rounds
    fits = [i for i, v in enumerate(values) if v.tensor.dtype in family.dtypes and v.depth <= deepest]
    if not fits:
        return None
    # the newest values first, so that programs are deep rather than wide
    first = fits[-1 - draw(st.integers(0, min(3, len(fits) - 1)))]
    arguments = family.arguments(draw, values[first].tensor, values)
    if arguments is None:
        return None
    node = Node(family.target, (Ref(first), *arguments))
    operands = [values[index] for index in node.operands]
    depth = max(value.depth for value in operands)
    compares = family.target in (torch.eq, torch.lt, torch.ge)
    if depth > (0 if compares or family.jumps else deepest):
        return None
    try:
        result = node([value.tensor for value in values])
    except (RuntimeError, IndexError, TypeError):
        return None
    if result.numel() > 2000 or result.dim() > 5 or (any_size and result.dim() and result.shape[0] != 3):
        return None
    if result.is_floating_point() and result.numel():
        if not bool(result.isfinite().all()) and (depth or family.rounds):
            return None
        if float(result.double().abs().nan_to_num(0, 0, 0).max()) > MOST:
            return None
    return node, Value(result, depth + family.rounds)
