"""A file and how far it is trusted -> the source that its program is read from, checked as far as the caller asks.

    integrity     the flatbuffer, and data up to 64 KiB      larger data
    "full"        when the file is opened                    when the file is opened
    "lazy"        when they are read, at load                mapped or in memory: before the first run of a method that
                                                             uses them; else when they are read, at load
    "none"        never                                      never

With trusted keys a file is checked in full, and its signature, before anything in it is looked at. A file without a
seal (ExecuTorch's) is checked by none of them, and refused where keys are given.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from delegraph.errors import (
    InvalidArgument,
    InvalidExternalData,
    InvalidProgram,
    InvalidType,
    RuntimeFault,
    UntrustedFile,
    restated,
)
from delegraph.interfaces.data_loader import DataLoader
from delegraph.lazy_dataclass import dataclass
from delegraph.program.files.checked_source import CheckedSource
from delegraph.program.files.seal import read_seal
from delegraph.program.files.segment_source import SegmentSource
from delegraph.program.schema import Buffer, ExecutionPlan, Program, Tensor, TensorDataLocation
from delegraph.runtime.data_loader import BufferDataLoader, MmapDataLoader

if TYPE_CHECKING:
    from delegraph.program.flat_tensor import ExternalData
    from delegraph.program.signatures import Key

__all__ = [
    "UNSIGNED",
    "IntegrityMode",
    "NotedData",
    "OpenedFile",
    "Trust",
    "data_of",
    "naming_file",
    "open_content",
    "open_file",
]

IntegrityMode: TypeAlias = Literal["full", "lazy", "none"]

_IN_PLACE: Final = (BufferDataLoader, MmapDataLoader)
"""The loaders that give the same memory each time, without reading it."""


@dataclass(frozen=True, slots=True)
class Trust:
    """When a file's checksums are checked, and the public keys, 32 bytes each, of which one must have signed it."""

    integrity: IntegrityMode = "lazy"
    keys: tuple[bytes, ...] | None = None

    @staticmethod
    def of(integrity: IntegrityMode, trusted_keys: Iterable[Key] | None) -> Trust:
        """The caller's choice. Raises `InvalidArgument`, and as `public_keys`."""
        if integrity not in get_args(IntegrityMode):
            modes = ", ".join(map(repr, get_args(IntegrityMode)))
            raise InvalidArgument(f"integrity={integrity!r}; it is one of {modes}")
        if trusted_keys is None:
            return Trust(integrity)
        if integrity == "none":
            raise InvalidArgument('integrity="none" with trusted_keys: a signature is of all bytes; leave one out')
        if isinstance(trusted_keys, str | bytes | os.PathLike):
            raise InvalidType(f"trusted_keys is {trusted_keys!r:.80}; give a list, [{trusted_keys!r:.80}]")
        from delegraph.program.signatures import public_keys

        return Trust(integrity, public_keys(trusted_keys))

    @property
    def is_in_full(self) -> bool:
        """Whether all of a file is checked when it is opened."""
        return self.integrity == "full" or self.keys is not None


UNSIGNED: Final = Trust()
"""The default: damage is found, and nobody has to have signed a file."""


def open_content(loader: DataLoader, trust: Trust, error: type[RuntimeFault]) -> SegmentSource:
    """The file behind `loader`, without its seal. Raises `error` for damage, and `UntrustedFile`."""
    if trust.integrity == "none":
        return loader
    seal = read_seal(loader, error)
    if trust.is_in_full and type(loader) not in _IN_PLACE:
        # read once: another read might give other bytes than those that were checked
        loader = BufferDataLoader(loader.load(0, loader.size()))
    source: SegmentSource = loader
    if seal is not None:
        source = checked = CheckedSource(loader, seal, type(loader) in _IN_PLACE, error)
        if trust.is_in_full:
            checked.check_all()
    if trust.keys is not None:
        from delegraph.program.signatures import require_signature

        require_signature(source, seal, trust.keys)
    return source


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file under its name in messages; `content` is what is read of it, checked."""

    name: str
    loader: DataLoader
    content: SegmentSource


def open_file(name: str, loader: DataLoader, trust: Trust, error: type[RuntimeFault]) -> OpenedFile:
    """As `open_content`, whose errors say the file's name."""
    with naming_file(name):
        return OpenedFile(name, loader, open_content(loader, trust, error))


def data_of(
    plan: ExecutionPlan, program: Program, external: Mapping[str, ExternalData], keys: Collection[str] | None = None
) -> Iterator[Buffer]:
    """The data that a method uses: constants, initial content, delegates' blobs, and of what delegates may share those
    of `keys` (None: all)."""
    for value in plan.values:
        if not isinstance(value, Tensor):
            continue
        info = value.extra_tensor_info
        if info is not None and info.location is TensorDataLocation.EXTERNAL:
            name = info.fully_qualified_name or ""
            yield external[name].data if name in external else program.named_data[name].data
        elif value.data_buffer_idx:
            yield (program.constants if value.allocation_info is None else program.mutable_data)[value.data_buffer_idx]
    for delegate in plan.delegates:
        yield program.delegate_data[delegate.processed]
    if plan.delegates:
        for entries in (program.named_data, external):
            yield from (entry.data for key, entry in entries.items() if keys is None or key in keys)


class NotedData(Mapping[str, Buffer]):
    """Named data by key, and the keys that were asked for: of a program whose delegates have alternatives, nobody reads
    what belongs to those that are not taken."""

    def __init__(self, data: Mapping[str, Buffer]) -> None:
        self._data = data
        self.keys_read: set[str] = set()

    def __getitem__(self, key: str) -> Buffer:
        data = self._data[key]
        self.keys_read.add(key)
        return data

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, key: object) -> bool:
        return key in self._data


@contextmanager
def naming_file(name: str) -> Iterator[None]:
    """Within, an error about a file's bytes says which file it is; with "", for bytes without a name, it does not."""
    try:
        yield
    except (InvalidProgram, InvalidExternalData, UntrustedFile) as error:
        if not name:
            raise
        raise restated(error, f"{name}: {error}") from error
