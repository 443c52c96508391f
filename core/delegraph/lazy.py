"""A package's public names, each imported when it is first used (PEP 562): importing the package stays cheap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from delegraph.lazy_dataclass import dataclass

__all__ = ["DeprecatedName", "lazy_names"]


@dataclass(frozen=True, slots=True)
class DeprecatedName:
    """The replacement of a public name, and the plug-in API in which the old name goes: `"2.0"`.

    Without a `module` the name gives its replacement; with one, what that module has under it still.
    """

    instead: str
    goes: str
    module: str = ""


def lazy_names(
    package: str, modules: Mapping[str, Sequence[str]], deprecated: Mapping[str, DeprecatedName] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`package`'s `__getattr__` and `__dir__`; `modules` says which module has which names.

    In a package's `__init__.py`, `__all__` and `modules` follow from its imports for type checkers, as
    `pytest tests/test_public_names.py --renew` writes them. `deprecated` are former names: each gives what has its
    place now, or what it was, with a warning.
    """
    former = deprecated or {}
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name in former:
            from delegraph.deprecation import warn_deprecated

            row = former[name]
            warn_deprecated(f"{package}.{name}", f"{package}.{row.instead}", row.goes)
            if row.module:
                return getattr(import_module(row.module), name)
            name = row.instead
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            from delegraph.errors import torch_missing

            raise torch_missing(f"{package}.{name}", error) or error from None

    return get, lambda: sorted(module_of)
