"""A profile's flame graph and its trace: what a viewer shows."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from delegraph.devtools import node_times
from delegraph.devtools.profiling.flame_graph import WIDTH, draw_flame_graph
from delegraph.devtools.profiling.perfetto import trace_events
from delegraph.runtime.execution.tracing import EventBlock, ProfileEvent

from .test_profile import METHOD, MODEL, MS, profile_of, run

SVG = "{http://www.w3.org/2000/svg}"


def boxes(svg: str) -> dict[str, ElementTree.Element]:
    """The boxes that have tooltips, by the first line of these."""
    rects = [rect for rect in ElementTree.fromstring(svg).iter(f"{SVG}rect") if len(rect)]
    return {str(rect[0].text).partition("\n")[0]: rect for rect in rects}


def number(box: ElementTree.Element, name: str) -> float:
    return float(box.get(name, "nan"))


# ---- the flame graph -------------------------------------------------------------------------------


def test_boxes_are_as_wide_as_times_and_lie_below_what_they_are_in() -> None:
    drawn = boxes(profile_of(run(2, 8, conv=5, fc=3)).flame_graph())
    assert list(drawn) == [
        "the model", "body", "conv", "net.py:2, in forward", "Conv",
        "fc", "net.py:4, in forward", "Gemm",
        "head", "net.py:1, in forward", "add",
    ]  # fmt: skip
    whole = WIDTH - 20
    widths = {name: number(box, "width") / whole for name, box in drawn.items()}
    assert [widths[name] for name in ("the model", "body", "conv", "Conv", "Gemm", "add")] == [
        pytest.approx(share, abs=1e-4) for share in (1, 0.8, 0.5, 0.5, 0.3, 0.2)
    ]
    rows = [number(drawn[name], "y") for name in ("the model", "body", "conv", "net.py:2, in forward", "Conv")]
    assert rows == sorted(set(rows))
    assert number(drawn["Gemm"], "x") == pytest.approx(10 + whole * 0.5, abs=0.01)
    assert {drawn[name].get("class") for name in ("Conv", "Gemm")} == {"d0"} and drawn["add"].get("class") == "kernel"


def test_a_tooltip_tells_times_counters_and_the_origin() -> None:
    counted = ProfileEvent("conv", 0, MS, 0, 1, "conv", b'{"cycles": 1200}')
    events = [ProfileEvent("delegate 0 Engine", 0, 8 * MS, 0, 1), counted]
    svg = draw_flame_graph(node_times([events], MODEL, "forward"), "a run")
    assert str(boxes(svg)["Conv"][0].text).splitlines() == [
        "Conv", "8.000 ms, 100.0%, p90 8.000 ms, p99 8.000 ms", "cycles: 1,200",
        "delegate 0: Conv", "aten::x", "net.py:2, in forward",
    ]  # fmt: skip


def test_the_scale_has_round_times() -> None:
    texts = [
        text.text for text in ElementTree.fromstring(profile_of(run(2, 8, conv=5)).flame_graph()).iter(f"{SVG}text")
    ]
    assert texts[1:12] == ["0 ms", *map(str, range(1, 11))]


def test_what_an_engine_added_is_its_delegate_s() -> None:
    drawn = boxes(profile_of(run(2, 8, conv=5, ConvertLayout=3)).flame_graph())
    assert drawn["ConvertLayout"].get("class") == "d0"


def test_it_needs_no_script_and_knows_dark() -> None:
    svg = profile_of(run(2, 8, conv=5)).flame_graph()
    assert "prefers-color-scheme: dark" in svg and "<script" not in svg and "http" not in svg.replace(SVG[1:-1], "")


def test_what_a_stranger_named_is_escaped() -> None:
    events = [ProfileEvent("<script>\x00", 0, MS, 0, 7)]
    svg = draw_flame_graph(node_times([events], MODEL, "forward"), "<b>")
    assert "<script>\N{REPLACEMENT CHARACTER}" in boxes(svg)
    assert "<b>" not in svg


def test_nothing_to_draw() -> None:
    assert boxes(draw_flame_graph([], "no runs")) == {}


# ---- the trace -------------------------------------------------------------------------------------


def told(*events: ProfileEvent) -> tuple[dict[str, list[tuple[str, float, float]]], list[tuple[str, float, float]]]:
    """The spans of each track, with their begin and length, and the counters with their time and value."""
    rows = trace_events([EventBlock("Method::execute", list(events))], METHOD)["traceEvents"]
    names = {row["tid"]: row["args"]["name"] for row in rows if row["name"] == "thread_name"}
    tracks: dict[str, list[tuple[str, float, float]]] = {}
    for row in (row for row in rows if row["ph"] == "X"):
        tracks.setdefault(f"{row['tid']} {names[row['tid']]}", []).append((row["name"], row["ts"], row["dur"]))
    counters = [(row["name"], row["ts"], row["args"]["value"]) for row in rows if row["ph"] == "C"]
    return tracks, counters


def test_tracks_of_the_host_and_of_each_engine() -> None:
    tracks, counters = told(
        ProfileEvent("aten::add.out", 1000, 3000, 0, 0),
        ProfileEvent("Conv", 4000, 6000, 0, 1, "conv"),
        ProfileEvent("delegate 0 Engine", 3000, 9000, 0, 1),
        ProfileEvent("Method::execute", 1000, 10_000, metadata=b"forward"),
    )
    assert tracks == {
        "1 host": [("Method::execute", 0, 9), ("add head", 0, 2), ("delegate 0 Engine", 2, 6)],
        "2 delegate 0 Engine": [("Conv body.conv", 3, 2)],
    }
    assert counters == []


def test_spans_that_overlap_are_on_tracks_of_their_own() -> None:
    """As of a device that loads ahead, and beside which the host computes: a viewer wants spans in each other."""
    tracks, _ = told(
        ProfileEvent("Method::execute", 0, 9000, metadata=b"forward"),
        ProfileEvent("aten::add.out", 2000, 6000, 0, 0),
        ProfileEvent("wait", 6000, 8000, 0, 1, "wait"),
        ProfileEvent("delegate 0 Engine", 1000, 8000, 0, 1),
        ProfileEvent("Conv", 1000, 5000, 0, 1, "conv"),
        ProfileEvent("Gemm", 3000, 7000, 0, 1, "fc"),
    )
    for spans in tracks.values():
        for name, begin, length in spans:
            for other, start, size in spans:
                apart = begin + length <= start or start + size <= begin
                nested = begin <= start and start + size <= begin + length
                within = start <= begin and begin + length <= start + size
                assert apart or nested or within, (name, other)
    assert list(tracks) == ["1 host", "2 delegate 0 Engine", "3 delegate 0 Engine"]
    assert ("wait", 6, 2) in tracks["1 host"]


def test_counters_add_up_over_a_run() -> None:
    _, counters = told(
        ProfileEvent("Conv", 0, 2000, 0, 1, "conv", b'{"cycles": 10, "energy_pj": 4}'),
        ProfileEvent("Gemm", 2000, 3000, 0, 1, "fc", b'{"cycles": 5}'),
    )
    cycles = [(at, value) for name, at, value in counters if name == "delegate 0 Engine cycles"]
    assert cycles == [(0, 0), (2, 10), (3, 15)]
    assert ("delegate 0 Engine energy_pj", 2, 4) in counters


def test_a_span_tells_its_origin() -> None:
    rows = trace_events([EventBlock("run", [ProfileEvent("Conv", 0, 2, 0, 1, "conv", b'{"cycles": 3}')])], METHOD)
    (span,) = (row for row in rows["traceEvents"] if row["ph"] == "X")
    assert span["args"] == {
        "instruction": 1, "module": "body.conv", "lines": "net.py:2, in forward", "operators": "aten::x",
        "node": "Conv", "cycles": 3,
    }  # fmt: skip
