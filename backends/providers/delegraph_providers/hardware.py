"""This machine -> the GPUs and NPUs that it has, whether or not a provider for them is installed.

Linux tells of them in files (kernel.org/doc: ABI/testing/sysfs-bus-pci, the classes are those of pcisig's "PCI Code and
ID Assignment"); macOS on Apple silicon has one of each. Windows is not asked: there, providers tell when they are
installed.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Final

from delegraph.lazy_dataclass import dataclass

__all__ = ["Hardware", "hardware_here"]

_PCI: Final = Path("/sys/bus/pci/devices")
_FASTRPC: Final = Path("/dev")
_DISPLAY, _ACCELERATOR = "0x03", "0x12"
"""The first byte of a device's class."""
_MAKERS: Final = {"10de": "NVIDIA", "1002": "AMD", "8086": "Intel", "17cb": "Qualcomm"}


@dataclass(frozen=True, slots=True)
class Hardware:
    """A device: "GPU" or "NPU", its maker's number in PCI or "Apple", and words for people."""

    kind: str
    vendor: str
    name: str


def hardware_here(pci: Path = _PCI, dev: Path = _FASTRPC) -> list[Hardware]:
    """The GPUs and NPUs of this machine, as far as its system tells."""
    if platform.system() == "Darwin":
        return [Hardware("GPU", "Apple", "Apple silicon's GPU")] if platform.machine() == "arm64" else []
    devices = [hardware for place in sorted(pci.glob("*")) if (hardware := _of_pci(place)) is not None]
    if any(dev.glob("fastrpc-cdsp*")):  # the channel to a compute DSP (drivers/misc/fastrpc.c of Linux)
        devices.append(Hardware("NPU", "17cb", "Qualcomm's Hexagon processor"))
    return devices


def _of_pci(place: Path) -> Hardware | None:
    try:
        kind, vendor, device = (place.joinpath(name).read_text().strip() for name in ("class", "vendor", "device"))
    except OSError:
        return None
    vendor, device = vendor.removeprefix("0x"), device.removeprefix("0x")
    if kind[:4] not in (_DISPLAY, _ACCELERATOR) or (kind[:4] == _DISPLAY and vendor not in _MAKERS):
        return None  # a display of a virtual machine, or of a server's board, computes nothing
    maker = _MAKERS.get(vendor, "maker")
    return Hardware("GPU" if kind[:4] == _DISPLAY else "NPU", vendor, f"{maker} {vendor}:{device} at {place.name}")
