"""A name or hook that has another one now -> the warning that says so: who uses it, what replaces it, when it goes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, ParamSpec, TypeVar

__all__ = ["PluginDeprecationWarning", "former_parameter", "loading_plugin", "warn_deprecated"]


class PluginDeprecationWarning(DeprecationWarning):
    """Something of the plug-in API that a plug-in uses has another name or form now, and goes in a version to come.

    As of any `DeprecationWarning`, Python tells users nothing of it; pytest and `delegraph plugins doctor` do.
    """


_USER: Final[ContextVar[str]] = ContextVar("delegraph_plugin_being_loaded", default="")


@contextmanager
def loading_plugin(plugin: str) -> Iterator[None]:
    """Within, warnings name that plug-in as the user of whatever is imported."""
    token = _USER.set(plugin)
    try:
        yield
    finally:
        _USER.reset(token)


def warn_deprecated(used: str, instead: str, goes: str, where: Any = None, stacklevel: int = 2) -> None:
    """Warn that the plug-in being loaded (or the caller) uses a deprecated name.

    `where` is the author's function, whose line is named; without one it is the line `stacklevel` calls further out.
    """
    user = _USER.get()
    text = f"{user and f'{user}: '}{used} is deprecated: use {instead}; it goes in plug-in API {goes}"
    code = getattr(where, "__code__", None)
    if code is None:
        warnings.warn(text, PluginDeprecationWarning, stacklevel=stacklevel + 1)
    else:
        warnings.warn_explicit(text, PluginDeprecationWarning, code.co_filename, code.co_firstlineno)


_P = ParamSpec("_P")
_R = TypeVar("_R")


def former_parameter(former: str, now: str, goes: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Let a function be called with a keyword that has another name now, with a warning."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            if former in kwargs:
                kwargs[now] = kwargs.pop(former)
                warn_deprecated(f"the parameter {former!r} of {function.__qualname__}()", repr(now), goes)
            return function(*args, **kwargs)

        return called

    return decorate
