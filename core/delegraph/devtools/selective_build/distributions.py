"""Modules -> the installed distributions that they are of, and what those declare: requirements, licences, platform."""

from __future__ import annotations

import importlib.metadata as metadata
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from delegraph.errors import PluginNotFound
from delegraph.plugins.discovery import HOST, normalised

__all__ = ["PURE", "Distribution", "Distributions"]

PURE: Final = "py3-none-any"
"""The tag of a wheel that runs everywhere."""


@dataclass(frozen=True)
class Distribution:
    """An installed distribution. `requirements` are its Requires-Dist without those of extras, which are `optional`,
    both by normalised name."""

    name: str
    version: str
    requirements: Mapping[str, str]
    optional: Mapping[str, str]
    requires_python: str
    licences: Mapping[str, bytes]
    tag: str

    @property
    def needs_host(self) -> bool:
        """Whether it is part of Delegraph or a plug-in: a deployable that has the host has to have it too."""
        return normalised(self.name) == HOST or HOST in self.requirements


class Distributions:
    """The installed distributions, found by their top-level packages, or by `known`: (module, distribution) pairs."""

    def __init__(self, known: Iterable[tuple[str, str]] = ()) -> None:
        self._known = {module.partition(".")[0]: name for module, name in known}
        self._read: dict[str, Distribution] = {}

    def named(self, name: str) -> Distribution:
        """The distribution `name`. Raises `PluginNotFound` if its metadata is not there."""
        key = normalised(name)
        if key not in self._read:
            try:
                self._read[key] = _read(metadata.distribution(name))
            except metadata.PackageNotFoundError as error:
                raise PluginNotFound(
                    f"there is no metadata of {name!r}; install it (`pip install`, -e will do) and select again"
                ) from error
        return self._read[key]

    def of(self, module: str) -> Distribution | None:
        """The distribution that `module` is of; None for the standard library's and for those of none."""
        top = module.partition(".")[0]
        if top in sys.stdlib_module_names:
            return None
        name = self._known.get(top) or next(iter(self._installed.get(top, ())), None)
        return None if name is None else self.named(name)

    @cached_property
    def _installed(self) -> Mapping[str, Sequence[str]]:
        editable = [
            (top, installed.metadata["Name"]) for installed in metadata.distributions() for top in _editable(installed)
        ]
        return {**{top: [name] for top, name in editable}, **metadata.packages_distributions()}


def _editable(installed: metadata.Distribution) -> Iterator[str]:
    """The packages in the folders that an installation in editable mode (PEP 610) has in a `.pth` file.

    Other than files that are copied, they are not in the distribution's RECORD, and not every builder says elsewhere
    what they are called.
    """
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    for file in installed.files or () if origin.get("dir_info", {}).get("editable") else ():
        for line in file.read_text().splitlines() if file.suffix == ".pth" else ():
            yield from (path.parent.name for path in Path(line).glob("*/__init__.py"))


def _read(installed: metadata.Distribution) -> Distribution:
    lines = installed.requires or ()
    plain = [line for line in lines if not re.search(r";.*\bextra\b", line)]
    return Distribution(
        name=installed.metadata["Name"],
        version=installed.version,
        requirements={_name(line): line for line in plain},
        optional={_name(line): line.partition(";")[0].strip() for line in lines if line not in plain},
        requires_python=",".join(installed.metadata.get_all("Requires-Python") or []),
        licences={
            file.name: file.read_binary()
            for file in installed.files or ()
            if ".dist-info" in file.parts[0] and re.match(r"LICEN[CS]E|COPYING|NOTICE", file.name, re.IGNORECASE)
        },
        tag=_tag(installed.read_text("WHEEL") or ""),
    )


def _name(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement)
    return normalised(match[0]) if match else requirement


def _tag(wheel: str) -> str:
    tags = re.findall(r"^Tag: *(\S+)", wheel, re.MULTILINE)
    return tags[0] if tags else PURE
