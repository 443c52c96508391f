"""`FILE.py:name`, or `package.module:name` -> the function."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from argparse import ArgumentError
from collections.abc import Callable
from types import ModuleType
from typing import Any

from delegraph.errors import LoweringError, cause_of

__all__ = ["function_from"]


def function_from(spec: str) -> Callable[..., Any]:
    """The function that `spec` names. Raises `ArgumentError` if there is none, `LoweringError` if importing raises."""
    place, separator, name = spec.rpartition(":")
    if not separator:
        raise ArgumentError(None, f"{spec!r} names no function: write MODEL.py:factory")
    function = getattr(_module(place, spec), name, None)
    if not callable(function):
        raise ArgumentError(None, f"{place} has no function {name!r}")
    return function  # type: ignore[no-any-return]


def _module(place: str, spec: str) -> ModuleType:
    is_file = place.endswith(".py")
    if is_file and not os.path.isfile(place):
        raise ArgumentError(None, f"{spec}: there is no file {place}")
    # as `python MODEL.py` and `python -m MODEL` would find the model's imports
    sys.path.insert(0, os.path.dirname(os.path.abspath(place)) if is_file else os.getcwd())
    try:
        return _load(place) if is_file else importlib.import_module(place)
    except Exception as cause:
        raise LoweringError(f"importing {place} raised {cause_of(cause)}") from cause


def _load(path: str) -> ModuleType:
    name = os.path.splitext(os.path.basename(path))[0]
    module_spec = importlib.util.spec_from_file_location(name, path)
    assert module_spec is not None and module_spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module
