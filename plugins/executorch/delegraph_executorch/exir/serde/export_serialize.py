"""ExecuTorch's `executorch.exir.serde.export_serialize`: what a serialized program is in memory."""

from delegraph.aot import SerializedExportedProgram as SerializedArtifact

__all__ = ["SerializedArtifact"]
