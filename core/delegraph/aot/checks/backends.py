"""Partitions -> nothing, an error, or warnings: who compiles them has to be installed, who runs them should be."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence

from delegraph.aot.delegation.cut import CutPartition
from delegraph.aot.delegation.lowerings import find_lowering
from delegraph.errors import PluginError, PluginNotFound, PluginWarning
from delegraph.interfaces.backend import Availability
from delegraph.plugins.registry import IN_PROCESS, PluginRegistry

__all__ = ["check_backends", "warn_of_absent_halves"]


def check_backends(partitions: Mapping[str, Sequence[CutPartition]], plugins: PluginRegistry) -> None:
    """Raise a `PluginError` for a backend id that nobody offers, naming the partitioner that asked for it."""
    asked = {part.lowered_module.backend_id: part.partitioner for parts in partitions.values() for part in parts}
    for backend_id, partitioner in asked.items():
        try:
            find_lowering(backend_id, plugins)
        except PluginNotFound as error:
            raise PluginNotFound(f"partitioner {partitioner} asked for the backend {backend_id!r}: {error}") from None


def warn_of_absent_halves(backend_ids: Iterable[str], plugins: PluginRegistry) -> None:
    """A `PluginWarning` for each of these backends, for which something was compiled, that could not run it here, with
    what to do about it. Backends whose compiling half is of this process alone are their author's affair."""
    for backend_id in dict.fromkeys(backend_ids):
        offer, _ = find_lowering(backend_id, plugins)
        problem = _why_absent(backend_id, plugins) if offer.distribution != IN_PROCESS else ""
        if problem:
            warnings.warn(
                f"backend {backend_id!r}, for which {offer.provider} compiles, would not run here: {problem}\n"
                "  nothing is wrong if the program is for another machine: `delegraph plugins doctor model.pte` tells"
                " it there",
                PluginWarning,
                stacklevel=2,
            )


def _why_absent(backend_id: str, plugins: PluginRegistry) -> str:
    """The problem and its remedy, or "" where the backend's running half is there and finds its device."""
    if backend_id not in plugins.names("backends"):
        from delegraph.plugins.doctor import lone_half

        lone = lone_half("delegraph.lowerings", backend_id, {(o.group, o.name) for o in plugins.offers()})
        assert lone is not None
        return f"{lone.problem}\n  what to do: {lone.remedy}"
    try:
        answer = Availability.of(plugins.load("backends", backend_id))
    except PluginError as error:
        return str(error)
    if answer:
        return ""
    return f"it is not available: {answer.reason}" + (f"\n  what to do: {answer.fix}" if answer.fix else "")
