"""Installed backends -> the devices of this machine, who drives each, and what else could be installed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from delegraph.lazy_dataclass import dataclass
from delegraph.plugins.check import CheckResult, Questions, check
from delegraph.plugins.inventory import OfferState, inventory

__all__ = ["DeviceRow", "device_rows"]


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device, and a backend for it; `kind` and `device` are "" for a backend that finds none. `state` is "ready", or
    why the backend cannot use it."""

    kind: str
    device: str
    backend: str
    distribution: str
    state: str
    fix: str = ""
    remark: str = ""


def device_rows(environ: Mapping[str, str] | None = None, limit: float = 60.0) -> list[DeviceRow]:
    """Ask every installed backend, each in another process within `limit` seconds; those that are ready come first."""
    entries = inventory(os.environ if environ is None else environ)
    offers = [e.offer for e in entries if e.offer.group == "delegraph.backends" and e.state is not OfferState.DISABLED]
    results = check(offers, limit, Questions(devices=True))
    rows = [row for result in results for row in _rows(result)]
    return sorted(rows, key=lambda row: (row.state != "ready", not row.kind, row.kind, row.backend))


def _rows(result: CheckResult) -> Iterator[DeviceRow]:
    backend, distribution = result.offer.name, result.offer.provider
    for device in result.devices:
        state = device.reason or "ready"
        yield DeviceRow(device.kind, device.name, backend, distribution, state, device.fix, device.remark)
    if not result.devices:
        yield DeviceRow("", "", backend, distribution, result.error or result.unavailable or "ready")
