"""A plug-in as its author wrote it -> as this host calls it, so that plug-ins for an older API go on working.

    former name of a hook               it stands under its present name, too
    a hook with a default, left out     the interface's own
    an optional parameter, left out     the hook is called without it

Each former name or parameter that the author uses is told, once, as a `PluginDeprecationWarning`.
"""

from __future__ import annotations

import abc
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

from delegraph.deprecation import warn_deprecated
from delegraph.errors import PluginVersionError
from delegraph.plugins.deprecations import deprecated_uses
from delegraph.plugins.hookspecs import Form, PluginGroup
from delegraph.plugins.validation import own_methods, parameters_taken
from delegraph.plugins.versions import api_text

__all__ = ["adapted", "renamed"]

_T = TypeVar("_T")


def renamed(group: PluginGroup, plugin: _T) -> _T:
    """`plugin`, or its class, with former hooks under their present names; deprecated uses are told.

    Raises `PluginVersionError` for uses of parts that this host's plug-in API has no more.
    """
    own = _own(group, plugin)
    uses = deprecated_uses(group.name, {name: _parameters(method) for name, method in own.items()})
    if gone := [str(row) for row in uses if row.is_gone]:
        raise PluginVersionError("; ".join(gone))
    for row in uses:
        method = own[row.hook]
        warn_deprecated(row.used, row.instead, api_text(row.goes), getattr(method, "__func__", method))
        if not row.parameter and row.instead in group.hook_names and row.instead not in own:
            setattr(plugin, row.instead, method if isinstance(plugin, type) else getattr(plugin, row.hook))
            if isinstance(plugin, type):
                abc.update_abstractmethods(plugin)
    return plugin


def adapted(group: PluginGroup, plugin: object) -> object:
    """A sound `plugin`, as it is called: by position, with every hook and every parameter.

    Raises `AttributeError` or `TypeError` where a missing hook cannot be added.
    """
    if group.form in (Form.FACTORY, Form.FUNCTION):
        assert callable(plugin), "`validation.violations` saw to it"
        called = _called_without(group, "__call__", plugin)
        return plugin if called is None else called
    for hook in sorted(group.default_hooks):
        if not hasattr(plugin, hook):
            default = vars(group.interface)[hook]
            setattr(plugin, hook, default if isinstance(plugin, type) else default.__get__(plugin, type(plugin)))
    for hook in group.hook_names:
        called = _called_without(group, hook, getattr(plugin, hook))
        if called is not None:
            setattr(plugin, hook, staticmethod(called) if isinstance(plugin, type) else called)
    return plugin


def _called_without(group: PluginGroup, hook: str, method: Callable[..., object]) -> Callable[..., object] | None:
    """`method` behind a call that drops the parameters which it does without; None if it takes all."""
    if group.is_own_hook(hook, method):
        return None
    names = group.parameters(hook)
    taken = parameters_taken(group, hook, method)
    if taken is None or taken == names:
        return None
    places = [names.index(name) for name in taken]

    @functools.wraps(method)
    def call(*args: object) -> object:
        return method(*(args[place] for place in places if place < len(args)))

    del call.__wrapped__  # its signature is the hook's, not the author's
    return call


def _own(group: PluginGroup, plugin: object) -> Mapping[str, object]:
    """The author's attributes that could be hooks, by name."""
    if group.form in (Form.FACTORY, Form.FUNCTION):
        return {"__call__": plugin}
    return vars(plugin) if isinstance(plugin, ModuleType) else own_methods(plugin)


def _parameters(method: Any) -> Sequence[str]:
    try:
        return tuple(inspect.signature(getattr(method, "__func__", method)).parameters)
    except (TypeError, ValueError):  # not a function, or a builtin's
        return ()
