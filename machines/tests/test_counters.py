"""What runtimes say of operators becomes columns and a table; other backends' words are left alone."""

from __future__ import annotations

import delegraph
from delegraph_machines.counters import counters_text, operator_counters, parse_counters


def traced() -> delegraph.EventTracer:
    tracer = delegraph.EventTracer()
    tracer.log_profiling("small", 0, 10, delegate_debug_id="small", metadata=b'{"cycles": 1000, "energy_pj": 2.5}')
    tracer.log_profiling("large", 10, 40, delegate_debug_id=7, metadata=b'{"cycles": 3000, "macs": 12345}')
    tracer.log_profiling("another's", 40, 50, delegate_debug_id="x", metadata=b"\xff not json")
    tracer.log_profiling("silent", 50, 60, delegate_debug_id="y")
    tracer.log_profiling("a list", 60, 70, delegate_debug_id="z", metadata=b"[1, 2]")
    return tracer


def test_operators_with_the_most_cycles_stand_first() -> None:
    events = traced().blocks[-1].profile_events
    assert operator_counters(events) == [
        ("large", {"cycles": 3000, "macs": 12345}),
        ("small", {"cycles": 1000, "energy_pj": 2.5}),
    ]
    assert [line.split() for line in counters_text(events).splitlines()] == [
        ["operator", "of", "all", "cycles", "cycles", "macs", "energy_pj"],
        ["large", "75.0%", "3,000", "12,345"],
        ["small", "25.0%", "1,000", "2"],
    ]


def test_columns_are_means_over_runs() -> None:
    assert parse_counters(['{"cycles": 10, "macs": 4}', '{"cycles": 30, "macs": 4}']) == {"cycles": 20, "macs": 4}
    assert parse_counters(["words", ""]) == {}
    assert parse_counters([]) == {}


def test_nothing_told_is_a_table_of_its_head_alone() -> None:
    assert counters_text([]).split() == ["operator", "of", "all", "cycles"]
