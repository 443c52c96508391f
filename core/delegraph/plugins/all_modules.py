"""Packages -> all of their modules, imported now: for a process that may open no file later."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pkgutil import walk_packages

__all__ = ["import_all_modules"]


def import_all_modules(packages: Iterable[str]) -> None:
    """Import what is in these packages, at any depth. What cannot be imported here is left: nobody has needed it."""
    for package in packages:
        with suppress(Exception):
            for info in walk_packages(import_module(package).__path__, f"{package}."):
                with suppress(Exception):
                    import_module(info.name)
