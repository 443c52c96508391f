"""GraphModule -> the same, buffers of some names marked: their first values go into the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delegraph_executorch.exir.pass_base import ExportPass, NodeMetadata, ProxyValue

__all__ = ["InitializedMutableBufferPass"]


class InitializedMutableBufferPass(ExportPass):
    """Sets `meta["et_init_buffer"]` on placeholders with one of `patterns` in their names.

    Delegraph keeps the first value of every mutable buffer in any case, so that nothing changes here; ExecuTorch drops
    those without the mark.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        super().__init__()
        self.patterns = patterns

    def placeholder(self, name: str, arg: Any, meta: NodeMetadata) -> ProxyValue:
        """The placeholder, marked."""
        if any(pattern in name for pattern in self.patterns):
            meta["et_init_buffer"] = True
        return super().placeholder(name, arg, meta)
