"""Backend id -> who compiles for it: what is registered or installed, else the `BackendDetails` class of that name."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from delegraph.errors import PluginConflict, PluginNotFound, restated
from delegraph.interfaces.lowering import BackendDetails
from delegraph.plugins.discovery import Offer
from delegraph.plugins.loader import adopt
from delegraph.plugins.registry import IN_PROCESS, PluginRegistry

__all__ = ["find_lowering"]

_GROUP = "lowerings"


def find_lowering(backend_id: str, plugins: PluginRegistry) -> tuple[Offer, Any]:
    """The backend's lowering, and who offers it.

    Where `plugins` knows none, a class that is defined in this process and called `backend_id` is one, as in ExecuTorch
    (`exir/backend/backend_api.py`). Raises `PluginNotFound`, `PluginConflict` also for classes of several modules, and
    as `PluginRegistry.load`.
    """
    lowering = None if backend_id in plugins.names(_GROUP) else _class_named(backend_id)
    if lowering is None:
        try:
            return plugins.find(_GROUP, backend_id), plugins.load(_GROUP, backend_id)
        except PluginNotFound as error:
            raise restated(error, f"Backend {backend_id} was not found. {error}") from None
    offer = Offer(f"delegraph.{_GROUP}", backend_id, f"{lowering.__module__}:{lowering.__qualname__}", IN_PROCESS, "0")
    return offer, adopt(offer, lowering)


def _class_named(name: str) -> type | None:
    """The class of that name; of several in one module, a notebook's or two tests', the one that was defined last."""
    derived = [cls for cls in _derived(BackendDetails) if cls.__name__ == name]  # type: ignore[type-abstract]
    classes = {cls.__module__: cls for cls in derived}
    if len(classes) > 1:
        raise PluginConflict(
            f"{len(classes)} classes that derive from BackendDetails are called {name!r}:"
            f" {', '.join(sorted(f'{module}.{cls.__qualname__}' for module, cls in classes.items()))}\n"
            f"  what to do: rename one, or register the one that is meant:"
            f' default_registry().register("lowerings", {name!r}, TheClass)'
        )
    return next(iter(classes.values()), None)


def _derived(base: type[BackendDetails]) -> Iterator[type[BackendDetails]]:
    for cls in base.__subclasses__():
        if not inspect.isabstract(cls):
            yield cls
        yield from _derived(cls)
