"""A partition's edge program -> the blob that `delegraph_providers.runtime` executes: compiled for the named device."""

from __future__ import annotations

from typing import ClassVar

import onnx
from torch.export import ExportedProgram

from delegraph.errors import PreprocessError
from delegraph.interfaces import BackendDetails, CompileSpec, PreprocessResult
from delegraph_providers.aot.asking import converted, model_bytes
from delegraph_providers.aot.compiling import compiled
from delegraph_providers.blob import BLOB_VERSION, Blob, pack
from delegraph_providers.engine import ProviderFailed, version_of
from delegraph_providers.options import QnnOptions
from delegraph_providers.providers import QNN

__all__ = ["QnnLowering"]


class QnnLowering(BackendDetails):
    """Compiles partitions for Qualcomm's HTP; the backend id is `QnnProvider`."""

    blob_version: ClassVar[int] = BLOB_VERSION

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Convert and compile the partition. The same partition may give another binary: the provider's compiler is
        not deterministic.

        Raises `UnsupportedOperator` for a node that the partitioner should not have claimed, `PreprocessError` if the
        provider does not take all of the graph, and `NotSupported` if it is not installed.
        """
        model = converted(edge_program)
        context = _compiled(model_bytes(model), QnnOptions.of_compile_specs(compile_specs))
        settings = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in context.attribute}
        blob = Blob(
            version_of(QNN),
            settings.get("ep_sdk_version", b"").decode(),
            model.inputs,
            model.outputs,
            tuple(context.input),
            tuple(context.output),
            settings["ep_cache_context"],
        )
        lost = sorted({tensor.name for tensor in model.outputs} - {*blob.written})
        if lost:
            raise PreprocessError(f"{blob.provider} takes {', '.join(lost)} for constant, and gives no such outputs")
        return PreprocessResult(pack(blob))


def _compiled(graph: bytes, options: QnnOptions) -> onnx.NodeProto:
    """The node that holds the binary which the provider makes of a graph."""
    try:
        made = compiled(graph, options)
    except ProviderFailed as error:
        raise PreprocessError(f"{version_of(QNN)} does not compile the partition: {error}") from error
    if made.left or len(made.parts) != 1:
        left = ", ".join(sorted(node.op_type for node in made.left)) or "nothing"
        raise PreprocessError(
            f"{version_of(QNN)} does not take the partition whole: {len(made.parts)} parts, and {left} left"
        )
    return made.parts[0]
