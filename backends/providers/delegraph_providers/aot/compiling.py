"""An ONNX graph -> what the provider makes of it: compiled binaries, and the nodes that it leaves.

onnxruntime writes a model with a node `EPContext` in the place of each part that the provider takes, and the nodes that
it leaves as they are (its `docs/execution-providers/EP-Context-Design.md`).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import onnx

from delegraph_providers.engine import session
from delegraph_providers.options import QnnOptions
from delegraph_providers.providers import QNN

__all__ = ["Compiled", "compiled"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """The parts that are compiled, and the nodes that are left, whose values have the names that they had."""

    parts: tuple[onnx.NodeProto, ...]
    left: tuple[onnx.NodeProto, ...]


def compiled(graph: bytes, options: QnnOptions) -> Compiled:
    """The graph of these bytes, compiled. Raises `NotSupported` where there is no provider, and `ProviderFailed`."""
    with tempfile.TemporaryDirectory(prefix="delegraph-providers-") as folder:
        path = Path(folder, "context.onnx")
        entries = {"ep.context_enable": "1", "ep.context_embed_mode": "1", "ep.context_file_path": str(path)}
        session(QNN, graph, options.of_provider(), entries)
        model = onnx.load(path) if path.exists() else onnx.load_from_string(graph)  # nothing was taken
    nodes = list(model.graph.node)
    return Compiled(
        tuple(node for node in nodes if node.op_type == "EPContext"),
        tuple(node for node in nodes if node.op_type != "EPContext"),
    )
