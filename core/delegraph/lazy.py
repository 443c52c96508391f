"""A package's public names, each imported when it is first used (PEP 562): importing the package stays cheap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from delegraph.deprecation import DeprecatedName, warn_deprecated

__all__ = ["lazy_names"]


def lazy_names(
    package: str, modules: Mapping[str, Sequence[str]], deprecated: Mapping[str, DeprecatedName] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`package`'s `__getattr__` and `__dir__`; `modules` says which of its modules has which names.

    As in an import, a dot before a module's name steps out of `package`. `deprecated` are former names: each gives what
    has its place now, with a warning.
    """
    former = deprecated or {}
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name in former:
            warn_deprecated(f"{package}.{name}", f"{package}.{former[name].instead}", former[name].goes)
            name = former[name].instead
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f".{module}", package), name)

    return get, lambda: sorted(module_of)
