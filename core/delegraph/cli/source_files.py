"""`FILE.py:name`, or `package.module:name` -> the function."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from argparse import ArgumentError
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from delegraph.errors import LoweringError, cause_of

__all__ = ["function_from", "functions_from"]


def function_from(spec: str) -> Callable[..., Any]:
    """The function that `spec` names. Raises `ArgumentError` if there is none, `LoweringError` if importing raises."""
    return functions_from([spec])[0]


def functions_from(specs: Iterable[str]) -> list[Callable[..., Any]]:
    """The functions that `specs` name. A file is imported once, so that other processes find all its functions.

    Raises as `function_from`, and `ArgumentError` for two files of one name, which would be one module.
    """
    modules: dict[str, ModuleType] = {}
    functions = []
    for spec in specs:
        place, separator, name = spec.rpartition(":")
        if not separator:
            raise ArgumentError(None, f"{spec!r} names no function: write MODEL.py:factory")
        namesake = next((path for path in modules if path != place and _stem(path) == _stem(place)), None)
        if namesake is not None:
            raise ArgumentError(None, f"{namesake} and {place} have one name, as modules; rename one")
        if place not in modules:
            modules[place] = _module(place, spec)
        function = getattr(modules[place], name, None)
        if not callable(function):
            raise ArgumentError(None, f"{place} has no function {name!r}")
        functions.append(function)
    return functions


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0] if path.endswith(".py") else path


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
    name = _stem(path)
    module_spec = importlib.util.spec_from_file_location(name, path)
    assert module_spec is not None and module_spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module
