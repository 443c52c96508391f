"""The stamp that lowering puts on every delegate blob, and that a backend's `check` judges before `init`.

It travels as the compile spec `delegraph.stamp` (JSON), which ExecuTorch's runtime passes through unread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from delegraph.lazy_dataclass import dataclass, fields
from delegraph.program.schema import BackendDelegate, CompileSpec, Program
from delegraph.program.walk import delegates

STAMP_KEY: Final = "delegraph.stamp"


@dataclass(frozen=True, slots=True)
class BlobStamp:
    """Who made a blob. `blob_version` is the backend's own: its `BackendDetails.blob_version`. `variant` is the blob's
    name where the delegate has several; the backend gives it a meaning, such as the revision of the device."""

    backend: str
    distribution: str
    version: str
    blob_version: int
    variant: str = ""

    def to_compile_spec(self) -> CompileSpec:
        """The compile spec that carries this stamp."""
        said = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "variant" or self.variant}
        return CompileSpec(STAMP_KEY, json.dumps(said, sort_keys=True).encode())

    def __str__(self) -> str:
        variant = f" {self.variant!r}," if self.variant else ""
        return f"{self.backend} blob{variant} version {self.blob_version}, made by {self.distribution} {self.version}"


def read_stamp(compile_specs: Iterable[CompileSpec]) -> BlobStamp | None:
    """The stamp among `compile_specs`, or None if there is none or it cannot be read.

    It repeats the file's words: nobody has checked them, and nothing is to be installed because of them.
    """
    for spec in compile_specs:
        if spec.key == STAMP_KEY:
            return _parse(spec.value)
    return None


def stamps_by_backend(program: Program) -> dict[str, tuple[BlobStamp, ...]]:
    """The different stamps on each backend's blobs, by its id, as they come; none for blobs without a stamp."""
    return stamps_of(delegates(program))


def stamps_of(records: Iterable[BackendDelegate]) -> dict[str, tuple[BlobStamp, ...]]:
    """As `stamps_by_backend`, of these delegates."""
    by_backend: dict[str, dict[BlobStamp, None]] = {}
    for delegate in records:
        stamps = by_backend.setdefault(delegate.id, {})
        stamp = read_stamp(delegate.compile_specs)
        if stamp is not None:
            stamps[stamp] = None
    return {backend: tuple(stamps) for backend, stamps in by_backend.items()}


def _parse(value: bytes) -> BlobStamp | None:
    try:
        said = json.loads(value)
        said = {"variant": "", **said}
        stamp = BlobStamp(**{field.name: said[field.name] for field in fields(BlobStamp)})  # a later one may say more
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    texts = (stamp.backend, stamp.distribution, stamp.version, stamp.variant)
    if not all(isinstance(text, str) and text.isprintable() for text in texts) or type(stamp.blob_version) is not int:
        return None
    return stamp
