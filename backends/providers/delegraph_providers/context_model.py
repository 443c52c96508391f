"""A compiled binary, inputs and outputs -> the ONNX model of one node that holds it.

The node is `EPContext` of `com.microsoft` (onnxruntime's `docs/ContribOperators.md`): its binary is opaque to
onnxruntime, and given to the provider. The message is written by hand, since onnxruntime writes none and a device has
no other library for it: fields and numbers are those of `onnx.proto`, the encoding is protobuf.dev/programming-guides/
encoding's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from delegraph.interfaces import BlobTensor, Buffer
from delegraph_providers.blob import DTYPES, Blob

__all__ = ["context_model", "one_node_model"]

_IR_VERSION, _OPSET = 10, 20
_DOMAIN: Final = "com.microsoft"
_INT, _STRING = 2, 3
"""`AttributeProto.AttributeType`."""


def context_model(blob: Blob, source: str) -> bytes:
    """The bytes of the model; `source` is the name of the provider that compiled the blob's binary."""
    named = {tensor.name: tensor for tensor in (*blob.inputs, *blob.outputs)}
    attributes = (
        _text(1, "main_context") + _number(3, 1) + _number(20, _INT),
        _text(1, "embed_mode") + _number(3, 1) + _number(20, _INT),
        _text(1, "ep_cache_context") + _bytes(4, blob.binary) + _number(20, _STRING),
        _text(1, "ep_sdk_version") + _text(4, blob.sdk) + _number(20, _STRING),
        _text(1, "partition_name") + _text(4, "delegate") + _number(20, _STRING),
        _text(1, "source") + _text(4, source) + _number(20, _STRING),
    )
    inputs, outputs = ([named[name] for name in names] for names in (blob.read, blob.written))
    return one_node_model("EPContext", attributes, _DOMAIN, inputs, outputs)


def one_node_model(
    op_type: str,
    attributes: Iterable[bytes],
    domain: str,
    inputs: Sequence[BlobTensor],
    outputs: Sequence[BlobTensor],
) -> bytes:
    """The bytes of a model of one node; an input that it reads twice is an input of the model once."""
    node = b"".join(
        [
            *(_text(1, tensor.name) for tensor in inputs),
            *(_text(2, tensor.name) for tensor in outputs),
            _text(3, "delegate"),
            _text(4, op_type),
            *(_bytes(5, attribute) for attribute in attributes),
            _text(7, domain),
        ]
    )
    graph = _bytes(1, node) + _text(2, "delegate") + _values(11, dict.fromkeys(inputs)) + _values(12, outputs)
    opsets = _bytes(8, _number(2, _OPSET)) + _bytes(8, _text(1, _DOMAIN) + _number(2, 1))
    return _number(1, _IR_VERSION) + _bytes(7, graph) + opsets


def _values(field: int, tensors: Iterable[BlobTensor]) -> bytes:
    """A `ValueInfoProto` for each tensor."""
    written = b""
    for tensor in tensors:
        dims = b"".join(_bytes(1, _number(1, int(size))) for size in tensor.shape)
        kind = _bytes(1, _number(1, DTYPES[tensor.dtype]) + _bytes(2, dims))
        written += _bytes(field, _text(1, tensor.name) + _bytes(2, kind))
    return written


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())


def _bytes(field: int, content: Buffer) -> bytes:
    return b"".join((_varint(field << 3 | 2), _varint(memoryview(content).nbytes), content))


def _varint(value: int) -> bytes:
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])
