"""A device behind ssh: programs are put there, and run there. The public names, each imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegraph.lazy import lazy_names

if TYPE_CHECKING:
    from delegraph.remote.device import Device
    from delegraph.remote.folder import DeviceFolder, Done
    from delegraph.remote.pushing import Pushed, push, rollback


__all__ = ["Device", "DeviceFolder", "Done", "Pushed", "push", "rollback"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "delegraph.remote.device": ("Device",),
        "delegraph.remote.folder": ("DeviceFolder", "Done"),
        "delegraph.remote.pushing": ("Pushed", "push", "rollback"),
    },
)
