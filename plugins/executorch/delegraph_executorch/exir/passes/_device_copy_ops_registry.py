"""`et_copy`, copies between the CPU's memory and a device's: importing this registers the operators with torch."""

from __future__ import annotations

from delegraph.aot import PropagateDevicePass  # noqa: F401 - what puts them into graphs registers them

__all__: list[str] = []
