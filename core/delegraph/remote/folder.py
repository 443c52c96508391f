"""`delegraph` on a device: words and files from here -> its exit code, what it printed, and files that come back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from delegraph.errors import DeviceError
from delegraph.remote.device import Device

__all__ = ["DeviceFolder", "Done"]

_PATIENCE = 60.0
"""Seconds that a connection may take beside the command's own."""


@dataclass(frozen=True, slots=True)
class Done:
    """The exit code of a command, None if it took too long, and what it printed."""

    code: int | None
    stdout: str
    stderr: str


@dataclass(slots=True)
class DeviceFolder:
    """A temporary folder on a device, as a context manager: files that commands read are sent there, each once."""

    device: Device
    _folder: str = ""
    _sent: dict[Path, str] = field(default_factory=dict)

    def __enter__(self) -> DeviceFolder:
        self._folder = self.device.ask("make_folder")["folder"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.device.ask("remove_folder", folder=self._folder)
        except DeviceError:
            if error is None:
                raise

    def run(self, words: Sequence[str | Path], writes: Sequence[Path] = (), timeout: float | None = None) -> Done:
        """Run `python -m delegraph WORDS` there. A path among the words is a file here: one of `writes` comes back, if
        the command made it; any other is sent. `timeout` is the command's, in seconds.

        Raises `DeviceError`, and `OSError` for files that cannot be read or written here.
        """
        outputs = {f"out/{number}/{path.name}": path for number, path in enumerate(writes)}
        made = {path: name for name, path in outputs.items()}
        new = [word for word in words if isinstance(word, Path) and word not in made and word not in self._sent]
        names = {path: f"in/{len(self._sent) + number}/{path.name}" for number, path in enumerate(dict.fromkeys(new))}
        known = {**self._sent, **names, **made}
        told = self.device.ask(
            "run",
            list(names),
            outputs,
            patience=None if timeout is None else timeout + _PATIENCE,
            folder=self._folder,
            names=list(names.values()),
            words=[known[word] if isinstance(word, Path) else word for word in words],
            writes=list(outputs),
            timeout=timeout,
        )
        self._sent |= names
        return Done(told["code"], told["stdout"], self._named_as_here(told["stderr"], known))

    def _named_as_here(self, text: str, names: dict[Path, str]) -> str:
        """A message with the names that files have here."""
        for path, name in names.items():
            text = text.replace(name, os.fspath(path))
        return text
