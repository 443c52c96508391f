"""Which layer costs the cycles: an event for each operator, in a tracer's blocks and in an Inspector's table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from backends.npu.tests.layers import exported
from backends.npu.tests.networks import Layer

import delegraph
from delegraph.devtools import event_counters, profile
from delegraph.runtime import Runtime
from delegraph_executorch.devtools import Inspector
from delegraph_machines.counters import parse_counters
from delegraph_npu.cost import Cost, Segment
from delegraph_npu.runtime.events import by_operator

LAYER = Layer("conv", 12, 12, 8, 16, (3, 3))


@pytest.fixture(scope="module")
def program() -> bytes:
    return bytes(delegraph.lower(exported(LAYER), backends=[("npu", {"take_all": True})]))


def image() -> Any:
    return torch.zeros((1, 8, 12, 12), dtype=torch.int8)


def test_a_traced_run_tells_what_each_operator_costs(program: bytes) -> None:
    tracer = delegraph.EventTracer()
    delegraph.load(program, event_tracer=tracer)(image().numpy())
    events = tracer.blocks[-1].profile_events
    (event,) = (event for event in events if event.delegate_debug_id is not None)
    counters = event_counters(event.metadata)
    assert "conv" in event.name
    assert counters["macs"] == LAYER.macs
    assert counters["dram_bytes"] > 0, "its weights are fetched, ahead of it"
    assert event.end - event.start == pytest.approx(counters["cycles"] * 2, abs=2), "nanoseconds at 500 MHz"
    (delegate,) = profile(program, [image()], repeat=2).delegates
    assert delegate.counters == counters


def test_an_inspector_has_a_column_for_each_counter(program: bytes, tmp_path: Path) -> None:
    loaded = Runtime.get().load_program(program, enable_etdump=True, debug_buffer_size=1 << 16)
    method = loaded.load_method("forward")
    for _ in range(2):
        method.execute([image()])
    etdump, buffer = str(tmp_path / "m.etdp"), str(tmp_path / "m.bin")
    loaded.write_etdump_result_to_file(etdump, buffer)
    inspector = Inspector(etdump_path=etdump, debug_buffer_path=buffer, delegate_metadata_parser=parse_counters)
    table = inspector.to_dataframe(include_delegate_debug_data=True)
    (row,) = (row for _, row in table.iterrows() if row["macs"] == LAYER.macs)
    assert row["event_name"] == row["delegate_debug_identifier"]
    assert len(row["raw"]) == 2
    assert row["avg (ms)"] == pytest.approx(row["cycles"] / 500e3, rel=1e-2)
    assert row["energy_pj"] > 0


def test_tiles_and_prefetches_are_their_operators() -> None:
    """Two operators whose tiles take turns: each is as long as its tiles, both together as all of it."""
    segments = [
        Segment(0, 0, 10, Cost(macs=1)),
        Segment(1, 10, 10, Cost(dram_nbytes=64)),
        Segment(0, 10, 30, Cost(macs=2)),
        Segment(1, 30, 35, Cost(macs=4)),
        Segment(0, 35, 36, Cost(macs=8)),
    ]
    assert by_operator(segments) == [
        Segment(1, 30, 35, Cost(macs=4, dram_nbytes=64)),
        Segment(0, 5, 36, Cost(macs=11)),
    ]
