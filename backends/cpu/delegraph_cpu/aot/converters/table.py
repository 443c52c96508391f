"""What a converter is, and the table that the family modules fill: operator -> converter."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import torch
from torch.fx import Node

from delegraph.aot import schema_arguments
from delegraph_cpu.aot.converters.empty_results import gives_nothing, is_empty, nothing
from delegraph_cpu.aot.converters.widening import convert_widened
from delegraph_cpu.aot.dtypes import COMPLEX, FLOATS, HALVES, NARROW, ONNX_TYPES
from delegraph_cpu.aot.graph_builder import Converted, GraphBuilder

__all__ = [
    "COMPLEX_CONVERTERS",
    "CONVERTERS",
    "Check",
    "Convert",
    "Converter",
    "aten",
    "convert_named",
    "convert_with",
    "converter_of",
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
    decompose the operator. What gives no elements is taken whatever it is; an operator that `takes_empty` is also taken
    where only some of its operands have none.
    """

    function: Convert
    dtypes: frozenset[torch.dtype] = FLOATS
    check: Check | None = None
    keep: bool = False
    takes_empty: bool = False

    def support(self, node: Node) -> str | None:
        """None if `node` can be converted, else why not."""
        if gives_nothing(node):
            return _check_dtypes(node, frozenset(ONNX_TYPES) | COMPLEX.keys())
        return _check_dtypes(node, self.dtypes) or _check_sizes(node, self.takes_empty) or self._check(node)

    def _check(self, node: Node) -> str | None:
        return self.check(node, *schema_arguments(node)) if self.check is not None else None

    def convert(self, builder: GraphBuilder, node: Node) -> Converted:
        """Add `node` to the graph; it must be supported."""
        if gives_nothing(node):
            return nothing(builder, node)
        if any(tensor.dtype in NARROW - self.dtypes for tensor in tensors_of(node)):
            return convert_widened(builder, node, self._convert)
        return self._convert(builder, node)

    def _convert(self, builder: GraphBuilder, node: Node) -> Converted:
        return self.function(builder, node, *schema_arguments(node))


CONVERTERS: Final[dict[Callable[..., Any], Converter]] = {}
"""Filled by the family modules; import it from `delegraph_cpu.aot.converters`, which imports them all."""

NAMED: Final[dict[str, Converter]] = {}
"""Those of operators that are known by name."""


def convert_with(
    operators: str | Iterable[Callable[..., Any]],
    *,
    dtypes: frozenset[torch.dtype] = FLOATS,
    check: Check | None = None,
    keep: bool = False,
    takes_empty: bool = False,
) -> Callable[[_F], _F]:
    """Put the decorated function into the table for `operators`: names of aten overloads, or the callables."""

    def register(function: _F) -> _F:
        targets = [aten(name) for name in operators.split()] if isinstance(operators, str) else operators
        for target in targets:
            assert target not in CONVERTERS, f"{target} has two converters"
            CONVERTERS[target] = Converter(function, dtypes, check, keep, takes_empty)
        return function

    return register


def convert_named(
    *names: str, dtypes: frozenset[torch.dtype] = FLOATS, check: Check | None = None
) -> Callable[[_F], _F]:
    """As `convert_with`, for operators by the names of their schemas: they may be those of a library that is not
    loaded."""

    def register(function: _F) -> _F:
        NAMED.update(dict.fromkeys(names, Converter(function, dtypes, check)))
        return function

    return register


COMPLEX_CONVERTERS: Final[dict[Callable[..., Any], Converter]] = {}
"""Those of operators on complex tensors."""


def converter_of(node: Node) -> Converter | None:
    """The row for `node`, if there is one."""
    if any(tensor.dtype in COMPLEX for tensor in tensors_of(node)):
        return COMPLEX_CONVERTERS.get(node.target)  # type: ignore[arg-type]
    found = CONVERTERS.get(node.target)  # type: ignore[arg-type]
    schema = getattr(node.target, "_schema", None)
    return NAMED.get(schema.name) if found is None and schema is not None else found


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
    return torch.int32 if dtype in NARROW else torch.float32 if dtype in HALVES else dtype


def _check_dtypes(node: Node, dtypes: frozenset[torch.dtype]) -> str | None:
    for tensor in tensors_of(node):
        if _admitted_as(tensor.dtype) not in dtypes and tensor.dtype not in dtypes:
            known = tensor.dtype in ONNX_TYPES or tensor.dtype in COMPLEX
            return f"dtype {tensor.dtype} is not supported {'by this operator' if known else 'by this backend'}"
    return None


def _check_sizes(node: Node, takes_empty: bool) -> str | None:
    """A result that is not empty is made of operands that are not, unless the operator is one that joins them."""
    operands = (operand.meta.get("val") for operand in node.all_input_nodes)
    empty = any(isinstance(operand, torch.Tensor) and is_empty(operand) for operand in operands)
    return "a tensor is empty" if empty and not takes_empty else None
