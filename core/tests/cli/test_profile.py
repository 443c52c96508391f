"""`delegraph profile`: which method it runs, what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from delegraph.devtools import load_model, profile
from delegraph.errors import NotFound
from delegraph.runtime import Program

Told = Callable[..., Any]
Refused = Callable[..., str]


def test_what_it_tells(pte: str, told: Told) -> None:
    answer = told("profile", pte, "--warmup", "2", "--repeat", "3", "--json")
    assert (answer["method"], answer["warmup"], answer["runs"]) == ("forward", 2, 3)
    assert 0 < answer["seconds"]["min"] <= answer["seconds"]["p50"] <= answer["seconds"]["p99"]
    assert answer["untraced_seconds"]["p50"] > 0 and answer["precision"] >= 0
    assert answer["cost"] == pytest.approx(answer["seconds"]["p50"] / answer["untraced_seconds"]["p50"] - 1)
    assert {(row["operator"], row["delegate"]) for row in answer["nodes"]} == {("aten::add.out", None), ("Negator", 0)}
    (delegate,) = answer["delegates"]
    assert (delegate["backend"], delegate["nodes"], delegate["reported"]) == ("Negator", 0, None)
    assert [row["name"] for row in answer["modules"]] == [""] == [row["name"] for row in answer["lines"]]


def test_in_words(pte: str, told: Told) -> None:
    lines = told("profile", pte, "--repeat", "3").splitlines()
    assert lines[0].startswith("forward: ") and " ms in the median of 3 traced runs, to within " in lines[0]
    assert lines[1].startswith("without tracing ")
    assert any("one node: it reports none" in line for line in lines)
    assert "the file does not tell modules and lines: it was lowered without debug data, or elsewhere" in lines


def test_it_ends_in_time(pte: str, told: Told) -> None:
    assert told("profile", pte, "--seconds", "0.001", "--json")["runs"] >= 1


def test_other_methods_and_their_inputs(pte: str, told: Told, tmp_path: Path) -> None:
    words = ("profile", pte, "--method", "dynamic", "--repeat", "1", "--json")
    assert told(*words, "--shape", "2,5")["method"] == "dynamic"
    np.savez(tmp_path / "in.npz", x=np.zeros((2, 3), np.float32), y=np.zeros((2, 3), np.float32))
    assert told(*words, "--inputs", str(tmp_path / "in.npz"))["runs"] == 1


def test_files_for_viewers(pte: str, told: Told, tmp_path: Path) -> None:
    svg, trace = str(tmp_path / "flame.svg"), str(tmp_path / "trace.json")
    lines = told("profile", pte, "--repeat", "12", "--flame", svg, "--perfetto", trace).splitlines()
    assert lines[-2:] == [f"written: {svg}", f"written: {trace}"]
    assert ElementTree.parse(svg).getroot().get("class") == "flame-graph"
    events = json.loads(Path(trace).read_text())["traceEvents"]
    assert [event["name"] for event in events].count("Method::execute") == 10, "the last runs"
    assert "Method::load" in {event["name"] for event in events}


def test_what_is_refused(pte: str, refused: Refused, tmp_path: Path) -> None:
    assert "no method 'other'; the program has dynamic, forward, identities" in refused(
        "profile", pte, "--method", "other", code=1
    )
    assert "0 is not a number of seconds above 0" in refused("profile", pte, "--seconds", "0", code=2)
    assert "the program has no backend 'Npu'" in refused("profile", pte, "--backend-options", "Npu{a=1}", code=1)
    where = str(tmp_path / "none" / "flame.svg")
    assert where.rpartition("/")[0] in refused("profile", pte, "--repeat", "1", "--flame", where, code=1)


def test_from_python(pte: str, tmp_path: Path) -> None:
    """A path, bytes, or a program that is loaded; inputs made up, or the caller's."""
    x = np.arange(4, dtype=np.float32)
    profiles = [
        profile(pte, repeat=2),
        profile(Path(pte).read_bytes(), [x, None, 2], repeat=2),
        profile(Program.load(pte), repeat=2, backend_options={"Negator": {"factor": 3}}),
    ]
    for each in profiles:
        assert [row.operator for row in sorted(each.nodes, key=lambda row: row.instruction)] == [
            "aten::add.out", "Negator",
        ]  # fmt: skip
        assert each.model == next(method for method in load_model(pte).methods if method.name == "forward")
        assert str(each).startswith("forward: ") and "by node" in str(each)
        html = each._repr_html_()
        assert html.startswith("<p>forward: ") and "<table>" in html and html.endswith("</svg>\n")
    with pytest.raises(NotFound, match="no method 'other'"):
        profile(pte, method="other")
