"""A blob -> what is in it, so far as it tells: one compiled binary, and the nodes of which its provider made it."""

from __future__ import annotations

from collections.abc import Sequence

from delegraph.interfaces import BlobTensor, CompileSpec, DelegateDescription, DelegateNode, DescribedTensor
from delegraph_providers.blob import Blob

__all__ = ["described"]


def described(blob: Blob, compile_specs: Sequence[CompileSpec]) -> DelegateDescription:
    """The nodes that were compiled; of an older blob one, the binary."""
    inputs, outputs = tuple(map(_argument, blob.inputs)), tuple(map(_argument, blob.outputs))
    options = {spec.key: bytes(spec.value).decode(errors="replace") for spec in compile_specs}
    nodes = tuple(DelegateNode(node.name, node.operator, node.inputs, debug_id=node.name) for node in blob.nodes)
    return DelegateDescription(
        nodes=nodes or (DelegateNode("binary", "EPContext", blob.read, outputs),),
        inputs=inputs,
        outputs=outputs,
        options={"provider": blob.provider, "sdk": blob.sdk, **options},
        parts={"binary": memoryview(blob.binary).nbytes},
    )


def _argument(tensor: BlobTensor) -> DescribedTensor:
    return DescribedTensor(tensor.name, tensor.dtype, tensor.shape)
