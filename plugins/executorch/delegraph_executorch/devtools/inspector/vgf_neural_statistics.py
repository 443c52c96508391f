"""What Arm's VGF backend says of a run, JSON with base64 in it -> dictionaries with the bytes.

The record is that of ExecuTorch's `backends/arm`, schema `executorch.vgf.neural_statistics`, version 1.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["parse_vgf_neural_statistics_delegate_metadata", "parse_vgf_neural_statistics_metadata"]

SCHEMA: Final = "executorch.vgf.neural_statistics"
SCHEMA_VERSION: Final = 1
BLOBS: Final = ("debug_database", "statistics_info", "statistics_memory")

Metadata = bytes | bytearray | str


def parse_vgf_neural_statistics_metadata(metadata: Metadata) -> dict[str, Any]:
    """One record; each blob of its segments has its bytes under `raw_data`. Raises `ValueError` if it is none."""
    record = json.loads(metadata)
    found = record.get("schema"), record.get("schema_version")
    if found[0] != SCHEMA:
        raise ValueError(f"Not VGF neural statistics metadata: {found[0]}")
    if found[1] != SCHEMA_VERSION:
        raise ValueError(f"Unsupported VGF neural statistics metadata schema version: {found[1]}")
    segments = [
        {key: _with_bytes(held) if key in BLOBS and isinstance(held, dict) else held for key, held in segment.items()}
        for segment in record.get("segments", [])
    ]
    return {**record, "segments": segments}


def parse_vgf_neural_statistics_delegate_metadata(delegate_metadata_list: Sequence[Any]) -> list[dict[str, Any]]:
    """The records among what backends said; what other backends said is passed over.

    Raises `ValueError` for what is a damaged record.
    """
    return [
        parse_vgf_neural_statistics_metadata(metadata)
        for metadata in delegate_metadata_list
        if isinstance(metadata, (bytes, bytearray, str)) and _is_record(metadata)
    ]


def _is_record(metadata: Metadata) -> bool:
    try:
        record = json.loads(metadata)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        if SCHEMA.encode() in (metadata.encode() if isinstance(metadata, str) else metadata):
            raise ValueError("Malformed VGF neural statistics delegate metadata") from error
        return False
    return isinstance(record, dict) and record.get("schema") == SCHEMA


def _with_bytes(blob: dict[str, Any]) -> dict[str, Any]:
    if not blob.get("available", False):
        return {"raw_data": b"", **blob}
    if blob.get("encoding") != "base64":
        raise ValueError(f"Unsupported VGF neural statistics blob encoding: {blob.get('encoding')}")
    try:
        return {**blob, "raw_data": base64.b64decode(blob.get("data", ""), validate=True)}
    except (binascii.Error, TypeError) as error:
        raise ValueError("Malformed base64 data in VGF neural statistics blob") from error
