"""Functions that plug-ins of Delegraph 0.1's first weeks call, over what has their place now; each goes in API 2.0.

pack_blob, unpack_blob     `BlobFormat` packs, and checks what it unpacks
blob_compatibility         `BackendInterface.check`, as it is without an override
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces.backend import Compatibility, Verdict
from delegraph.interfaces.blob import BlobFormat
from delegraph.program.dtypes import numpy_dtype, scalar_type
from delegraph.program.schema import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delegraph.interfaces.stamp import BlobStamp

__all__ = ["blob_compatibility", "pack_blob", "unpack_blob"]

_FORMAT: Final = BlobFormat("", "delegraph", (1,))


def pack_blob(head: Any, arrays: Iterable[NDArray[Any]] = ()) -> bytes:
    """The blob of a `head`, anything that JSON has, and arrays of any shape and dtype of torch's."""
    stored = [array.astype(array.dtype.newbyteorder("<"), "C", copy=False) for array in arrays]
    described = [[array.dtype.name, list(array.shape)] for array in stored]
    return _FORMAT.pack([head, described], {str(number): array.tobytes() for number, array in enumerate(stored)})


def unpack_blob(blob: Buffer) -> tuple[Any, list[NDArray[Any]]]:
    """The head and the arrays, read-only views, of a blob of `pack_blob`. Raises `DelegateInvalidCompatibility` for any
    other."""
    import numpy as np

    content = _FORMAT.unpack(blob)
    try:
        head, described = content.header
        arrays = [
            np.frombuffer(content.read(str(number)), numpy_dtype(scalar_type(dtype))).reshape(shape)
            for number, (dtype, shape) in enumerate(described)
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise DelegateInvalidCompatibility(f"the blob is damaged, or somebody else's: {error}") from error
    return head, arrays


def blob_compatibility(stamp: BlobStamp | None, readable: Collection[int], distribution: str) -> Compatibility:
    """The answer of `check` where `readable` are the versions of blobs that `distribution` reads."""
    if stamp is None or stamp.blob_version in readable:
        return Compatibility(Verdict.OK)
    newest = max(readable)
    if stamp.blob_version > newest:
        told = f"{stamp}; blob version {newest} is read here: install a newer release of {distribution}"
        return Compatibility(Verdict.REFUSE, told)
    return Compatibility(Verdict.RECOMPILE, f"{stamp}; blob version {newest} is needed: lower the model again")
