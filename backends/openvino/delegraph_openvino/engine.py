"""OpenVINO without its telemetry, and its entry: whoever needs OpenVINO in this package imports it from here.

`import openvino` imports its converter, and that `openvino_telemetry`, if it is installed: this writes
~/intel/openvino_ga_cid and `stats`, forks, asks the network for an address and leaves a thread. Where the package
cannot be imported OpenVINO takes a stub of its own (`openvino/tools/ovc/telemetry_stub.py`). So it cannot, for as
long as this import takes; afterwards anybody can import it. Who imported OpenVINO before has chosen already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, cast

from delegraph.errors import NotSupported
from delegraph.interfaces import leave_at_fork

__all__ = ["LEFT", "Node", "Output", "Type", "core", "openvino", "opset13", "opset15"]

_TELEMETRY: Final = "openvino_telemetry"


@contextmanager
def _without_telemetry() -> Iterator[None]:
    if _TELEMETRY in sys.modules:  # somebody wants it
        yield
        return
    sys.modules[_TELEMETRY] = cast(Any, None)  # by which Python refuses to import it
    try:
        yield
    finally:
        del sys.modules[_TELEMETRY]


with _without_telemetry():
    import openvino
    from openvino import Node, Output, Type, opset13, opset15


class _Left:
    """In place of OpenVINO's objects, in a child of the process that made them."""

    def __getattr__(self, name: str) -> NoReturn:
        raise NotSupported(
            "this process was forked from one in which delegates of OpenVINO had been loaded, and OpenVINO's threads"
            " stayed there: fork before the first one is loaded, or start processes by spawn"
        )


LEFT: Final[Any] = _Left()


class _Entry:
    """`openvino.Core`, which knows the devices: one for the process."""

    core: openvino.Core | None = None

    def leave(self) -> object:
        core, self.core = self.core, LEFT
        return core


_ENTRY: Final = _Entry()


def core() -> openvino.Core:
    """OpenVINO's entry. In a child of a process that has it, everything asked of it raises `NotSupported`."""
    if _ENTRY.core is None:
        _ENTRY.core = openvino.Core()
        leave_at_fork(_ENTRY.leave)
    return _ENTRY.core
