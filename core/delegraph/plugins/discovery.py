"""Installed distributions -> offers: one scan of all entry points, which imports none of them.

All copies of a distribution's metadata on `sys.path` are read, also those that `entry_points()` would hide behind a
stale one, and an offer repeated by the same distribution with the same value counts once. Which offers take part
is the user's choice, by environment variables:

    DELEGRAPH_PLUGINS=a,b           only these (Delegraph's own distribution always takes part)
    DELEGRAPH_DISABLE_PLUGINS=a,b   all but these
    DELEGRAPH_PREFER=backends:Npu=acme-npu,…   which distribution is meant where two offer one name

A plug-in is named by its entry point (`npu`, or `partitioners:npu`) or by its distribution (`acme-npu`). A name that
nothing installed bears is an error, so that a typing mistake does not pass for a choice.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from delegraph.errors import PluginNotFound
from delegraph.lazy_dataclass import dataclass, field
from delegraph.plugins.hookspecs import GROUPS, group_named

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = [
    "Offer",
    "Selection",
    "did_you_mean",
    "full_id",
    "normalised",
    "scan",
    "scan_undeduplicated",
    "scan_unknown_groups",
]

HOST = "delegraph"
"""The distribution of the core: the host itself, which no allow-list can leave out."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One entry point of one installed distribution.

    `value` is `module:attribute`; `location` is the directory that holds the distribution's metadata.
    """

    group: str
    name: str
    value: str
    distribution: str
    version: str
    location: str = field(default="", compare=False)

    @property
    def id(self) -> str:
        """`backends:Npu`: how messages and environment variables name it."""
        return f"{self.group.removeprefix('delegraph.')}:{self.name}"

    @property
    def provider(self) -> str:
        """`acme-npu 0.1.0`."""
        return f"{self.distribution} {self.version}"

    def __str__(self) -> str:
        return f"{self.id} of {self.provider} ({self.value})"

    def is_called(self, name: str) -> bool:
        """Whether `name` is this entry point's name or id, or its distribution's name."""
        return name in (self.name, self.id, f"delegraph.{self.id}") or normalised(name) == normalised(self.distribution)


def scan(path: Sequence[str] | None = None) -> tuple[Offer, ...]:
    """Every offer of the distributions on `path` (`sys.path`), sorted; copies of one offer count once."""
    first: dict[tuple[str, ...], Offer] = {}
    for offer in scan_undeduplicated(path):
        first.setdefault((offer.group, offer.name, normalised(offer.distribution), offer.value), offer)
    return tuple(sorted(first.values(), key=lambda o: (list(GROUPS).index(o.group), o.name, o.distribution)))


def scan_undeduplicated(path: Sequence[str] | None = None) -> Iterator[Offer]:
    """Every offer in the order of `path`, those of stale and duplicate metadata included."""
    return (offer for offer in _entry_points_of_ours(path) if offer.group in GROUPS)


def scan_unknown_groups(path: Sequence[str] | None = None) -> tuple[Offer, ...]:
    """Entry points in groups that are named like ours and are none, `delegraph.backend`: nobody ever asks for them."""
    strange = (offer for offer in _entry_points_of_ours(path) if offer.group not in GROUPS)
    return tuple(dict.fromkeys(offer for offer in strange if offer.group.startswith("delegraph.")))


def _entry_points_of_ours(path: Sequence[str] | None) -> Iterator[Offer]:
    for location, read in _distributions(path):
        text = read("entry_points.txt")
        if text and "delegraph." in text:  # parse the few that concern us: this is on the way to the first inference
            name, version = _identity(read("METADATA") or read("PKG-INFO") or "")
            for group, entry, value in _entry_points(text):
                yield Offer(group, entry, value, name, version, location)


_Reader: TypeAlias = Callable[[str], str | None]
"""The name of a file among a distribution's metadata -> its text; None if there is no such file."""


def _distributions(path: Sequence[str] | None) -> Iterator[tuple[str, _Reader]]:
    """The directory of each distribution's metadata, and a reader of it.

    Folders are read here, to the same result as by `importlib.metadata`, whose import takes longer than that does. It
    is asked for the rest: archives, and what finders other than Python's own know.
    """
    for folder in sys.path if path is None else path:
        try:
            names = os.listdir(folder or ".")
        except NotADirectoryError:
            yield from _told(_of_archive(folder))
        except OSError:  # sys.path may name what is not there
            continue
        else:
            for name in names:
                if name.lower().endswith((".dist-info", ".egg-info")) or name == "EGG-INFO":
                    yield folder, partial(_read, os.path.join(folder, name))
    for finder in sys.meta_path if path is None else ():
        if hasattr(finder, "find_distributions") and finder.__module__ not in _FINDERS_OF_PATHS:
            yield from _told(finder.find_distributions())


