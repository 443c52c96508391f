"""What a user wrote beside a plug-in's name -> a mapping that knows which of it was looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["Options"]


class Options(Mapping[str, Any]):
    """Options by name, as plug-ins are given them. One that is never looked at is refused on the plug-in's behalf.

    To look one up, or to ask whether it is there, shows that the plug-in knows it; to go through all of them shows that
    it sees to those that it does not know itself.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._asked: dict[str, None] = {}

    def __getitem__(self, name: str) -> Any:
        self._asked[name] = None
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        self._asked |= dict.fromkeys(self._options)
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        return repr(self._options)

    @property
    def asked(self) -> tuple[str, ...]:
        """The names that were looked at, there or not."""
        return tuple(self._asked)

    @property
    def unread(self) -> tuple[str, ...]:
        """The options that nobody looked at."""
        return tuple(name for name in self._options if name not in self._asked)
