"""Options by backend, as a caller names backends -> options by the ids of a program's backends.

A backend has an id, which stands in the file, and a name, its partitioner's, which users write to lower:
`CpuBackend` and `cpu`. Both are accepted. That they belong together the metadata of their distribution says, so that
nothing of the AOT half is imported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from delegraph.errors import InvalidArgument, PluginConflict, PluginNotFound

if TYPE_CHECKING:
    from delegraph.plugins.registry import PluginRegistry

__all__ = ["BackendOptions", "by_backend_id"]

BackendOptions: TypeAlias = "Mapping[str, Mapping[str, bool | int | str]]"
"""Load-time options by backend: its id, or the name that it has in lowering."""


def by_backend_id(
    options: BackendOptions, ids: Collection[str], plugins: PluginRegistry
) -> dict[str, Mapping[str, bool | int | str]]:
    """`options` by the `ids` of the program's backends.

    Raises `InvalidArgument` for a name of none of them, or of several, and for a backend that is named twice.
    """
    options_by_id: dict[str, Mapping[str, bool | int | str]] = {}
    for name, chosen in options.items():
        if not isinstance(chosen, Mapping):
            raise InvalidArgument(f"the options of backend {name!r} are {chosen!r}, which is not a mapping by option")
        backend_id = name if name in ids else _id_of(name, ids, plugins)
        if backend_id in options_by_id:
            raise InvalidArgument(f"backend {backend_id!r} is given options twice, by its id and by its name")
        options_by_id[backend_id] = chosen
    return options_by_id


def _id_of(name: str, ids: Collection[str], plugins: PluginRegistry) -> str:
    """The one of `ids` that belongs to a distribution whose partitioner is called `name`.

    Where several have one of that name, the program tells whose is meant: the partitioner itself is not needed.
    """
    try:
        distributions = [plugins.find("partitioners", name).distribution]
    except PluginConflict:
        distributions = [offer.distribution for offer in plugins.offers("partitioners") if offer.name == name]
    except PluginNotFound:
        from delegraph.plugins.discovery import did_you_mean

        known = [*ids, *plugins.names("partitioners")]
        raise InvalidArgument(f"{_not_there(name, ids)}{did_you_mean(name, known)}") from None
    own = {offer.name for offer in plugins.offers("backends") if offer.distribution in distributions}
    meant = sorted(own & set(ids))
    whose = " and ".join(dict.fromkeys(distributions))
    if not meant:
        raise InvalidArgument(_not_there(name, ids, f" (that of {whose}: {', '.join(sorted(own)) or 'none'})"))
    if len(meant) > 1:
        raise InvalidArgument(
            f"{name!r} of {whose} may mean {' or '.join(map(repr, meant))} here; name one of these instead"
        )
    return meant[0]


def _not_there(name: str, ids: Iterable[str], whose: str = "") -> str:
    return f"the program has no backend {name!r}{whose}; its backends are {', '.join(sorted(ids)) or 'none'}"
