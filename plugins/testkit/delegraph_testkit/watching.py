"""A backend -> the same backend, watched: outputs are poisoned before `execute` and inputs cannot be written.

An output that keeps some of the poison was not written. Inputs are read-only while `execute` runs, and are compared
with what they held, for an engine that is handed an address does not ask NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from delegraph.interfaces import (
    Availability,
    BackendInitContext,
    BackendInterface,
    BlobStamp,
    Buffer,
    Compatibility,
    CompileSpec,
    Device,
    DeviceAllocator,
)
from delegraph_testkit.arrays import Array
from delegraph_testkit.bench import digest

__all__ = ["WatchedBackend"]


class WatchedBackend(BackendInterface):
    """Stands before `backend`. `outputs` is how many outputs a delegate has, by the digest of its blob; `poison` is the
    byte that outputs are filled with. `bind` is never used, so that every run comes by."""

    def __init__(self, backend: BackendInterface, outputs: Mapping[str, int], poison: int = 0xA5) -> None:
        self._backend = backend
        self._outputs = outputs
        self._poison = poison
        self.keeps_processed = backend.keeps_processed  # type: ignore[misc]
        self.executed = 0

    def is_available(self) -> Availability | bool:
        return self._backend.is_available()

    def check(self, stamp: BlobStamp | None) -> Compatibility:
        return self._backend.check(stamp)

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> Any:
        count = self._outputs.get(digest(processed))
        return self._backend.init(context, processed, compile_specs), count

    def execute(self, context: Any, handle: Any, args: Sequence[Any]) -> None:
        delegate, count = handle
        count = 1 if count is None else count
        split = len(args) - count
        arrays = [array for array in args[:split] if isinstance(array, np.ndarray)]
        outs = [out for out in args[split:] if not any(np.may_share_memory(out, array) for array in arrays)]
        for out in outs:  # one that shares memory with an input is that input, updated in place
            fill(out, self._poison)
        if len(outs) < count:
            arrays = []
        before = [array.tobytes() for array in arrays]
        with read_only(arrays):
            self._backend.execute(context, delegate, args)
        for position, (array, content) in enumerate(zip(arrays, before, strict=True)):
            assert array.tobytes() == content, f"`execute` wrote into its input {position}, which is read-only"
        self.executed += 1

    def num_outputs(self, handle: Any) -> int | None:
        return self._backend.num_outputs(handle[0])

    def device_allocator(self, device: Device) -> DeviceAllocator | None:
        return self._backend.device_allocator(device)

    def cancel(self, handle: Any, requested: bool) -> None:
        self._backend.cancel(handle[0], requested)

    def destroy(self, handle: Any) -> None:
        self._backend.destroy(handle[0])


def fill(array: Any, byte: int) -> None:
    """Set every byte of an array's elements."""
    if isinstance(array, np.ndarray) and array.size:
        array[...] = np.full(array.dtype.itemsize, byte, np.uint8).view(array.dtype)[0]


@contextmanager
def read_only(arrays: Sequence[Array]) -> Iterator[None]:
    """Take away the right to write for the length of a `with` block."""
    writable = [array for array in arrays if array.flags.writeable]
    for array in writable:
        array.flags.writeable = False
    try:
        yield
    finally:
        for array in writable:
            array.flags.writeable = True
