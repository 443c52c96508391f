"""A backend's part of the user's cache of compiled code; the cache itself is imported where there is one."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from delegraph.interfaces.cache_variables import FOLDER_VARIABLE
from delegraph.lazy_dataclass import dataclass, field, replace
from delegraph.program.schema import Buffer

if TYPE_CHECKING:
    from pathlib import Path

    from delegraph.interfaces.compilation_cache import CacheChoice, CompilationCache

__all__ = ["BackendCache"]


def cache_of(choice: CacheChoice) -> CompilationCache | None:
    """See `CompilationCache.of`."""
    if choice is False or (choice is None and FOLDER_VARIABLE not in os.environ):
        return None
    from delegraph.interfaces.compilation_cache import CompilationCache

    return CompilationCache.of(choice)


def sha256(data: Buffer) -> bytes:
    """The digest of `data`."""
    import hashlib

    return hashlib.sha256(data).digest()


@dataclass(frozen=True, slots=True)
class BackendCache:
    """A backend's part of the user's cache, if there is one: `BackendInitContext.cache`."""

    backend_id: str
    cache: CompilationCache | None = None
    digest: Callable[[Buffer], bytes] = field(default=sha256, compare=False)
    """SHA-256 of a piece of the blob: a program's own hashes what lies in its file once, for all of its methods."""

    def kept(
        self, write: Callable[[Path], object], *, driver: str, blob: Iterable[Buffer], options: str = ""
    ) -> Path | None:
        """A folder with what `write(folder)` once wrote: on an earlier load, perhaps by another process, or now.

            def save(folder):
                (folder / "code").write_bytes(engine.compile(processed))

            folder = context.cache.kept(save, driver=f"engine {engine.version}", blob=[processed], options="O3")
            code = engine.compile(processed) if folder is None else (folder / "code").read_bytes()

        `driver` are the names and versions of all that compiles, the backend's own included; `blob` is all that is
        compiled, of which each byte is hashed; `options` are all others that the result depends on. The host is in the
        key without that (`host_description`). Read the files, or map them; don't write to them.

        None: the user asked for no cache, or it cannot be kept, of which a warning tells; compile without it. What
        `write` raises as a `RuntimeFault` or `OSError` is such a case; the compiler will say it again.
        """
        if self.cache is None:
            return None
        from delegraph.interfaces.host import host_description

        key = {"backend": self.backend_id, "driver": driver, "options": options, "host": host_description()}
        return self.cache.kept({**key, "blob": sha256(b"".join(map(self.digest, blob))).hex()}, write)

    def discard(self, folder: Path) -> None:
        """Remove an entry that the engine does not take after all, so that the next load makes it anew."""
        from delegraph.interfaces.compilation_cache import remove

        remove(folder)

    def in_folder(self, folder: str) -> BackendCache:
        """This backend's part of the cache in another folder: for an option `cache` that a backend had of its own, of
        which a `FutureWarning` says what takes its place."""
        told = f"the option cache of {self.backend_id} is deprecated: use delegraph.load(…, cache={folder!r})"
        warnings.warn(told, FutureWarning, stacklevel=3)
        return replace(self, cache=cache_of(folder))


NO_CACHE: Final = BackendCache("")
"""That of a load for which nobody asked for one."""
