"""The version that is installed, read from the distribution's metadata when somebody asks."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]


def _version() -> str:
    try:
        return version("delegraph")
    except PackageNotFoundError:  # packed by `delegraph select`, whose metadata are the application's
        return "0+unknown"


__version__ = _version()
"""The version of Delegraph that is installed: `"0.1.0"`; `"0+unknown"` where it is packed in an application."""
