"""A delegate's blob, where a provider compiles at load: header, ONNX graph, weights, as in `delegraph_cpu.blob`, whose
records these are. Written by `aot`, read by `runtime`."""

from __future__ import annotations

from delegraph.interfaces import Buffer
from delegraph.lazy_dataclass import dataclass
from delegraph_cpu.blob import Blob, unpack_as
from delegraph_providers.blob import format_of
from delegraph_providers.providers import Provider

__all__ = ["GraphBlob", "unpack_graph"]


@dataclass(frozen=True, slots=True)
class GraphBlob(Blob):
    """A blob's content. `onnxruntime` is the version of the provider that was asked, or says that none was; `on_host`
    are the names of the nodes that compute sizes and places, which the CPU computes in every provider."""

    on_host: tuple[str, ...] = ()


def unpack_graph(processed: Buffer, provider: Provider) -> GraphBlob:
    """The content of a blob. Raises `DelegateInvalidCompatibility` for one that is foreign, newer or damaged."""
    return unpack_as(GraphBlob, processed, format_of(provider))
