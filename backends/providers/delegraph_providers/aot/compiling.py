"""An ONNX graph -> what the provider makes of it: compiled binaries, and the nodes that it leaves.

onnxruntime writes a model with a node `EPContext` in the place of each part that the provider takes, and the nodes that
it leaves as they are (its `docs/execution-providers/EP-Context-Design.md`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from delegraph_providers.engine import session
from delegraph_providers.providers import Provider

__all__ = ["Compiled", "compiled"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """The parts that are compiled, and the nodes that are left, whose values have the names that they had."""

    parts: tuple[onnx.NodeProto, ...]
    left: tuple[onnx.NodeProto, ...]


def compiled(provider: Provider, graph: bytes, options: Mapping[str, str]) -> Compiled:
    """The graph of these bytes, compiled; `options` are the provider's. Raises `NotSupported` where there is no
    provider, and `ProviderFailed`."""
    with tempfile.TemporaryDirectory(prefix="delegraph-providers-") as folder:
        path = Path(folder, "context.onnx")
        entries = {"ep.context_enable": "1", "ep.context_embed_mode": "1", "ep.context_file_path": str(path)}
        session(provider, graph, options, entries)
        model = onnx.load(path) if path.exists() else onnx.load_from_string(graph)  # nothing was taken
    nodes = list(model.graph.node)
    return Compiled(
        tuple(node for node in nodes if node.op_type == "EPContext"),
        tuple(node for node in nodes if node.op_type != "EPContext"),
    )
