"""Which device a node's results lie on, written on the node: read by emission, shown by the graph's text."""

from __future__ import annotations

from typing import Final

from torch.fx import Node

from delegraph.program.devices import CPU, Device

__all__ = ["DEVICE", "device_of"]

DEVICE: Final = "delegraph_device"
"""The key in `node.meta`. The results of a node without it lie in the CPU's memory."""


def device_of(node: Node) -> Device:
    """The device on which the results of `node` lie."""
    device = node.meta.get(DEVICE)
    return device if isinstance(device, Device) else CPU
