"""Tools: pluggy plug-ins that wrap backends' hooks or watch the events of lowering and loading.

This is the only module that imports pluggy, and it is loaded only where a tool is installed. A tool's wrappers are
bound around a backend's method when that is bound: `bound` returns one callable, and nothing is looked up per call.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import isgeneratorfunction
from typing import Any, Final

import pluggy

from delegraph.errors import PluginWarning, cause_of
from delegraph.interfaces.tool import WRAPPABLE
from delegraph.plugins.discovery import Offer, did_you_mean
from delegraph.plugins.hookspecs import GROUPS, parameters

__all__ = ["Tools", "hookimpl", "load_tools", "tool_violations"]

hookimpl = pluggy.HookimplMarker("delegraph")
"""Marks a tool's functions as implementations of the hooks in `delegraph.interfaces.ToolHooks`."""

_TOOLS = GROUPS["delegraph.plugins"]


class _Manager(pluggy.PluginManager):
    """A pluggy manager that knows the events of `ToolHooks` and the hooks of `WRAPPABLE`."""

    def __init__(self) -> None:
        super().__init__("delegraph")
        self.add_hookspecs(_SPECS)

    def parse_hookspec_opts(self, module_or_class: object, name: str) -> pluggy.HookspecOpts | None:
        if name not in HOOKS:
            return None
        return {"firstresult": name in WRAPPABLE, "historic": False, "warn_on_impl": None, "warn_on_impl_args": None}


HOOKS: Final[Mapping[str, tuple[str, ...]]] = {
    **{hook: ("plugin", *parameters(interface, hook)) for hook, interface in WRAPPABLE.items()},
    **{event: _TOOLS.parameters(event) for event in _TOOLS.hook_names},
}
"""Whatever a tool may implement, and the parameters that it may take."""


def _function(name: str, names: Sequence[str], called: Callable[..., object]) -> Callable[..., object]:
    """`def name(*names): return called(*names)`: pluggy reads the names from a function's code."""
    scope: dict[str, Callable[..., object]] = {"called": called}
    exec(f"def {name}({', '.join(names)}): return called({', '.join(names)})", scope)  # noqa: S102 - our own hooks
    return scope[name]


def _do_nothing(*args: object) -> None:
    return None


_SPECS = type("ToolSpecs", (), {hook: _function(hook, names, _do_nothing) for hook, names in HOOKS.items()})


def _implementation(called: Callable[..., object], hook: str) -> object:
    """`called` as pluggy wants it: as `hook`, by the interface's parameter names, whatever its author calls them."""
    function = _function(hook, parameters(WRAPPABLE[hook], hook), called)
    return type("Implementation", (), {hook: staticmethod(hookimpl(function))})


def tool_violations(tool: object) -> list[str]:
    """The faults of a tool: no marks, an unknown hook, parameters that the spec lacks, a wrapper that is none."""
    manager = pluggy.PluginManager("delegraph")  # without specs, so that every violation is ours to tell
    manager.register(tool)
    hooks = [
        (hook.name, implementation)
        for hook in manager.get_hookcallers(tool) or ()
        for implementation in hook.get_hookimpls()
    ]
    if not hooks:
        return ["it marks no function with @delegraph.plugins.hookimpl"]
    return [violation for name, implementation in hooks if (violation := _hook_violation(name, implementation))]


def _hook_violation(name: str, implementation: pluggy.HookImpl) -> str:
    if name not in HOOKS:
        return f"it implements {name}(), which is not a hook{did_you_mean(name, HOOKS)}"
    known, taken = HOOKS[name], implementation.argnames
    if not set(taken) <= set(known):
        return f"its signature is {name}({', '.join(taken)}); it has to be some of {name}({', '.join(known)})"
    if implementation.wrapper and not isgeneratorfunction(implementation.function):
        return f"its wrapper {name}() never yields"
    if implementation.wrapper != (name in WRAPPABLE):
        may = "may only be wrapped: @hookimpl(wrapper=True)" if name in WRAPPABLE else "is an event: nothing to wrap"
        return f"it implements {name}(), which {may}"
    return ""


class Tools:
    """The tools of one registry."""

    def __init__(self, tools: Mapping[Offer, object]) -> None:
        self._tools = dict(tools)
        self._watchers = self._manager_of()
        self._wrapped = frozenset(name for name in WRAPPABLE if getattr(self._watchers.hook, name).get_hookimpls())

    def wraps(self, hook: str) -> bool:
        """Whether some tool surrounds `hook`."""
        return hook in self._wrapped

    def bound(self, offer: Offer, hook: str, called: Callable[..., object]) -> Callable[..., Any]:
        """`called`, which does what `hook` of the offer does, with the wrappers around it; to be called by position."""
        caller = getattr(self._manager_of(_implementation(called, hook)).hook, hook)
        names = parameters(WRAPPABLE[hook], hook)

        def call(*args: object) -> object:
            return caller(plugin=offer, **dict(zip(names, args, strict=True)))

        return call

    def notify(self, event: str, details: Mapping[str, object]) -> None:
        """Call every watcher of `event`, each by itself, so that one that raises keeps no other from hearing of it."""
        assert event in _TOOLS.hook_names, event
        assert event not in WRAPPABLE, event
        for watcher in reversed(getattr(self._watchers.hook, event).get_hookimpls()):
            try:
                watcher.function(*(details[name] for name in watcher.argnames))
            except Exception as error:
                told = f"{watcher.plugin_name} raised at {event}: {cause_of(error)}"
                warnings.warn(told, PluginWarning, stacklevel=3)

    def _manager_of(self, *subjects: object) -> _Manager:
        manager = _Manager()
        for subject in subjects:
            manager.register(subject)
        for offer, tool in self._tools.items():
            manager.register(tool, name=str(offer))
        return manager


_building = threading.local()


def load_tools(load: Callable[[], tuple[Mapping[Offer, object], Iterable[Exception]]]) -> Tools | None:
    """The tools that `load` gives beside errors, each of which is reported by a `PluginWarning`.

    None while this thread is at it already: a tool that uses the registry as it is imported meets no tools.
    """
    if getattr(_building, "active", False):
        return None
    _building.active = True
    try:
        tools, broken = load()
    finally:
        _building.active = False
    for error in broken:
        warnings.warn(f"going on without a tool: {error}", PluginWarning, stacklevel=5)
    return Tools(tools)
