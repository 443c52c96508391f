"""A module of ExecuTorch by its name -> the module, imported now; or an error that says what to install."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from delegraph.errors import PluginUnavailable

__all__ = ["INSTALL", "executorch"]

INSTALL = 'pip install "delegraph-executorch[bridge]"'


def executorch(name: str) -> Any:
    """What `name`, `exir.backend.partitioner` or `exir.backend.partitioner:Partitioner`, is in `executorch`.

    Raises `PluginUnavailable` where the wheel, or something that this part of it needs, is not installed.
    """
    module, _, attribute = name.partition(":")
    try:
        found = import_module(f"executorch.{module}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "executorch" and not _is_installed():
            raise PluginUnavailable(f"ExecuTorch is not installed; what to do: {INSTALL}") from None
        raise PluginUnavailable(f"executorch.{module} cannot be imported here: {error}") from error
    except Exception as error:  # a part of the wheel may look for its vendor's tools when it is imported
        problem = f"{type(error).__name__}: {error}"
        raise PluginUnavailable(f"executorch.{module} cannot be imported here: {problem}") from error
    return getattr(found, attribute) if attribute else found


def _is_installed() -> bool:
    try:
        import_module("executorch.exir")
    except ModuleNotFoundError:
        return False
    return True
