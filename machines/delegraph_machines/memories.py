"""A memory's speed and a number of bytes -> cycles of the core's clock.

The model, and the numbers that describe a memory, are those of Vela's performance estimator (Apache-2.0; `vela.ini`,
`npu_performance.py`): bandwidth, bursts that are paid whole, and a latency for the first byte.
"""

from __future__ import annotations

from delegraph.lazy_dataclass import dataclass

__all__ = ["Memory", "access_cycles", "transfer_cycles"]


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory as the core sees it. `nbytes`: its size, None for no limit. `bytes_per_cycle`: its bandwidth, per cycle
    of the core. `burst_nbytes`: the least that an access moves. Latencies are in cycles of the core."""

    name: str
    nbytes: int | None = None
    bytes_per_cycle: float = 16.0
    burst_nbytes: int = 16
    read_latency: int = 0
    write_latency: int = 0

    def __post_init__(self) -> None:
        """Raise `ValueError` for an impossible memory."""
        if not self.bytes_per_cycle > 0 or self.burst_nbytes < 1:
            raise ValueError(f"memory {self.name!r}: its bandwidth and burst are above 0")
        if min(self.read_latency, self.write_latency, self.nbytes or 0) < 0:
            raise ValueError(f"memory {self.name!r}: its size and latencies are not below 0")


def access_cycles(memory: Memory, nbytes: int, run_nbytes: int | None = None) -> float:
    """Cycles for which `memory` is busy with `nbytes`, in runs of `run_nbytes` that lie together (all of them, if
    None): each run takes whole bursts."""
    if nbytes == 0:
        return 0.0
    run = min(nbytes, run_nbytes or nbytes)
    runs, rest = divmod(nbytes, run)
    bursts = runs * -(-run // memory.burst_nbytes) + -(-rest // memory.burst_nbytes)
    return bursts * memory.burst_nbytes / memory.bytes_per_cycle


def transfer_cycles(source: Memory, target: Memory, nbytes: int, run_nbytes: int | None = None) -> float:
    """Cycles from the start of a transfer to its last byte: the slower side, and the latency of its first byte."""
    if nbytes == 0:
        return 0.0
    read = access_cycles(source, nbytes, run_nbytes) + source.read_latency
    write = access_cycles(target, nbytes, run_nbytes) + target.write_latency
    return max(read, write)
