"""Offer -> object: import, negotiate the API, build, validate. A failure says who, what, why and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import reduce
from importlib import import_module
from time import perf_counter
from types import ModuleType
from typing import Final

from delegraph.deprecation import loading_plugin
from delegraph.errors import FOREIGN, PluginLoadError, PluginVersionError, cause_of
from delegraph.logs import Logger
from delegraph.plugins.adaptation import adapted, renamed
from delegraph.plugins.discovery import Offer
from delegraph.plugins.hookspecs import Form, PluginGroup, group_named
from delegraph.plugins.torch_watch import TorchWatch
from delegraph.plugins.validation import violations
from delegraph.plugins.versions import declared_api, mismatch

__all__ = ["adopt", "adopt_product", "failure", "import_offer", "reference"]

_log = Logger(__name__)

# Entry points specification: `module[:attribute][ [extras]]`, both dotted names. Extras are obsolete and ignored.
_REFERENCE: Final = r"([A-Za-z_][\w.]*)\s*(?::\s*([A-Za-z_][\w.]*)\s*)?(?:\[.*\])?"


def reference(value: str) -> tuple[str, str] | None:
    """Module and attribute ("" for none) of an entry point's value, or None if it is malformed."""
    module, _, attribute = value.partition(":")
    if all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        return module, attribute  # as nearly all are: to compile the pattern takes longer than to load a kernel library
    match = re.fullmatch(_REFERENCE, value)
    return (match[1], match[2] or "") if match else None


def import_offer(offer: Offer) -> object:
    """The validated object behind `offer`; a class where the group takes an instance is instantiated.

    Raises `PluginLoadError`, or `PluginVersionError` if it needs another plug-in API.
    """
    start, group = perf_counter(), group_named(offer.group)
    with TorchWatch() as watch:
        try:
            with loading_plugin(f"{offer.id} of {offer.provider}"):
                module, attribute = _import(offer)
        except FOREIGN as error:
            raise failure(offer, _said(error), _import_remedy(offer, error)) from error
        plugin = adopt(offer, attribute, (module,))
    if group.torch_free and watch.leak:
        raise failure(
            offer,
            f"loading it brought torch into a process that runs without it: {watch.leak} imports it",
            "its authors move that import into the AOT half, or into the function that needs it",
        )
    _log.debug("loaded plug-in %s in %.3f s", offer, perf_counter() - start)
    return plugin


def adopt(offer: Offer, plugin: object, declarations: Iterable[object] = ()) -> object:
    """`plugin`, instantiated if its group wants that, once it is shown to fit its group and this host's plug-in API."""
    group = group_named(offer.group)
    for declaration in (*declarations, plugin):
        _negotiate(offer, declaration)
    plugin = _renamed(offer, group, plugin)
    if group.form is Form.INSTANCE and isinstance(plugin, type) and not getattr(plugin, "__abstractmethods__", None):
        plugin = _instantiate(offer, plugin)
    if group.name == "delegraph.plugins":
        from delegraph.plugins.tools import tool_violations

        return _checked(offer, group, plugin, tool_violations(plugin))
    plugin = _adapted(offer, group, _checked(offer, group, plugin, violations(group, plugin)))
    _give_defaults(offer, plugin)
    return plugin


def adopt_product(offer: Offer, product: PluginGroup, instance: object) -> object:
    """The `instance` that the factory behind `offer` made, adapted. Raises unless it fits `product`."""
    instance = _renamed(offer, product, instance)
    if faults := violations(product, instance):
        raise failure(offer, f"its factory made {instance!r}: {'; '.join(faults)}", "its authors return what fits")
    return _adapted(offer, product, instance)


def _checked(offer: Offer, group: PluginGroup, plugin: object, faults: list[str]) -> object:
    if faults:
        interface = f"delegraph.interfaces.{group.interface.__qualname__}"
        raise failure(offer, "; ".join(faults), f"its authors change it to fit {interface}")
    return plugin


def _renamed(offer: Offer, group: PluginGroup, plugin: object) -> object:
    try:
        with loading_plugin(f"{offer.id} of {offer.provider}"):
            return renamed(group, plugin)
    except PluginVersionError as gone:
        raise failure(offer, str(gone), f"upgrade {offer.distribution}", PluginVersionError) from None


def _adapted(offer: Offer, group: PluginGroup, plugin: object) -> object:
    try:
        return adapted(group, plugin)
    except (AttributeError, TypeError) as error:
        remedy = f"its authors derive from {group.base}" if group.base else "its authors write all of it"
        raise failure(offer, f"it cannot be given what it lacks of {group.name}: {error}", remedy) from error


def _give_defaults(offer: Offer, plugin: object) -> None:
    """Give `plugin` the attributes of its interface that it lacks; its name is the entry point's."""
    for name, default in group_named(offer.group).attributes.items():
        value = offer.name if name == "name" else default
        if not hasattr(plugin, name) or (name == "name" and not getattr(plugin, name)):
            try:
                setattr(plugin, name, value)
            except (AttributeError, TypeError) as error:
                raise failure(offer, f"it has no {name} and cannot be given one", f"its authors add {name}") from error


def failure(offer: Offer, problem: str, remedy: str, kind: type[PluginLoadError] = PluginLoadError) -> PluginLoadError:
    """The one form of a failure to load: which plug-in of whom, what is wrong, what to do."""
    return kind(
        f"cannot load plug-in {offer}: {problem}\n"
        f"  what to do: {remedy}; `delegraph plugins check {offer.id}` tests it by itself,"
        f" DELEGRAPH_DISABLE_PLUGINS={offer.id} goes without it"
    )


def _import(offer: Offer) -> tuple[ModuleType, object]:
    parts = reference(offer.value)
    if parts is None:
        raise ValueError(f"the entry point {offer.value!r} is malformed; it has to read module:attribute")
    module = import_module(parts[0])
    return module, reduce(getattr, filter(None, parts[1].split(".")), module)


def _instantiate(offer: Offer, factory: type) -> object:
    try:
        return factory()
    except FOREIGN as error:
        problem = f"{factory.__qualname__}() raised {_said(error)}"
        raise failure(offer, problem, f"upgrade {offer.distribution} or report it to its authors") from error


def _negotiate(offer: Offer, declaration: object) -> None:
    try:
        problem = mismatch(declared_api(declaration))
    except TypeError as error:
        raise failure(offer, str(error), "its authors write the lowest API that it needs") from error
    if problem:
        what, _, remedy = problem.rpartition("; ")
        raise failure(offer, what, remedy, PluginVersionError)


def _import_remedy(offer: Offer, error: BaseException) -> str:
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return f"upgrade {offer.distribution} or report it to its authors"
    module, _ = reference(offer.value) or ("", "")
    if f"{module}.".startswith(f"{error.name}."):
        return f"its metadata in {offer.location} is stale or its files are gone: reinstall {offer.distribution}"
    return f"install {error.name!r}, which it needs (perhaps as an extra of {offer.distribution})"


def _said(error: BaseException) -> str:
    """The error as its author wrote it, with the line where it was raised."""
    import traceback

    last = traceback.extract_tb(error.__traceback__)[-1:]
    theirs = [frame for frame in last if "importlib" not in frame.filename and frame.filename != __file__]
    where = "".join(f" ({frame.filename}:{frame.lineno})" for frame in theirs)
    return f"{cause_of(error)}{where}"
