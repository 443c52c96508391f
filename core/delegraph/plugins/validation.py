"""A plug-in's object -> its faults: hooks that are missing, misspelt, or of another signature.

The host calls hooks by position, so the call has to fit; parameters may have names of their own (those of
a delegate that was written for ExecuTorch, say), but not each other's: that is an order mixed up.

No pluggy is needed for this. Only where a tool wraps a hook is it registered with pluggy (`tools.py`); without tools
the plain methods are called, and pluggy is not even imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial

from delegraph.plugins.factory import takes_keywords
from delegraph.plugins.hookspecs import Form, PluginGroup

__all__ = ["misspelt", "own_methods", "parameters_taken", "signature_violation", "violations"]


def violations(group: PluginGroup, plugin: object) -> list[str]:
    """Everything about `plugin` that does not fit `group`; empty if it fits. Calls nothing of it."""
    if group.form in (Form.FACTORY, Form.FUNCTION):
        if not callable(plugin):
            return [f"it is {_kind(plugin)}; {group.name} takes {group.form.value}: {group.text('__call__')}"]
        if group.form is Form.FACTORY and takes_keywords(plugin):
            return []
        return list(signature_violation(group, "__call__", plugin))
    if group.form is Form.CLASS and not isinstance(plugin, type):
        return [f"it is {_kind(plugin)}; {group.name} takes {group.form.value}"]
    missing = [hook for hook in group.hook_names if _is_missing(plugin, hook)]
    return [
        *misspelt(group, plugin),
        *(f"it has no {group.text(hook)}{_hint(group)}" for hook in missing if hook not in group.default_hooks),
        *(
            violation
            for hook in group.hook_names
            if hook not in missing
            for violation in signature_violation(group, hook, _as_called(group, plugin, hook))
        ),
        *(violation for name in group.attributes for violation in _attribute_violation(group, plugin, name)),
    ]


def misspelt(group: PluginGroup, plugin: object) -> Iterator[str]:
    """Public methods of the plug-in's own that look like a hook that it does not define itself."""
    own = own_methods(plugin)
    hooks = set(group.hook_names)
    for name, method in own.items():
        if name in hooks or name.startswith("_"):
            continue
        marked = hasattr(method, "delegraph_impl")
        close = _closest(name, hooks if marked else hooks - own.keys())
        if close:
            yield f"it has {name}(), which is not a hook of {group.name}; did you mean {close}()?"
        elif marked:
            known = ", ".join(group.hook_names)
            yield f"it marks {name}() with @hookimpl, which is not a hook of {group.name}: {known}"


def signature_violation(group: PluginGroup, hook: str, implementation: Callable[..., object]) -> Iterator[str]:
    """A message if `implementation` cannot take the hook's parameters by position, or takes them in another order."""
    if group.is_own_hook(hook, implementation):
        return
    if parameters_taken(group, hook, implementation) is None:
        plain = _plain(inspect.signature(implementation))
        yield f"its signature is {hook.removeprefix('__call__')}({plain}); it has to be {group.text(hook)}"


def parameters_taken(group: PluginGroup, hook: str, implementation: Callable[..., object]) -> tuple[str, ...] | None:
    """Which of the hook's parameters `implementation` takes by position: all, or all but optional ones that it does
    without; None if it fits in neither way."""
    names, optional = group.parameters(hook), group.optional_parameters(hook)
    try:
        signature = inspect.signature(implementation)
    except ValueError:  # a builtin without a signature: nothing to compare
        return names
    used = tuple(name for name in names if name not in optional or name in signature.parameters)
    return next((taken for taken in (names, used) if _binds(signature, taken)), None)


def _binds(signature: inspect.Signature, names: tuple[str, ...]) -> bool:
    try:
        # Binding the names themselves shows which parameter takes which; `*args` takes a tuple.
        taken = signature.bind(*names).arguments
    except TypeError:
        return False
    return all(own == name or own not in names or isinstance(name, tuple) for own, name in taken.items())


def _as_called(group: PluginGroup, plugin: object, hook: str) -> Callable[..., object]:
    """`plugin`'s `hook` without `self`, also where `plugin` is still the class whose instance is called."""
    method: Callable[..., object] = getattr(plugin, hook)
    if group.form is Form.INSTANCE and isinstance(plugin, type) and inspect.isfunction(method):
        return partial(method, None)
    return method


_ARTICLES = {bool: "True or False", int: "an int", str: "a str"}


def _attribute_violation(group: PluginGroup, plugin: object, name: str) -> Iterator[str]:
    """A message if the attribute is of another type than its default. One that is not there has the default."""
    default = group.attributes[name]
    value = getattr(plugin, name, default)
    if type(value) is not type(default):
        yield f"its {name} is {value!r}; it has to be {_ARTICLES[type(default)]}"


def _is_missing(plugin: object, hook: str) -> bool:
    abstract = getattr(plugin, "__abstractmethods__", ())
    return hook in abstract or not callable(getattr(plugin, hook, None))


def own_methods(plugin: object) -> dict[str, object]:
    """The callables that the plug-in's own classes define: not those that it inherits from the host."""
    classes = plugin.__mro__ if isinstance(plugin, type) else type(plugin).__mro__
    namespaces = [vars(c) for c in reversed(classes) if not f"{c.__module__}.".startswith(("delegraph.", "builtins."))]
    merged = {name: value for namespace in namespaces for name, value in namespace.items()}
    return {name: value for name, value in merged.items() if callable(value) or isinstance(value, _DESCRIPTORS)}


_DESCRIPTORS = (staticmethod, classmethod)


def _closest(name: str, hooks: set[str]) -> str:
    from difflib import get_close_matches

    # 0.8 lets one letter in five be wrong: `excute`, `distroy`, `set_options`, but not a helper like `init_device`.
    return next(iter(get_close_matches(name, sorted(hooks), n=1, cutoff=0.8)), "")


def _hint(group: PluginGroup) -> str:
    return f"; derive from {group.base} or write it" if group.base else ""


def _kind(plugin: object) -> str:
    return f"the class {plugin.__qualname__}" if isinstance(plugin, type) else f"a {type(plugin).__name__}"


def _plain(signature: inspect.Signature) -> str:
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return ", ".join(map(str, bare))
