"""What runtimes say of operators becomes columns; other backends' words are left alone."""

from __future__ import annotations

from delegraph_machines.counters import parse_counters


def test_columns_are_means_over_runs() -> None:
    assert parse_counters(['{"cycles": 10, "macs": 4}', '{"cycles": 30, "macs": 4}']) == {"cycles": 20, "macs": 4}
    assert parse_counters(["words", "", b"\xff not json", "[1, 2]"]) == {}
    assert parse_counters([]) == {}
