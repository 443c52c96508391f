"""Where names were before they moved -> where they are: `from delegraph.runtime.kernels import KernelLibrary` warns.

A public module that moves gets a row in `FORMER_MODULES`; tests/test_released_names.py asks for it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

__all__ = ["FORMER_MODULES", "install"]

FORMER_MODULES: Final[Mapping[str, str]] = {
    "delegraph.aot.backend": "delegraph.interfaces",
    "delegraph.aot.delegation.backend_details": "delegraph.interfaces",
    "delegraph.aot.partition": "delegraph.interfaces",
    "delegraph.plugins.stamp": "delegraph.interfaces",
    "delegraph.runtime.backends": "delegraph.interfaces",
    "delegraph.runtime.kernels": "delegraph.interfaces",
}
"""A module that there is no more, and the one that has its names. Both go in plug-in API 2.0."""

_GOES: Final = "2.0"


class _Finder:
    """Python asks it for what nobody else has found; a module of it takes each name from where that is now."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, _Finder) if name in FORMER_MODULES else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        former, now = module.__name__, FORMER_MODULES[module.__name__]

        def get(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(f"module {former!r} has no attribute {name!r}")
            from delegraph.deprecation import warn_deprecated

            try:
                value = getattr(import_module(now), name)
            except AttributeError:
                raise AttributeError(f"module {former!r} is {now} now, which has no attribute {name!r}") from None
            warn_deprecated(f"{former}.{name}", f"{now}.{name}", _GOES)
            return value

        module.__getattr__ = get  # type: ignore[method-assign]


def install() -> None:
    """Have Python find the former modules, behind all others."""
    sys.meta_path.append(_Finder)
