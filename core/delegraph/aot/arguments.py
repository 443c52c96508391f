"""An argument that a user gave -> nothing, or an error that says what it should have been."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from delegraph.errors import LoweringError
from delegraph.plugins.discovery import did_you_mean

__all__ = ["check_list", "check_method_names"]


def check_list(name: str, value: Any) -> None:
    """Raise `LoweringError` if `value`, the argument called `name`, is a string or a lone object where a list is meant.

    None stands for "not given".
    """
    if value is None or (hasattr(value, "__iter__") and not isinstance(value, (str, bytes, Mapping))):
        return
    shown = repr(value) if isinstance(value, (str, bytes)) else f"<{type(value).__name__}>"
    raise LoweringError(f"{name} is {shown}, but it takes a list: write [{shown}]")


def check_method_names(name: str, by_method: Mapping[str, Any], methods: Collection[str]) -> None:
    """Raise `LoweringError` if a key of `by_method`, the argument called `name`, is not among `methods`."""
    for key in by_method:
        if key not in methods:
            raise LoweringError(
                f"{name} has an entry for {key!r}, but the methods are {', '.join(sorted(methods)) or '(none)'}"
                f"{did_you_mean(str(key), methods)}"
            )
