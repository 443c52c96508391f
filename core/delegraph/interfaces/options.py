"""The options beside a plug-in's name -> a mapping that knows which of them were read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self, TypeAlias

from delegraph.errors import InvalidArgument
from delegraph.lazy_dataclass import fields, replace

__all__ = ["DelegateOptions", "OptionValue", "Options"]

OptionValue: TypeAlias = bool | int | str
"""The value of an option that a caller gives a delegate, as ExecuTorch has it."""


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


class DelegateOptions:
    """The choices that a caller has for a delegate: the base of a frozen dataclass, whose fields are the options."""

    __slots__ = ()

    backend_id: ClassVar[str]

    @classmethod
    def names(cls) -> frozenset[str]:
        """Those of the options."""
        return frozenset(field.name for field in fields(cls))  # type: ignore[arg-type]  # a dataclass

    def updated(self, changes: Mapping[str, OptionValue]) -> Self:
        """These options with `changes`. Raises `InvalidArgument` for an unknown option, or an unfit value."""
        self._refuse_unknown(changes)
        return replace(self, **changes)  # type: ignore[type-var]

    def chosen(self, names: Iterable[str]) -> dict[str, OptionValue]:
        """The values of options. Raises `InvalidArgument` for names that none has."""
        self._refuse_unknown(names)
        return {name: getattr(self, name) for name in names}

    def _refuse_unknown(self, names: Iterable[str]) -> None:
        unknown = sorted(set(names) - self.names())
        if unknown:
            raise InvalidArgument(
                f"{self.backend_id} has no option {', '.join(unknown)}; it has {', '.join(sorted(self.names()))}"
            )
