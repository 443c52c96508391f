"""A run of a program -> events of a tracer: a span of the machine's own time for each operator, with its counters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from delegraph_npu.cost import Cost
from delegraph_npu.runtime.program import Program

if TYPE_CHECKING:
    from delegraph.interfaces import EventTracer

__all__ = ["counters", "log_operators"]


def log_operators(program: Program, tracer: EventTracer, start: int) -> None:
    """Tell `tracer` of a run that began at `start`, in nanoseconds. Events have the operators' names for ids, and
    `counters` as JSON for metadata; their times are simulated and have nothing to do with how long the host took."""
    nanoseconds = 1000 / program.device.clock_mhz
    for segment in program.segments:
        name = program.blob.operators[segment.operator]
        begin, end = (start + round(at * nanoseconds) for at in (segment.begin, segment.end))
        metadata = json.dumps({"cycles": round(segment.end - segment.begin), **counters(segment.cost)}).encode()
        tracer.log_profiling(name, begin, end, delegate_debug_id=name, metadata=metadata)


def counters(cost: Cost) -> dict[str, float]:
    """What a cost consists of: cycles for which each part is busy, work, bytes, picojoules."""
    return {
        "array_cycles": round(cost.array),
        "output_cycles": round(cost.output),
        "sram_cycles": round(cost.sram),
        "dram_cycles": round(cost.dram),
        "macs": cost.macs,
        "sram_bytes": cost.sram_nbytes,
        "dram_bytes": cost.dram_nbytes,
        "energy_pj": round(cost.energy.total, 1),
    }
