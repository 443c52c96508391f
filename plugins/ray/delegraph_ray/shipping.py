"""A file that nodes do not share -> each node's disk, once.

here      the file's bytes in Ray's object store, with their digest
a node    a file of that digest in the node's cache, written whole or not at all; whoever needs it maps it
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import ray

from delegraph.errors import AccessFailed
from delegraph.runtime import FileDataLoader, MmapDataLoader

__all__ = ["FOLDER_VARIABLE", "Shipped", "files_shipped", "kept_file", "shipped"]

FOLDER_VARIABLE: Final = "DELEGRAPH_RAY_CACHE"
"""The environment variable with a node's folder for shipped files; the default lies below the system's for temporary
ones, and is the user's alone."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """A file in Ray's object store: send it to an actor, and ask it there for its `path`."""

    name: str
    digest: str
    reference: Any
    """The `ObjectRef` of its bytes."""

    def path(self) -> Path:
        """Where this node has the file: it is fetched the first time that somebody on the node asks.

        Raises `AccessFailed` where it cannot be written, or the folder is another user's.
        """
        return _kept(self.name, self.digest, lambda: ray.get(self.reference))


def shipped(path: str | os.PathLike[str]) -> Shipped:
    """A file, put into Ray's object store. Raises `AccessFailed` if it cannot be read."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise AccessFailed(f"{path}: cannot be read, to be shipped: {error.strerror}") from error
    reference = ray.put(np.frombuffer(content, np.uint8))  # an array is read where it lies in the store
    return Shipped(Path(path).name, _digest(content), reference)


def kept_file(content: bytes) -> Path:
    """Where this node has a file with this content: see `Shipped.path`."""
    return _kept("program.pte", _digest(content), lambda: content)


@contextmanager
def files_shipped() -> Iterator[None]:
    """As long as this lasts, the file of a program that is sent to another process of Ray goes along, once."""
    known: dict[str, Shipped] = {}

    def ship(loader: Any) -> Shipped:
        (path,) = loader.__reduce__()[1]
        if path not in known:
            known[path] = shipped(path)
        return known[path]

    for kind in (MmapDataLoader, FileDataLoader):
        ray.util.register_serializer(kind, serializer=ship, deserializer=lambda file: MmapDataLoader(file.path()))
    try:
        yield
    finally:
        for kind in (MmapDataLoader, FileDataLoader):
            ray.util.deregister_serializer(kind)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _kept(name: str, digest: str, content: Callable[[], Any]) -> Path:
    path = _folder() / f"{digest}{Path(name).suffix}"
    if not _is_whole(path, digest):
        _write(path, content())
    return path


def _folder() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else "user"
    folder = Path(os.environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir()) / f"delegraph-ray-{user}")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise AccessFailed(f"{folder}, {FOLDER_VARIABLE}: no folder for shipped files: {error.strerror}") from error
    if hasattr(os, "getuid") and folder.stat().st_uid != user:
        raise AccessFailed(f"{folder} is another user's: set {FOLDER_VARIABLE} to a folder for shipped files")
    return folder


def _is_whole(path: Path, digest: str) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest
    except OSError:
        return False


def _write(path: Path, content: Any) -> None:
    """Under another name first: others on the node may write the same."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
            try:
                file.write(memoryview(content))
            except BaseException:
                os.unlink(file.name)
                raise
        os.replace(file.name, path)
    except OSError as error:
        raise AccessFailed(f"{path}: the shipped file cannot be written: {error.strerror}") from error
