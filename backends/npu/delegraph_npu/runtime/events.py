"""A run of a program -> events of a tracer: a span of the machine's own time for each operator, with its counters."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from delegraph_npu.cost import Cost, Segment
from delegraph_npu.runtime.program import Program

if TYPE_CHECKING:
    from delegraph.interfaces import EventTracer

__all__ = ["by_operator", "counters", "log_operators"]


def log_operators(program: Program, tracer: EventTracer, start: int) -> None:
    """Tell `tracer` of a run that began at `start`, in nanoseconds: an event for each operator, in the order in which
    they end, with the total time that the machine works for it, tiles and loads ahead together.

    Events have the operators' names for ids, and `counters` as JSON for metadata; their times are simulated and
    independent of the host's time.
    """
    nanoseconds = 1000 / program.device.clock_mhz
    for segment in by_operator(program.segments):
        name = program.blob.operators[segment.operator]
        begin, end = (start + round(at * nanoseconds) for at in (segment.begin, segment.end))
        metadata = json.dumps({"cycles": round(segment.end - segment.begin), **counters(segment.cost)}).encode()
        tracer.log_profiling(name, begin, end, delegate_debug_id=name, metadata=metadata)


def by_operator(segments: Iterable[Segment]) -> list[Segment]:
    """A segment for each operator: it ends with the last of its segments and is as long as all of them."""
    whole: dict[int, Segment] = {}
    for part in segments:
        before = whole.pop(part.operator, Segment(part.operator, 0.0, 0.0, Cost()))
        cycles = before.end - before.begin + part.end - part.begin
        whole[part.operator] = Segment(part.operator, part.end - cycles, part.end, before.cost + part.cost)
    return list(whole.values())


def counters(cost: Cost) -> dict[str, float]:
    """The parts of a cost: cycles for which each part is busy, work, bytes, picojoules."""
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
