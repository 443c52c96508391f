"""`delegraph inspect --memory`: tables, JSON and the drawing of what lies where in planned memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from delegraph.program import write_program
from delegraph.program.debug_data import DebugData, SourceNode
from delegraph.program.memory.memory_drawing import draw_memory
from delegraph.program.memory.memory_maps import memory_map
from delegraph.program.schema import DelegateCall, ExtraTensorInfo, KernelCall, Program

from .conftest import plan, tensor

Told = Callable[..., Any]
Refused = Callable[..., str]

SVG = "{http://www.w3.org/2000/svg}"


def test_json_tells_places_steps_and_the_peak(pte: str, told: Told) -> None:
    (forward,) = [
        method for method in told("inspect", pte, "--memory", "--json")["methods"] if method["method"] == "forward"
    ]
    assert forward["memories"] == [
        {"memory_id": 1, "device": "cpu", "planned_nbytes": 256, "lower_bound": 32, "peak": 0}
    ]
    tensors = [(t["value"], t["op"], t["offset"], t["nbytes"], t["first"], t["last"]) for t in forward["tensors"]]
    assert tensors == [
        (0, "input", 0, 16, -1, 0),
        (3, "aten::add.out", 64, 16, 0, 1),
        (4, "delegate 0, Negator", 128, 16, 1, 2),
    ]
    assert [t["at_peak"] for t in forward["tensors"]] == [True, True, False]


def test_the_table_and_the_drawing(pte: str, told: Told, tmp_path: Path) -> None:
    shown = told("inspect", pte, "--memory", "-o", str(tmp_path / "plan.svg"))
    assert "aten::add.out" in shown and "0 .. 1" in shown and "peak" in shown
    root = ElementTree.parse(tmp_path / "plan.svg").getroot()
    titles = [title.text for title in root.iter(f"{SVG}title")]
    assert "value 3: aten::add.out, bytes 64 to 80, steps 0 to 1" in titles
    boxes = {box.find(f"{SVG}title").text: box for box in root.iter(f"{SVG}rect")}  # type: ignore[union-attr]
    assert boxes["value 3: aten::add.out, bytes 64 to 80, steps 0 to 1"].get("class") == "peak"


def test_boxes_are_called_by_modules_and_lines_and_scales_have_steps_and_bytes() -> None:
    values = [tensor(4, at=0), tensor(4, at=64), tensor(4, at=128)]
    calls = [KernelCall(0, (0, 1, 1)), KernelCall(0, (1, 2, 2))]
    node = SourceNode(("aten::add",), "blocks.0.conv", "net.py:12, in forward")
    data = DebugData({7: node}, {0: (7,)})
    told = memory_map(plan("forward", values, [0], [2], calls, ["aten::add.out"]), (), data)
    assert [placed.source for placed in told.tensors] == ["", "blocks.0.conv (net.py:12, in forward)", ""]
    root = ElementTree.fromstring(draw_memory([told]))
    titles = [title.text for title in root.iter(f"{SVG}title")]
    assert "blocks.0.conv: aten::add.out, blocks.0.conv (net.py:12, in forward), bytes 64 to 80, steps 0 to 1" in titles
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"bytes", "0", "50", "256", "start", "1", "end", "step: the instruction that runs"} <= set(texts)


def test_what_goes_with_what(pte: str, refused: Refused) -> None:
    assert "-o plan.svg goes with --memory" in refused("inspect", pte, "-o", "x.svg", code=2)
    assert "--memory does not go with --text" in refused("inspect", pte, "--memory", "--text", code=2)


def _calls(values: Any, calls: Any, inputs: Any, outputs: Any, **more: Any) -> Any:
    return memory_map(plan("forward", values, inputs, outputs, calls, ["aten::add.out"], **more))


def test_a_view_is_its_tensors_and_parts_are_their_wholes() -> None:
    """0 is given; 1 and 2 are written into the halves of 3, which is read whole; 4 shows the second half of it."""
    values = [tensor(4, at=64), tensor(4, at=0), tensor(4, at=16), tensor(8, at=0), tensor(4, at=16), tensor(8, at=32)]
    calls = [KernelCall(0, (0, 1, 1)), KernelCall(0, (0, 2, 2)), KernelCall(0, (3, 4, 5, 5))]
    told = _calls(values, calls, [0], [5])
    assert [(placed.value, placed.first, placed.last) for placed in told.tensors] == [(0, -1, 1), (3, 0, 2), (5, 2, 3)]
    assert told.memories[0].lower_bound == 64


def test_what_is_read_before_it_is_written_is_a_state() -> None:
    told = _calls([tensor(4, at=0), tensor(4, at=16)], [KernelCall(0, (0, 1, 1)), KernelCall(0, (1, 0, 0))], [], [1])
    assert [(placed.value, placed.op, placed.first, placed.last) for placed in told.tensors] == [
        (0, "state", -1, 2),
        (1, "aten::add.out", 0, 2),
    ]


def test_a_delegates_results_are_its_last_arguments_that_nobody_named() -> None:
    values = [tensor(4, at=0), tensor(4, at=16), tensor(4, at=32), tensor(4, at=48)]
    from delegraph.program.schema import BackendDelegate

    calls = [DelegateCall(0, (0, 1, 2)), KernelCall(0, (1, 2, 3, 3))]
    told = _calls(values, calls, [0], [3], delegates=[BackendDelegate("Negator", 0, ())])
    assert [(placed.value, placed.first, placed.last) for placed in told.tensors] == [
        (0, -1, 0),
        (1, 0, 1),
        (2, 0, 1),
        (3, 1, 2),
    ]


def test_names_of_a_stranger_stay_names(tmp_path: Path, told: Told) -> None:
    from dataclasses import replace

    evil = "</title><script>x</script>\x1b[2J&\x00"
    state = replace(tensor(4, at=0), extra_tensor_info=ExtraTensorInfo(fully_qualified_name=evil))
    record = plan("forward", [state, tensor(4, at=16)], [], [1], [KernelCall(0, (0, 1, 1))], ["aten::add.out"])
    write_program(Program((record,)), tmp_path / "m.pte")
    assert "\x1b" not in told("inspect", str(tmp_path / "m.pte"), "--memory")
    root = ElementTree.fromstring(draw_memory([memory_map(record)]))
    assert not list(root.iter(f"{SVG}script"))
    (title,) = [title.text for title in root.iter(f"{SVG}title") if "script" in (title.text or "")]
    assert title.startswith("</title><script>x</script>")
