"""What a converter is, and the table that the family modules fill: operator -> converter."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import torch
from torch.fx import Node

from delegraph.aot import schema_arguments
from delegraph_cpu.aot.converters.widening import convert_widened
from delegraph_cpu.aot.dtypes import FLOATS, NARROW, ONNX_TYPES, computed_in
from delegraph_cpu.aot.graph_builder import Converted, GraphBuilder

__all__ = [
    "CONVERTERS",
    "Check",
    "Convert",
    "Converter",
    "aten",
    "convert_with",
    "only_first_result_used",
    "schema_arguments",
    "tensors_of",
    "used_results",
]

Convert: TypeAlias = Callable[..., Converted]
"""`(builder, node, *schema arguments)` -> the node's value(s). Arguments stand as in the node, defaults filled in."""

_F = TypeVar("_F", bound=Convert)

Check: TypeAlias = Callable[..., str | None]
"""`(node, *schema arguments)` -> None if it can be converted, else the reason."""


@dataclass(frozen=True, slots=True)
class Converter:
    """How one operator is written in ONNX, and when it can be.

    `dtypes` are admitted for every tensor of the node, halves with float32 and narrow integers with int32; `check`
    looks at the rest. `keep` asks edge lowering not to
    decompose the operator.
    """

    function: Convert
    dtypes: frozenset[torch.dtype] = FLOATS
    check: Check | None = None
    keep: bool = False

    def support(self, node: Node) -> str | None:
        """None if `node` can be converted, else why not."""
        return _check_tensors(node, self.dtypes) or (
            self.check(node, *schema_arguments(node)) if self.check is not None else None
        )

    def convert(self, builder: GraphBuilder, node: Node) -> Converted:
        """Add `node` to the graph; it must be supported."""
        if any(tensor.dtype in NARROW - self.dtypes for tensor in tensors_of(node)):
            return convert_widened(builder, node, self._convert)
        return self._convert(builder, node)

    def _convert(self, builder: GraphBuilder, node: Node) -> Converted:
        return self.function(builder, node, *schema_arguments(node))


CONVERTERS: Final[dict[Callable[..., Any], Converter]] = {}
"""Filled by the family modules; import it from `delegraph_cpu.aot.converters`, which imports them all."""


def convert_with(
    operators: str | Iterable[Callable[..., Any]],
    *,
    dtypes: frozenset[torch.dtype] = FLOATS,
    check: Check | None = None,
    keep: bool = False,
) -> Callable[[_F], _F]:
    """Put the decorated function into the table for `operators`: names of aten overloads, or the callables."""

    def register(function: _F) -> _F:
        targets = [aten(name) for name in operators.split()] if isinstance(operators, str) else operators
        for target in targets:
            assert target not in CONVERTERS, f"{target} has two converters"
            CONVERTERS[target] = Converter(function, dtypes, check, keep)
        return function

    return register


def aten(name: str) -> torch._ops.OpOverload:
    """The overload `aten.<name>`; without a dot, the default one."""
    packet, _, overload = name.partition(".")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return found


def tensors_of(node: Node) -> list[torch.Tensor]:
    """The (fake) tensors that go into and come out of `node`; of several results those that are used."""
    values = [source.meta.get("val") for source in node.all_input_nodes]
    results = node.meta.get("val")
    values += [results[i] for i in used_results(node)] if isinstance(results, tuple | list) else [results]
    return [value for value in values if isinstance(value, torch.Tensor)]


def only_first_result_used(node: Node) -> str | None:
    """For operators whose further results have no ONNX equivalent."""
    further = [index for index in used_results(node) if index > 0]
    return f"its results {further} are used" if further else None


def used_results(node: Node) -> list[int]:
    """Which results of a node with several are picked, in order."""
    picks = [user for user in node.users if user.target is operator.getitem and user.users]
    return sorted({index for pick in picks if isinstance(index := pick.args[1], int)})


def _admitted_as(dtype: torch.dtype) -> torch.dtype:
    return torch.int32 if dtype in NARROW else computed_in(dtype)


def _check_tensors(node: Node, dtypes: frozenset[torch.dtype]) -> str | None:
    for tensor in tensors_of(node):
        if _admitted_as(tensor.dtype) not in dtypes and tensor.dtype not in dtypes:
            known = tensor.dtype in ONNX_TYPES
            return f"dtype {tensor.dtype} is not supported {'by this operator' if known else 'by this backend'}"
        if any(isinstance(size, int) and size == 0 for size in tensor.shape):
            return "a tensor is empty"
    return None
