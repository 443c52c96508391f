"""A zip from anyone -> its members: an ETRecord, what `exir.save` wrote, what `torch.save` wrote.

All three are written without compression, so what is read is never more than the file is long: another zip is refused,
and so is one that has a name twice, says more than it holds, or names a place outside itself.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import IO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from delegraph.errors import ETRecordError

__all__ = ["read_zip_members"]

MOST: int = 100_000
"""Members of a file; a program has four, and a state dict one for each weight."""


def read_zip_members(file: bytes | str | os.PathLike[str] | IO[bytes], where: str) -> dict[str, bytes]:
    """The bytes of each member of a zip without compression, by its name. `where` says in a message which file it is.

    Raises `ETRecordError` for anything but a zip as these packages write it, `OSError` for a path that has no file.
    """
    data = file if isinstance(file, bytes) else _bytes(file)
    try:
        with ZipFile(io.BytesIO(data)) as archive:
            _check(archive.infolist(), len(data))
            return {info.filename: archive.read(info) for info in archive.infolist()}
    except (BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise ETRecordError(f"{where}: {error}; have whoever made the file write it again") from error


def _bytes(file: str | os.PathLike[str] | IO[bytes]) -> bytes:
    if isinstance(file, str | os.PathLike):
        return Path(file).read_bytes()
    if file.seekable():  # as `zipfile` does: who has just written the file stands at its end
        file.seek(0)
    return file.read()


def _check(members: list[ZipInfo], size: int) -> None:
    """Raise `BadZipFile` unless all of the members can be read, each once, from so many bytes."""
    names = {info.filename for info in members}
    if len(names) < len(members) or len(members) > MOST:
        raise BadZipFile(f"{len(members)} members with {len(names)} names; at most {MOST:,}, each once")
    if sum(info.file_size for info in members) > size:
        raise BadZipFile(f"its members are longer than its {size:,} bytes")
    for info in members:
        reason = _fault(info)
        if reason:
            raise BadZipFile(f"member {info.filename!r} at byte {info.header_offset}: {reason}")


def _fault(info: ZipInfo) -> str:
    if info.orig_filename != info.filename or not {"", ".", ".."}.isdisjoint(info.filename.split("/")):
        return "no name of a file in it"
    if info.compress_type != ZIP_STORED or info.compress_size != info.file_size:
        return "compressed, which no ETRecord is"
    return "encrypted" if info.flag_bits & 1 else ""