_FINDERS_OF_PATHS: Final = ("_frozen_importlib_external", "importlib_metadata")
"""The modules of Python's own finder, and of the one that its backport puts in its place."""


def _of_archive(path: str) -> Iterable[Distribution]:
    from importlib import metadata

    return metadata.distributions(path=[path])


def _told(distributions: Iterable[Distribution]) -> Iterator[tuple[str, _Reader]]:
    for distribution in distributions:
        yield str(distribution.locate_file("")), distribution.read_text


def _read(folder: str, name: str) -> str | None:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None


def normalised(distribution: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _identity(metadata: str) -> tuple[str, str]:
    """Name and version from the headers of METADATA (core metadata specification), without the email parser."""
    headers = metadata.partition("\n\n")[0]
    fields = dict(line.partition(": ")[::2] for line in headers.splitlines() if not line[:1].isspace())
    return fields.get("Name", "unknown").strip(), fields.get("Version", "unknown").strip()


def _entry_points(text: str) -> Iterator[tuple[str, str, str]]:
    """(group, name, value) of each line of an entry_points.txt (entry points specification)."""
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield group, name.strip(), value.strip()


@dataclass(frozen=True, slots=True)
class Selection:
    """Which offers take part, and which distribution is meant where two offer one name."""

    allowed: frozenset[str] | None = None
    disabled: frozenset[str] = frozenset()
    prefer: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], prefer: Mapping[str, str] | None = None) -> Selection:
        """The selection by the environment variables; `prefer` adds to DELEGRAPH_PREFER and goes before it.

        Raises `PluginNotFound` if a preference is malformed or names a group that does not exist.
        """
        allowed = frozenset(_items(environ.get("DELEGRAPH_PLUGINS", "")))
        disabled = frozenset(_items(environ.get("DELEGRAPH_DISABLE_PLUGINS", "")))
        choices = {**dict(map(_choice, _items(environ.get("DELEGRAPH_PREFER", "")))), **(prefer or {})}
        return cls(allowed or None, disabled, {full_id(name): distribution for name, distribution in choices.items()})

    def admits(self, offer: Offer) -> bool:
        """Whether `offer` takes part."""
        if any(offer.is_called(name) for name in self.disabled):
            return False
        host = normalised(offer.distribution) == HOST
        return host or self.allowed is None or any(offer.is_called(name) for name in self.allowed)

    def unknown(self, offers: Iterable[Offer]) -> list[str]:
        """A message for each name in this selection that no offer bears, with the closest that one does."""
        offers = tuple(offers)
        known = sorted({text for offer in offers for text in (offer.name, offer.id, offer.distribution)})
        named = dict.fromkeys(self.allowed or (), "DELEGRAPH_PLUGINS")
        named |= dict.fromkeys(self.disabled, "DELEGRAPH_DISABLE_PLUGINS")
        problems = [
            f"{variable} names {name!r}, which nothing installed is called{did_you_mean(name, known)}"
            for name, variable in sorted(named.items())
            if not any(offer.is_called(name) for offer in offers)
        ]
        for name, distribution in sorted(self.prefer.items()):
            providers = sorted({offer.distribution for offer in offers if f"delegraph.{offer.id}" == name})
            if normalised(distribution) not in map(normalised, providers):
                offered = ", ".join(providers) or "nothing installed"
                problems.append(f"{distribution!r} is preferred for {name}, but it is offered by {offered}")
        return problems

    def apply(self, offers: Iterable[Offer]) -> tuple[Offer, ...]:
        """The offers that take part. Raises `PluginNotFound` if the selection names a missing one."""
        offers = tuple(offers)
        if problems := self.unknown(offers):
            raise PluginNotFound("; ".join(problems) + "; see `delegraph plugins list`")
        return tuple(offer for offer in offers if self.admits(offer))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or "" if nothing known is close."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def full_id(name: str) -> str:
    """`delegraph.backends:Npu` for `backends:Npu`. Raises `PluginNotFound` if there is no such group."""
    group, _, entry = name.partition(":")
    return f"{group_named(group).name}:{entry}"


def _items(text: str) -> list[str]:
    return list(filter(None, map(str.strip, text.split(","))))


def _choice(item: str) -> tuple[str, str]:
    name, _, distribution = map(str.strip, item.rpartition("="))
    if not name or not distribution:
        raise PluginNotFound(f"DELEGRAPH_PREFER holds {item!r}; it has to read group:name=distribution")
    return name, distribution
