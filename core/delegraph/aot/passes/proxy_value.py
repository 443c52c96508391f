"""The arguments of an `ExportPass`'s methods: values on their way from the old graph to the new, and metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import torch
from torch.fx import Node, Proxy

from delegraph.errors import LoweringError

__all__ = ["PROTECTED_KEYS", "NodeMetadata", "ProxyValue"]

PROTECTED_KEYS: Final = frozenset({"val", "stack_trace", "nn_module_stack", "debug_handle", "tensor_meta"})
"""Metadata that says where a node comes from and what it gives: a pass passes it on and does not invent it."""


class NodeMetadata:
    """A copy of a node's `meta`, to be given to the nodes that take its place."""

    def __init__(self, data: Mapping[str, object]) -> None:
        self.data: dict[str, Any] = dict(data)

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __setitem__(self, key: str, value: object) -> None:
        if key in PROTECTED_KEYS:
            raise LoweringError(
                f"could not override node key: {key}; nodes that take another's place keep it, and those that do not"
                " get a `NodeMetadata({…})` of their own"
            )
        self.data[key] = value

    def __contains__(self, key: str) -> bool:
        return key in self.data

    def copy(self) -> NodeMetadata:
        """Another with the same entries."""
        return NodeMetadata(self.data)


class ProxyValue:
    """A value of the graph that is being made: `data` is what it is (a fake tensor, a symbol), `node` gives it."""

    def __init__(self, data: Any, proxy: Proxy | Node) -> None:
        self.data = data
        self.proxy_or_node = proxy

    @property
    def node(self) -> Node:
        """The node of the new graph."""
        return self.proxy_or_node if isinstance(self.proxy_or_node, Node) else self.proxy_or_node.node

    @property
    def proxy(self) -> Proxy:
        """The node's proxy, by which it becomes an argument."""
        if isinstance(self.proxy_or_node, Node):
            raise LoweringError("a constant of the graph has no proxy of its own", node=self.proxy_or_node.name)
        return self.proxy_or_node

    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return isinstance(self.data, torch.Tensor)

    def to_tensor(self) -> torch.Tensor:
        """`data`, which is a tensor."""
        if not self.is_tensor():
            raise LoweringError(f"{type(self.data).__name__} is not a tensor", node=self.node.name)
        return cast(torch.Tensor, self.data)

    def __iter__(self) -> Iterator[object]:
        return iter(self.data)

    def __bool__(self) -> bool:
        return bool(self._number("used in boolean context"))

    def __int__(self) -> int:
        return int(self._number("converted to int"))

    def __float__(self) -> float:
        return float(self._number("converted to float"))

    def __index__(self) -> int:
        return int(self._number("used in index context"))

    def _number(self, use: str) -> Any:
        """`data`; not where it is known at run time only: the program would be right for one size alone."""
        if isinstance(self.data, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise LoweringError(f"ProxyValue with the symbol {self.data} cannot be {use}", node=self.node.name)
        return self.data
