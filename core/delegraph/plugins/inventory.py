"""Offers -> the rows of `delegraph plugins list`: each with its state, told from metadata alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from importlib.machinery import ModuleSpec
from pathlib import Path

from delegraph.lazy_dataclass import dataclass
from delegraph.plugins.discovery import Offer, Selection, normalised, scan
from delegraph.plugins.loader import reference

__all__ = ["Entry", "OfferState", "inventory", "metadata_violation", "module_exists", "module_spec", "package_folder"]


class OfferState(Enum):
    """The state of an offer, found without importing it."""

    OK = "ok"
    BROKEN = "broken metadata"
    CONFLICT = "conflict"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class Entry:
    """An offer, its state and, unless that is OK, why."""

    offer: Offer
    state: OfferState
    reason: str = ""


def inventory(environ: Mapping[str, str]) -> list[Entry]:
    """Every offer that is installed, those that are disabled included."""
    selection, offers = Selection.from_environment(environ), scan()
    return [_judge(offer, offers, selection) for offer in offers]


def metadata_violation(offer: Offer) -> str:
    """The fault in an offer's metadata, in words; "" if there is none. Imports nothing, not even a parent package."""
    parts = reference(offer.value)
    if parts is None:
        return f"the value {offer.value!r} is malformed; it has to read module:attribute"
    if "unknown" in (offer.distribution, offer.version):
        return f"the metadata in {offer.location} has no name or version"
    if not module_exists(parts[0]):
        return f"there is no module {parts[0]}: the metadata in {offer.location} is stale"
    return ""


def _judge(offer: Offer, offers: Sequence[Offer], selection: Selection) -> Entry:
    if not selection.admits(offer):
        return Entry(offer, OfferState.DISABLED, "by DELEGRAPH_PLUGINS or DELEGRAPH_DISABLE_PLUGINS")
    if violation := metadata_violation(offer):
        return Entry(offer, OfferState.BROKEN, violation)
    rivals = [rival for rival in offers if _same_name(offer, rival) and rival != offer and selection.admits(rival)]
    preferred = selection.prefer.get(f"{offer.group}:{offer.name}")
    if not rivals or (preferred and normalised(preferred) == normalised(offer.distribution)):
        return Entry(offer, OfferState.OK)
    named = ", ".join(f"{rival.provider} ({rival.value})" for rival in rivals)
    if preferred:
        return Entry(offer, OfferState.DISABLED, f"{preferred} is preferred for this name")
    choice = f"DELEGRAPH_PREFER={offer.id}={offer.distribution} chooses this one"
    return Entry(offer, OfferState.CONFLICT, f"{named} offers this name too; {choice}")


def _same_name(a: Offer, b: Offer) -> bool:
    return (a.group, a.name) == (b.group, b.name)


def module_exists(module: str) -> bool:
    """Whether `module` can be found: `find_spec` of importlib would import its parents."""
    try:
        return module_spec(module) is not None
    except KeyError:  # a namespace package inside another one: its path is known only once its parent is imported
        return True


def module_spec(module: str) -> ModuleSpec | None:
    """Where `module` is, found without importing its parents. Raises `KeyError` where that cannot be known."""
    spec: ModuleSpec | None = None
    search: Sequence[str] | None = None
    names = module.split(".")
    for depth in range(1, len(names) + 1):
        name = ".".join(names[:depth])
        if name in sys.modules:  # perhaps made by hand, without a spec
            spec = sys.modules[name].__spec__ or ModuleSpec(name, None)
            search = getattr(sys.modules[name], "__path__", [])
            continue
        spec = _find(name, search)
        if spec is None:
            return None
        search = spec.submodule_search_locations or []
    return spec


def package_folder(offer: Offer) -> Path | None:
    """The folder of the top package behind `offer`, found without importing it; None where there is no package."""
    parts = reference(offer.value)
    try:
        spec = module_spec(parts[0]) if parts else None
    except KeyError:
        spec = None
    if parts is None or spec is None or not spec.origin:
        return None
    inner = parts[0].count(".") + (spec.submodule_search_locations is not None)
    return Path(spec.origin).parents[inner - 1] if inner else None


def _find(name: str, search: Sequence[str] | None) -> ModuleSpec | None:
    # every finder, within a package too: where a project's folder hides its package of that name (`zorch/zorch`, seen
    # from the folder above, is a namespace), an editable installation's own finder still knows zorch.aot
    specs = (finder.find_spec(name, None if search is None else list(search)) for finder in sys.meta_path)
    return next((spec for spec in specs if spec is not None), None)
