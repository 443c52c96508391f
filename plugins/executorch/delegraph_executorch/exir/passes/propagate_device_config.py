"""Where device copies are left out: `delegraph.aot.PropagateDeviceConfig`, under its name in ExecuTorch."""

from __future__ import annotations

from delegraph.aot import PropagateDeviceConfig

__all__ = ["PropagateDeviceConfig"]
