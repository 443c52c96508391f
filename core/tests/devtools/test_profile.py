"""The times of traced runs: delegates are divided among their nodes, whatever clock these have."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain, count, cycle, repeat

import pytest

from delegraph.devtools import DelegateRow, MethodModel, NodeRow, Origin, Profile, ProgramModel, node_times
from delegraph.devtools.backend_reports import asked_to_report
from delegraph.devtools.profiling.measuring import Effort, _measure, precision
from delegraph.devtools.profiling.tables import profile_tables, remarks
from delegraph.errors import InvalidArgument
from delegraph.plugins.registry import PluginRegistry
from delegraph.runtime import BackendInterface
from delegraph.runtime.execution.tracing import EventBlock, ProfileEvent

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
DELEGATE = DelegateRow("forward", 0, "Engine", 9, "delegate 0 of forward", None)
METHOD = MethodModel("forward", (KERNEL, *NODES), (), (DELEGATE,), (WHOLE,))
MODEL = ProgramModel((METHOD,))


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


def profile_of(*runs: list[ProfileEvent], model: ProgramModel = MODEL, untraced: tuple[float, ...] = ()) -> Profile:
    seconds = tuple(events[0].duration / 1e9 for events in runs)
    nodes = tuple(node_times(runs, model, "forward"))
    return Profile("forward", 1, seconds, untraced or seconds, nodes, METHOD, (EventBlock("Method::execute", runs[0]),))


def test_modules_are_a_tree_and_lines_a_list() -> None:
    profile = profile_of(run(2, 8, conv=50, fc=30))
    assert [(row.name, pytest.approx(row.share), pytest.approx(row.own)) for row in profile.modules] == [
        ("", 1.0, 0.0),
        ("body", 0.8, 0.0), ("body.conv", 0.5, 5e-3), ("body.fc", 0.3, 3e-3),
        ("head", 0.2, 2e-3),
    ]  # fmt: skip
    assert [(row.name, pytest.approx(row.median)) for row in profile.lines] == [
        ("net.py:2, in forward", 5e-3), ("net.py:4, in forward", 3e-3), ("net.py:1, in forward", 2e-3),
    ]  # fmt: skip
    (delegate,) = profile.delegates
    assert (delegate.index, delegate.backend, delegate.nodes) == (0, "Engine", 2)
    assert (delegate.median, delegate.reported) == (pytest.approx(8e-3), pytest.approx(80e-3))


def test_runs_are_told_by_percentiles() -> None:
    """Of a module, those of its steps together in each run: the slow runs of two steps are not the same ones."""
    slow = [*([1] * 9), 91]
    profile = profile_of(
        *(run(1, kernel + other, conv=kernel, fc=other) for kernel, other in zip(slow, slow[::-1], strict=True))
    )
    (conv,) = (row for row in profile.nodes if row.node is NODES[0])
    assert (conv.median, conv.mean, conv.p90, conv.p99) == tuple(map(pytest.approx, (1e-3, 10e-3, 1e-3, 91e-3)))
    (body,) = (row for row in profile.modules if row.name == "body")
    assert (body.median, body.p90, body.p99) == tuple(map(pytest.approx, (2e-3, 92e-3, 92e-3)))


def test_a_step_that_did_not_run_took_no_time() -> None:
    rows = node_times([run(2, 8), run(2, 8)[:2]], MODEL, "forward")
    (delegate,) = (row for row in rows if row.node is WHOLE)
    assert delegate.seconds == (pytest.approx(8e-3), 0.0)


def test_waiting_for_a_delegate_is_no_step_of_it() -> None:
    """As of a device that works beside the host."""
    events = [ProfileEvent("wait", 0, 7 * MS, 0, 1, "wait"), *run(2, 8, conv=3)]
    assert [row.node for row in node_times([events], MODEL, "forward")] == [NODES[0], KERNEL]


def test_what_reports_nothing_is_one_step() -> None:
    rows = node_times([run(2, 8)], MODEL, "forward")
    assert [r.node for r in rows] == [WHOLE, KERNEL], "not the node without an id"
    (tile,) = (r for r in node_times([run(2, 8, fc_tile_7=1)], MODEL, "forward") if r.name == "fc_tile_7")
    assert tile.node is NODES[2], "an id that has a known one in it"
    (added,) = (r for r in node_times([run(2, 8, Reshape=1)], MODEL, "forward") if r.name == "Reshape")
    assert added.node is NODES[1], "the name of a node that its engine added"
    (unknown,) = (r for r in node_times([run(2, 8, other=1)], MODEL, "forward") if r.name == "other")
    assert (unknown.operator, unknown.module, unknown.line, unknown.delegate) == ("other", "", "", 0)


def test_tables() -> None:
    modules, lines, nodes, delegates, counters = profile_tables(profile_of(run(2, 8, conv=3, fc=1)))
    assert nodes.rows[0] == ("Conv", "body.conv", "net.py:2", "d0", "6.000", "6.000", "6.000", "60.0%")
    assert ("add", "head", "net.py:1", "", "2.000", "2.000", "2.000", "20.0%") in nodes.rows
    assert [row[0] for row in modules.rows] == ["the model", "  body", "    conv", "    fc", "  head"]
    assert modules.rows[1] == ("  body", "8.000", "8.000", "8.000", "80.0%")
    assert lines.rows[0] == ("net.py:2", "6.000", "6.000", "6.000", "60.0%")
    assert delegates.rows == [("d0", "Engine", "8.000", "8.000", "8.000", "80.0%", "2 nodes, 4.000 ms by its clock")]
    assert not counters.rows


def test_what_is_not_known_is_said() -> None:
    silent = profile_of(run(2, 8))
    assert list(profile_tables(silent))[3].rows[0][-1] == "one node: it reports none"
    assert "Engine does not give times by node: each delegate of it is one step here" in remarks(silent)
    assert not any("does not give times" in remark for remark in remarks(profile_of(run(2, 8, conv=3))))
    unknown = profile_of(run(2, 8), model=ProgramModel(()))
    modules, lines, nodes, *_ = profile_tables(unknown)
    assert not modules.rows and not lines.rows
    assert nodes.rows[0][:2] == ("delegate 0 Engine", "")
    assert any("was lowered without debug data" in remark for remark in remarks(unknown))
    assert not any("debug data" in remark for remark in remarks(silent))


def test_what_tracing_costs_is_said_where_it_is_more_than_what_runs_differ_by() -> None:
    """Of the 99 ms of a run its steps take 10, which may be more than a whole run took without tracing."""
    slowed = remarks(profile_of(*[run(2, 8)] * 9, untraced=(66e-3,) * 9))
    assert "without tracing 66.000 ms: it costs 50.0%" in slowed
    assert not any("nodes add up" in remark for remark in slowed), "the tracer took it between them"
    assert "nodes add up to 10.000 ms: with tracing, small ones look larger than they are" in remarks(
        profile_of(*[run(2, 8)] * 9, untraced=(5e-3,) * 9)
    )
    same = remarks(profile_of(*[run(2, 8)] * 9))
    assert "without tracing 99.000 ms: it costs less than what runs differ by" in same


# ---- how often -------------------------------------------------------------------------------------


def measured(effort: Effort, times: Iterator[float], most: int = 1000) -> tuple[int, int]:
    """How often it warmed up and ran."""
    told = _measure(partial(next, times), partial(next, times), effort, most)
    assert len(told.traced) == len(told.untraced)
    return told.warmup, len(told.traced)


def test_it_runs_until_the_median_is_known() -> None:
    assert measured(Effort(warmup=0), repeat(1e-3)) == (0, 30)
    assert measured(Effort(warmup=3, repeat=7), cycle([1e-3, 9e-3])) == (3, 7)
    assert measured(Effort(warmup=0), (1e-3 * n for n in count(1)), most=55) == (0, 55)
    assert measured(Effort(seconds=1e-9), repeat(1e-3)) == (1, 1), "once at least"


def test_it_warms_up_until_times_no_longer_fall() -> None:
    assert measured(Effort(), chain([8.0e-3, 4e-3, 2e-3], repeat(1e-3)))[0] == 7


def test_how_well_a_median_is_known() -> None:
    assert precision([1.0] * 30) == 0
    assert precision(range(1, 101)) == pytest.approx(0.19), "0.98 sqrt(n) ranks around the middle"


# ---- counters --------------------------------------------------------------------------------------


def test_counters_of_a_device_are_told() -> None:
    def counted(*metadata: bytes) -> list[ProfileEvent]:
        tiles = [ProfileEvent("conv", 0, MS, 0, 1, "conv", said) for said in metadata]
        return [ProfileEvent("delegate 0 Engine", 0, 8 * MS, 0, 1), *tiles]

    runs = [counted(b'{"cycles": 10, "unit": "pJ"}', b'{"cycles": 30, "energy_pj": 2.5}'), counted(b'{"cycles": 60}')]
    (conv,) = node_times(runs, MODEL, "forward")
    assert conv.counters == {"cycles": 50, "energy_pj": 1.25}
    modules, lines, *_, counters = profile_tables(profile_of(*runs))
    assert counters.columns[2:] == ("cycles", "energy_pj") and counters.rows[0][:3] == ("Conv", "body.conv", "50")
    assert modules.columns[-2:] == lines.columns[-2:] == ("cycles", "energy_pj")
    assert modules.rows[1][0] == "  body" and modules.rows[1][-2:] == ("50", "1")
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
    there = frozenset({"Silent", "Profiling", "Absent"})
    assert asked_to_report("profiling", there, {}, plugins) == {"Profiling": {"profiling": True}}
    own = {"Profiling": {"threads": 2}, "Silent": {"a": 1}}
    assert asked_to_report("profiling", there, own, plugins) == {**own, "Profiling": {"profiling": True, "threads": 2}}
    off = {"Profiling": {"profiling": False}}
    assert asked_to_report("profiling", there, off, plugins) == off
