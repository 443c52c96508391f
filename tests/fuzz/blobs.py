"""Blobs of backends -> what is read of them before an engine gets anything: that of `cpu` alone is here in each run.

A blob of another kind is described, its graph written anew with its weights, and changed as its backend changes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from delegraph.interfaces import BackendInitContext, BlobFormat
from delegraph_cpu.blob import FORMAT as CPU
from delegraph_cpu.runtime.backend import CpuBackend
from delegraph_cpu.runtime.held_state import initial_value
from delegraph_cpu.runtime.stored import with_weights
from delegraph_mnn.blob import FORMAT as MNN
from delegraph_mnn.blob import unpack as unpack_mnn
from delegraph_mnn.runtime.backend import MnnBackend
from delegraph_mnn.runtime.float_weights import with_float_weights
from delegraph_mnn.runtime.tracing import with_negated
from delegraph_providers.blob import format_of, unpack
from delegraph_providers.context_model import context_model
from delegraph_providers.graph_blob import unpack_graph
from delegraph_providers.providers import QNN, WEBGPU
from delegraph_providers.runtime.binary_backend import QnnBackend
from delegraph_providers.runtime.graph_backend import WebGpuBackend

__all__ = ["format_of_blob", "read_blob"]


def _on_cpu(data: bytes) -> None:
    CpuBackend().init(BackendInitContext("forward"), data, [])


def _on_webgpu(data: bytes) -> None:
    backend, blob = WebGpuBackend(), unpack_graph(data, WEBGPU)
    backend.describe(data, [], {})
    backend.engine_files("model", data, {})
    for state in blob.states:
        initial_value(state, blob)


def _on_mnn(data: bytes) -> None:
    backend = MnnBackend()
    backend.describe(data, [], {})
    backend.engine_files("model", data, {})
    blob, weights = with_weights(unpack_mnn(data), {})
    with_negated(blob.graph)
    with_float_weights(blob.graph, weights)


def _on_qnn(data: bytes) -> None:
    QnnBackend().describe(data, [], {})
    context_model(unpack(data, QNN), QNN.ep_name)


_KINDS: Final[dict[str, tuple[BlobFormat, Callable[[bytes], None]]]] = {
    form.backend_id: (form, read)
    for form, read in (
        (CPU, _on_cpu),
        (format_of(WEBGPU), _on_webgpu),
        (format_of(QNN), _on_qnn),
        (MNN, _on_mnn),
    )
}
_BACKEND: Final = re.compile(rb'DLGBLOB.{9}\{"backend":"(\w+)"', re.S)


def format_of_blob(data: bytes) -> BlobFormat:
    """The format that a blob says it has; the cpu backend's where it does not tell."""
    return _kind(data)[0]


def read_blob(data: bytes) -> None:
    """Read a blob as its backend does. Raises what that raises."""
    _kind(data)[1](data)


def _kind(data: bytes) -> tuple[BlobFormat, Callable[[bytes], None]]:
    told = _BACKEND.match(data)
    return _KINDS.get(told[1].decode() if told else CPU.backend_id, _KINDS[CPU.backend_id])
