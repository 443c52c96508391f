"""Nodes that a backend compiled into its instructions -> `PreprocessResult.debug_handle_map`, checked as it grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import Node

from delegraph.errors import LoweringError

__all__ = ["DelegateMappingBuilder"]


class DelegateMappingBuilder:
    """Collects which debug handles stand behind each of a backend's own instructions (ExecuTorch
    `exir/backend/utils.py`): what a profiler needs to show a delegate's times at the model's lines.

    With `generated_identifiers` the instructions are numbered from 0, else the backend names them, by numbers or text.
    """

    def __init__(self, generated_identifiers: bool = False) -> None:
        self._generated = generated_identifiers
        self._handles: dict[Any, tuple[int, ...]] = {}

    def get_delegate_mapping(self) -> dict[int, tuple[int, ...]] | dict[str, tuple[int, ...]]:
        """Identifier -> debug handles, sorted."""
        return dict(self._handles)

    def insert_delegate_mapping_entry(
        self,
        nodes: Node | Sequence[Node] | None = None,
        handles: int | Sequence[int | None] | None = None,
        identifier: int | str | None = None,
    ) -> int | str:
        """Add an instruction that was made of `nodes`, or of nodes with these debug handles; its identifier.

        Nodes without a handle are skipped. Raises `LoweringError` where none has one, where not exactly one of
        `nodes` and `handles` is given, and for an identifier that is there already, is missing, or is generated.
        """
        if (nodes is None) == (handles is None):
            raise LoweringError("a delegate mapping entry takes either nodes or handles: give one of the two")
        if nodes is not None:
            sources = [nodes] if isinstance(nodes, Node) else nodes
            candidates = {node.meta.get("debug_handle") for node in sources}
        else:
            candidates = set(handles) if isinstance(handles, Sequence) else {handles}
        known = tuple(sorted(handle for handle in candidates if handle is not None))
        if not known:
            raise LoweringError("a delegate mapping entry needs a debug handle, and none of its nodes has one")
        identifier = self._identifier(identifier)
        self._handles[identifier] = known
        return identifier

    def _identifier(self, identifier: int | str | None) -> int | str:
        if self._generated:
            if identifier is not None:
                raise LoweringError(f"identifiers are generated here; {identifier!r} cannot be given")
            return len(self._handles)
        if identifier is None:
            raise LoweringError(
                "a delegate mapping entry needs an identifier: give one, or DelegateMappingBuilder(True) generates them"
            )
        if identifier in self._handles:
            raise LoweringError(f"the identifier {identifier!r} is in the delegate mapping already")
        return identifier
