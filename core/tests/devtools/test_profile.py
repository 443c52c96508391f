"""The times of traced runs: delegates are divided among their nodes, whatever clock these have."""

from __future__ import annotations

import pytest

from delegraph.devtools.profile import node_times, profile_tables, profiling_options, shares_by
from delegraph.devtools.program_model.rows import MethodModel, NodeRow, Origin, ProgramModel
from delegraph.errors import InvalidArgument
from delegraph.plugins.registry import PluginRegistry
from delegraph.runtime import BackendInterface
from delegraph.runtime.execution.tracing import ProfileEvent

MS = 1_000_000


def row(instruction: int, operator: str, module: str, line: str, delegate: int | None = None, id_: str = "") -> NodeRow:
    origin = Origin(("aten::x",), (module,), (f"net.py:{line}, in forward",))
    return NodeRow("forward", instruction, delegate, operator, operator, (), origin, (), id_ or None)


KERNEL = row(0, "aten::add.out", "head", "1")
NODES = (
    row(1, "Conv", "body.conv", "2", 0, "conv"),
    row(1, "Reshape", "body", "3", 0),
    row(1, "Gemm", "body.fc", "4", 0, "fc"),
)
WHOLE = row(1, "Engine", "body", "2", 0)
MODEL = ProgramModel((MethodModel("forward", (KERNEL, *NODES), (), (), (WHOLE,)),))


def run(kernel: int, call: int, **inside: int) -> list[ProfileEvent]:
    """The events of a run, in milliseconds."""
    return [
        ProfileEvent("Method::execute", 0, 99 * MS),
        ProfileEvent("aten::add.out", 0, kernel * MS, 0, 0),
        *(ProfileEvent(name, 0, ms * MS, 0, 1, name) for name, ms in inside.items()),
        ProfileEvent("delegate 0 Engine", 0, call * MS, 0, 1),
    ]


def test_a_delegates_time_is_divided_as_it_reports() -> None:
    """The engine's clock runs ten times as fast: its nodes share the 8 ms that the host saw."""
    rows = node_times([run(2, 8, conv=50, fc=30)], MODEL, "forward")
    assert [(r.node, r.median, r.share, r.reported) for r in rows] == [
        (NODES[0], pytest.approx(5e-3), pytest.approx(0.5), pytest.approx(50e-3)),
        (NODES[2], pytest.approx(3e-3), pytest.approx(0.3), pytest.approx(30e-3)),
        (KERNEL, pytest.approx(2e-3), pytest.approx(0.2), None),
    ]
    assert [(share.name, pytest.approx(share.share)) for share in shares_by(rows, lambda r: r.module)] == [
        ("body.conv", 0.5), ("body.fc", 0.3), ("head", 0.2),
    ]  # fmt: skip


def test_runs_are_told_by_median_mean_and_the_ninth_tenth() -> None:
    rows = node_times([run(ms, 1) for ms in (1, 1, 1, 1, 1, 1, 1, 1, 1, 91)], MODEL, "forward")
    (kernel,) = (r for r in rows if r.node is KERNEL)
    assert (kernel.median, kernel.mean, kernel.p90) == (pytest.approx(1e-3), pytest.approx(10e-3), pytest.approx(10e-3))


def test_what_reports_nothing_is_one_step() -> None:
    rows = node_times([run(2, 8)], MODEL, "forward")
    assert [r.node for r in rows] == [WHOLE, KERNEL], "not the node without an id"
    (tile,) = (r for r in node_times([run(2, 8, fc_tile_7=1)], MODEL, "forward") if r.name == "fc_tile_7")
    assert tile.node is NODES[2], "an id that has a known one in it"
    (unknown,) = (r for r in node_times([run(2, 8, other=1)], MODEL, "forward") if r.node is None)
    assert (unknown.name, unknown.module, unknown.line) == ("other", "", "")


def test_tables() -> None:
    nodes, modules, lines, counters = profile_tables(node_times([run(2, 8, conv=3, fc=1)], MODEL, "forward"))
    assert nodes.rows[0] == ("Conv", "body.conv", "net.py:2", "6.000 ms", "6.000 ms", "60.0%")
    assert ("add", "head", "net.py:1", "2.000 ms", "2.000 ms", "20.0%") in nodes.rows
    assert modules.rows[0] == ("body.conv", "6.000 ms", "60.0%")
    assert lines.rows[0] == ("net.py:2, in forward", "6.000 ms", "60.0%")
    assert not counters.rows
    assert list(profile_tables(node_times([run(2, 8)], ProgramModel(()), "forward"))) == [], "nothing is known"


def test_counters_of_a_device_are_told() -> None:
    def counted(*metadata: bytes) -> list[ProfileEvent]:
        tiles = [ProfileEvent("conv", 0, MS, 0, 1, "conv", said) for said in metadata]
        return [ProfileEvent("delegate 0 Engine", 0, 8 * MS, 0, 1), *tiles]

    runs = [counted(b'{"cycles": 10, "unit": "pJ"}', b'{"cycles": 30, "energy_pj": 2.5}'), counted(b'{"cycles": 60}')]
    (conv,) = node_times(runs, MODEL, "forward")
    assert conv.counters == {"cycles": 50, "energy_pj": 1.25}
    *_, counters = profile_tables([conv])
    assert counters.columns[2:] == ("cycles", "energy_pj") and counters.rows[0][:3] == ("Conv", "body.conv", "50")
    (kernel,) = node_times([counted(b"brgemm_avx512", b"{not json", b"")], MODEL, "forward")
    assert not kernel.counters


def test_backends_that_can_are_asked_for_the_times_of_their_nodes() -> None:
    class Asked(BackendInterface):
        def init(self, context, processed, compile_specs):  # type: ignore[no-untyped-def]
            raise AssertionError

        execute = init  # type: ignore[assignment]

    class Profiling(Asked):
        def get_option(self, keys):  # type: ignore[no-untyped-def]
            if set(keys) != {"profiling"}:
                raise InvalidArgument("no such option")
            return {"profiling": False}

    plugins = PluginRegistry()
    plugins.register("backends", "Silent", Asked())
    plugins.register("backends", "Profiling", Profiling())
    assert profiling_options(["Silent", "Profiling", "Absent"], plugins) == {"Profiling": {"profiling": True}}
