"""What tools print becomes numbers of nodes; what is not about the program is refused."""

from __future__ import annotations

from typing import Any

import pytest

from delegraph.devtools.program_model.rows import NodeRow, Origin
from delegraph.devtools.program_view.graph import GraphView, ViewNode
from delegraph.devtools.program_view.overlays import make_overlay, ranked
from delegraph.errors import InvalidArgument


def node(place: str, module: str, line: str, delegate: int | None = None, debug_id: str | None = None) -> ViewNode:
    instruction = int(place.partition("/")[0])
    origin = Origin(modules=(module, f"{module}.bn"), lines=(f"{line}, in forward",))
    handles = {"0": (1,), "1/a": (2, 3), "1/b": (4,)}[place]
    row = NodeRow("forward", instruction, delegate, place, "op", handles, origin, debug_id=debug_id)
    return ViewNode(place, "op", "op", module, lines=origin.lines, row=row)


GRAPH = GraphView(
    "forward",
    (
        node("0", "stem", "net.py:3"),
        node("1/a", "body", "net.py:4", 0, "A"),
        node("1/b", "body", "lib/net.py:5", 0, "B"),
    ),
    ("inputs and outputs", "kernels", "delegate 0: x"),
)


def values(name: str, content: Any) -> dict[str, float]:
    return {place: value for (_, place), value in make_overlay(name, content, [GRAPH]).values.items()}


def step(instruction: int | None, delegate: int | None, debug_id: str | None, seconds: float) -> dict[str, Any]:
    return {"instruction": instruction, "delegate": delegate, "debug_id": debug_id, "p50": seconds}


def test_times_of_a_traced_run() -> None:
    rows = [step(0, None, None, 0.5), step(1, 0, "B", 0.25), step(None, None, None, 9.0)]
    assert values("time", {"nodes": rows}) == {"0": 0.5, "1/b": 0.25}
    assert values("time", {"profile": {"nodes": rows}}) == {"0": 0.5, "1/b": 0.25}


def test_the_time_of_a_whole_delegate_is_shared_by_its_nodes() -> None:
    assert values("time", {"nodes": [step(1, 0, None, 1.0)]}) == {"1/a": 0.5, "1/b": 0.5}


def test_errors_of_layers_are_shares_of_their_results() -> None:
    layers = [{"module": "body.bn", "sqnr": 20.0}, {"module": "stem", "sqnr": None}, {"module": "", "sqnr": 1.0}]
    assert values("error", {"methods": {"forward": {"layers": layers}}}) == pytest.approx({"1/a": 0.1, "1/b": 0.1})


def test_how_far_each_layer_is_from_torch() -> None:
    """NaN is as far off as the largest value; a fused node has the worst of its calls."""
    layers = [{"method": "forward", "handle": h, "error": error} for h, error in ((2, 0.1), (3, 0.2), (4, None))]
    assert values("error", {"layers": layers}) == {"1/a": 0.2, "1/b": 1.0}


def test_a_fault_is_found_by_its_line_whatever_folder_it_lay_in() -> None:
    calls = [{"location": "/home/me/lib/net.py:5, in forward: y = x", "operator": "aten::relu"}]
    assert values("error", {"faults": [{"calls": calls}]}) == {"1/b": 1.0}


def test_node_data_of_model_explorer_with_a_graph_and_without() -> None:
    results = {"results": {"1/a": {"value": 2}}}
    assert values("bytes", results) == values("bytes", {"forward": results}) == {"1/a": 2.0}


def test_numbers_by_node_module_and_line() -> None:
    assert values("time", {"forward:0": 1, "body": 4, "net.py:4": 1}) == {"0": 1.0, "1/a": 3.0, "1/b": 2.0}
    assert values("error", {"body": 4, "net.py:4": 5}) == {"1/a": 5.0, "1/b": 4.0}, "errors do not add up"


def test_the_largest_come_first_and_nothing_is_not_ranked() -> None:
    overlay = make_overlay("bytes", {"0": 1, "1/a": 3, "1/b": 0}, [GRAPH])
    assert [(row.node.id, row.value) for row in ranked(overlay, [GRAPH], 5)] == [("1/a", 3.0), ("0", 1.0)]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("heat", {"0": 1}, "there is no overlay 'heat'; the overlays are time, bytes, error"),
        ("time", {"0": "much"}, "these are no numbers for the overlay 'time'"),
        ("time", {"0": float("nan")}, "expected a number, not nan"),
        ("time", [1], "these are no numbers for the overlay 'time'"),
        ("time", {"nodes": [{}]}, "these are no numbers for the overlay 'time'"),
        ("time", {"head": 1}, "has numbers for 'head', and the program has no such node, module or line"),
        ("time", {}, "has numbers for nothing"),
    ],
)
def test_what_is_no_overlay_is_refused(name: str, content: Any, said: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        make_overlay(name, content, [GRAPH])
    assert said in str(refusal.value)
