"""Operator -> how a backend converts it, and when it can: the table that decides what the backend takes.

    TABLE = ConverterTable("Calculator", dtypes={torch.float32})

    @TABLE.converts(aten.add.Tensor, check=lambda node, a, b, alpha: None if alpha == 1 else f"alpha is {alpha}")
    def add(program, node, a, b, alpha):
        return program.emit("+", a, b)

    CapabilityBasedPartitioner("Calculator", TABLE.support, keep_whole=TABLE.kept_whole)

A node is supported exactly when its operator has a row whose dtypes and check admit it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch
from torch._ops import OpOverload
from torch.fx import Node

from delegraph.aot.authoring.node_values import tensors_of
from delegraph.aot.graph.mutating_calls import called_operator
from delegraph.aot.graph.schema_binding import schema_arguments
from delegraph.aot.graph.source_location import user_location
from delegraph.aot.graph.support import Check, checked_support
from delegraph.errors import UnsupportedOperator

__all__ = ["Converter", "ConverterTable"]

Target: TypeAlias = "OpOverload | Callable[..., object] | str"
"""An operator; a Python function that nodes call; or the name of an operator that need not be registered in torch yet,
`quantized_decomposed::quantize_per_tensor`, as `operator_name` gives it."""

_F = TypeVar("_F", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Converter:
    """A row: `convert(converter, node, *schema arguments)` gives what stands for the node's result (a sequence of them
    for several results); every tensor of the node is of `dtypes`, if there are any, and `check` looks at the rest."""

    convert: Callable[..., Any]
    dtypes: Collection[torch.dtype] | None = None
    check: Check | None = None

    def support(self, node: Node, backend: str) -> str | None:
        """None if `node` can be converted, else why not."""
        reason = None if self.dtypes is None else _check_dtypes(node, self.dtypes)
        if reason is None and self.check is not None:
            reason = checked_support(self.check, backend, node, *schema_arguments(node))
        return reason

    def __call__(self, converter: Any, node: Node) -> Any:
        """Convert `node`, which is supported."""
        return self.convert(converter, node, *schema_arguments(node))


class ConverterTable(Mapping[object, Converter]):
    """Rows by operator. `backend` is named in messages; `dtypes` are those of rows that don't name their own (None:
    all)."""

    def __init__(self, backend: str, *, dtypes: Collection[torch.dtype] | None = None) -> None:
        self.backend = backend
        self.dtypes = dtypes
        self.kept_whole: list[OpOverload] = []
        """The operators that lowering is asked not to decompose."""
        self._rows: dict[object, Converter] = {}

    def converts(
        self,
        *operators: Target,
        dtypes: Collection[torch.dtype] | None = None,
        check: Check | None = None,
        keep_whole: bool = False,
    ) -> Callable[[_F], _F]:
        """Decorate the function that converts calls of `operators`: `(converter, node, *schema arguments)` -> value(s).

        `dtypes` are admitted for every tensor of the node; `check(node, *schema arguments)` says why a node cannot be
        converted, or None. `keep_whole`: composite operators are not to be decomposed before the backend sees them.
        Raises `ValueError` for an operator that has a row already.
        """

        def register(function: _F) -> _F:
            for target in operators:
                self.add(
                    target, Converter(function, self.dtypes if dtypes is None else dtypes, check), keep_whole=keep_whole
                )
            return function

        return register

    def add(self, target: Target, row: Converter, *, keep_whole: bool = False) -> None:
        """Put `row` into the table; see `converts`."""
        if target in self._rows:
            raise ValueError(f"{self.backend} has two converters for {target}")
        self._rows[target] = row
        if keep_whole and isinstance(target, OpOverload):
            self.kept_whole.append(target)

    def row(self, node: Node) -> Converter | None:
        """The row for `node`, if there is one. An operator that changes its arguments is called on copies, and its row
        is found by its name; the row gives the results, and behind them the changed arguments."""
        row, called = self._rows.get(node.target), called_operator(node)
        return self._rows.get(called.name()) if row is None and called is not None else row

    def support(self, node: Node) -> str | None:
        """None if `node` can be converted, else why not: what partitioners ask."""
        if node.target is operator.getitem:
            return self._support_element(node)
        row = self.row(node)
        return f"no converter for {node.target}" if row is None else row.support(node, self.backend)

    def convert(self, converter: object, node: Node) -> Any:
        """The value that the row for `node` gives for it; `converter` is handed on. Raises as `required`."""
        return self.required(node)(converter, node)

    def required(self, node: Node) -> Converter:
        """The row for `node`. Raises `UnsupportedOperator` for one that `support` declines."""
        reason = self.support(node)
        if reason is not None:
            raise UnsupportedOperator(
                f"{self.backend} cannot convert {node.target}: {reason}", node=node.name, location=user_location(node)
            )
        row = self.row(node)
        assert row is not None
        return row

    def __getitem__(self, target: object) -> Converter:
        return self._rows[target]

    def __iter__(self) -> Iterator[object]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def _support_element(self, node: Node) -> str | None:
        source = node.args[0]
        assert isinstance(source, Node)
        reason = self.support(source) if source.op == "call_function" else "its source is not an operator"
        return None if reason is None else f"{source.name} is left: {reason}"


def _check_dtypes(node: Node, dtypes: Collection[torch.dtype]) -> str | None:
    for tensor in tensors_of(node):
        if tensor.dtype not in dtypes:
            known = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
            return f"{str(tensor.dtype).removeprefix('torch.')} tensors: this operator is for {known}"
    return None
