"""The operators that the NPU computes: a row for each, which quantizer, partitioner and compiler all read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, TypeAlias, TypeVar

import torch
from torch.fx import Node

from delegraph.aot import external_tag, schema_arguments
from delegraph_npu.aot.calls import is_dequantize, operator_name
from delegraph_npu.aot.ir import Laid

__all__ = ["OPERATORS", "Annotate", "Check", "Convert", "Row", "aten", "operator", "row_of", "unfit_sizes"]

Convert: TypeAlias = Callable[..., Laid]
"""`(folding, call, *arguments in the order of the schema)` -> the integers of the call's result."""

Check: TypeAlias = Callable[..., str | None]
"""`(node, *arguments)` -> None if the NPU computes `node`, else the reason."""

_F = TypeVar("_F", bound=Convert)


class Annotate(Enum):
    """The tensors whose ranges a quantizer needs."""

    LAYER = auto()
    """The first operand, the weight and the result; a normalization and a clamp behind it are part of it."""
    VALUES = auto()
    """Each operand and the result; a clamp behind it is part of it."""
    MOVES = auto()
    """The first operand alone: results are its integers."""


@dataclass(frozen=True, slots=True)
class Row:
    """The converter of an operator, and the conditions for it. `keep` are the overloads that must not be decomposed;
    `narrow` says why it has no int16, where that needs a reason."""

    convert: Convert
    annotate: Annotate
    check: Check | None
    keep: tuple[torch._ops.OpOverload, ...]
    dtypes: frozenset[torch.dtype]
    narrow: str | None = None

    def reason(self, node: Node) -> str | None:
        """None if the NPU computes `node` on quantized operands, else the reason."""
        outside = _external_constant(node) if self.annotate is Annotate.LAYER else None
        refused = outside or unfit_sizes(node)
        return refused or (self.check(node, *schema_arguments(node)) if self.check is not None else None)


OPERATORS: Final[dict[str, Row]] = {}
"""`operator_name` -> its row. Filled by the modules beside this one; import it from `delegraph_npu.aot.operators`."""


def operator(
    names: str,
    annotate: Annotate,
    check: Check | None = None,
    keep: str = "",
    int16: bool = False,
    narrow: str | None = None,
) -> Callable[[_F], _F]:
    """Put the decorated converter into the table for `names`; `keep` are overloads of aten, separated by blanks. Values
    are int8, and with `int16` also int16; `narrow` is the reason why not."""

    def register(convert: _F) -> _F:
        dtypes = frozenset({torch.int8, torch.int16} if int16 else {torch.int8})
        row = Row(convert, annotate, check, tuple(map(aten, keep.split())), dtypes, narrow)
        for name in names.split():
            assert name not in OPERATORS, f"{name} has two rows"
            OPERATORS[name] = row
        return convert

    return register


def aten(name: str) -> torch._ops.OpOverload:
    """The overload `aten.<name>`; without a dot, the default one."""
    packet, _, overload = name.partition(".")
    resolved: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return resolved


def row_of(node: Node) -> Row | None:
    """The row of the operator that `node` calls, if it has one."""
    return OPERATORS.get(operator_name(node))


def unfit_sizes(node: Node) -> str | None:
    """The reason why no operator of the NPU takes `node`: dynamic shapes, tensors of more than four dims or without
    elements."""
    values: list[Any] = [node.meta.get("val"), *(source.meta.get("val") for source in node.all_input_nodes)]
    for value in values:
        if not isinstance(value, torch.Tensor):
            continue
        if not all(isinstance(size, int) for size in value.shape):
            return "a dynamic shape: addresses are fixed when the NPU's commands are made"
        if value.dim() > 4:
            return f"a tensor of {value.dim()} dims: the NPU's have up to four"
        if value.numel() == 0:
            return "a tensor without elements"
    return None if isinstance(node.meta.get("val"), torch.Tensor) else "it gives several results"


def _external_constant(node: Node) -> str | None:
    """The reason why a layer whose weight or bias is to lie in a `.ptd` is left; None if it has none there."""
    read = [*node.all_input_nodes, *(s for n in node.all_input_nodes if is_dequantize(n) for s in n.all_input_nodes)]
    names = [constant.name for constant in read if external_tag(constant) is not None]
    return f"{names[0]} goes to a .ptd: the NPU's are compressed ahead of time, into the program" if names else None
