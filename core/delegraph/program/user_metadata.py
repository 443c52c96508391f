"""bytes <-> the words of a user about a model: labels, author, licence; for which ExecuTorch's schema has no place.

A program carries it as named data under `USER_METADATA_KEY`, JSON that ExecuTorch ignores and no run reads:

    {"version": 1, "metadata": {"author": "Ada", "labels": ["cat", "dog"], "top1": 71.9}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from types import MappingProxyType
from typing import Final, TypeAlias, cast

from delegraph.errors import InvalidProgram
from delegraph.program.buffers import byte_view
from delegraph.program.schema import Buffer, Program

__all__ = [
    "MOST_NBYTES",
    "USER_METADATA_KEY",
    "MetadataValue",
    "UserMetadata",
    "metadata_fault",
    "metadata_text",
    "read_user_metadata",
    "user_metadata_of",
    "write_user_metadata",
]

USER_METADATA_KEY: Final = "delegraph.user_metadata"
VERSION: Final = 1
MOST_NBYTES: Final = 2**20
"""Of the JSON. The 21,841 labels of ImageNet-21k are some 400,000 bytes."""

_Scalar: TypeAlias = str | int | float | bool
MetadataValue: TypeAlias = "_Scalar | Sequence[_Scalar]"

UserMetadata: TypeAlias = "Mapping[str, MetadataValue]"
"""Texts, finite numbers, truth values, and lists of these (tuples, once they are read), by name."""

_NOTHING: Final[UserMetadata] = MappingProxyType({})


def metadata_fault(metadata: object) -> str:
    """Why `metadata` cannot stand in a program, and what can; "" if it can."""
    if not isinstance(metadata, Mapping):
        return f"metadata is {type(metadata).__name__}; it is a mapping of names: {{'author': 'Ada'}}"
    for name, value in metadata.items():
        if not isinstance(name, str) or not name:
            return f"metadata has an entry {name!r:.80}; a name is a text"
        for part in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(part, _Scalar) or (isinstance(part, float) and not isfinite(part)):
                shown = f"{part!r:.80}" if isinstance(part, float) else f"a {type(part).__name__}"
                return (
                    f"metadata[{name!r:.80}] is or has {shown}; a value is a text, a finite number, a truth value or a"
                    " list of these; write others as text: json.dumps(value)"
                )
    nbytes = len(write_user_metadata(metadata))
    if nbytes > MOST_NBYTES:
        return f"metadata has {nbytes:,} bytes, and a program takes {MOST_NBYTES:,}; keep long texts in files"
    return ""


def write_user_metadata(metadata: Mapping[str, object]) -> bytes:
    """The bytes that a program has under `USER_METADATA_KEY`. Equal metadata give equal bytes."""
    return json.dumps({"version": VERSION, "metadata": dict(metadata)}, separators=(",", ":")).encode()


def user_metadata_of(program: Program) -> UserMetadata:
    """The words about the model in `program`; {} where there are none. Raises `InvalidProgram` if damaged."""
    named = program.named_data.get(USER_METADATA_KEY)
    return _NOTHING if named is None else read_user_metadata(named.data)


def read_user_metadata(data: Buffer) -> UserMetadata:
    """The metadata. That of a later version is not read: none. Raises `InvalidProgram` if damaged."""
    try:
        view = byte_view(data)
        if view.nbytes > MOST_NBYTES:
            raise ValueError(f"it is more than {MOST_NBYTES} bytes long")
        content = json.loads(bytes(view))
        version, metadata = content["version"], content["metadata"]
        if type(version) is not int:
            raise TypeError("the version is no integer")
        if version > VERSION:
            return _NOTHING
        if fault := metadata_fault(metadata):
            raise ValueError(fault)
        return MappingProxyType({name: _frozen(value) for name, value in metadata.items()})
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidProgram(f"the named data {USER_METADATA_KEY!r} is damaged: {error!r:.200}") from error


def metadata_text(value: MetadataValue, most: int = 200) -> str:
    """A value for people, cut behind `most` characters: `cat, dog`; `cat, dog, ow… (1,000 values)`."""
    text = str(value) if isinstance(value, _Scalar) else ", ".join(map(str, value))
    if len(text) <= most:
        return text
    counted = f"{len(text):,} characters" if isinstance(value, _Scalar) else f"{len(value):,} values"
    return f"{text[:most]}… ({counted})"


def _frozen(value: object) -> MetadataValue:
    return tuple(value) if isinstance(value, list) else cast("MetadataValue", value)
