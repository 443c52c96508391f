"""What is made of the figures of `benchmarks.peers`: who lost where; nobody counts who computes nonsense."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks import openvino, pages
from benchmarks.peers import __main__ as peers
from benchmarks.peers import preparing, report
from benchmarks.peers.chart import CHART, PAGE, chart
from benchmarks.peers.contenders import Contender, contenders


def figures(ms: float, db: float = 40.0) -> dict[str, float]:
    return {"ms": ms, "db": db, "made_s": 1.0, "calibration_s": 0.5, "bytes": 2e6, "first_s": 0.1, "peak_mb": 90.0}


RESULTS: dict[str, Any] = {
    "revision": "abc",
    "versions": {"torch": "2.13.0"},
    "machine": {"processor": "one", "cores": 2, "has": ["avx2"]},
    "decode": {
        "1 threads": {
            "eager": {"tokens": [1, 2], "per_second": 100.0},
            "delegraph, cpu": {"tokens": [1, 2], "per_second": 400.0},
            "onnxruntime-genai": {"tokens": [1, 3], "per_second": 500.0},
            "executorch, portable": {"error": "it fell"},
        }
    },
    "models": {
        "mlp, batch 1, 1 threads": {
            "delegraph, float32": figures(2.0),
            "onnxruntime, float32": figures(3.0),
            "onnxruntime, dynamo, float32": figures(4.0),
            "delegraph, int8": figures(1.0),
            "onnxruntime, int8": figures(0.1, db=-5.0),
            "OpenVINO, int8": figures(0.5),
            "XNNPACK, int8": {"error": "a | b: /home/me/c/d.so"},
        },
        "llama, batch 1, 1 threads": {"delegraph, float32": figures(2.0), "eager, float32": figures(0.75)},
        "lstm, batch 1, 1 threads": {"delegraph, float32": figures(2.0), "eager, float32": {"error": "it is too old"}},
    },
}


def test_who_is_the_best_peer() -> None:
    rows = {(row.name.split(",")[0], row.precision): row for row in report.rows(RESULTS)}
    assert rows["mlp", "float32"].best_peer == "onnxruntime"
    assert rows["mlp", "float32"].ratio == 1.5
    assert rows["mlp", "int8"].best_peer == "OpenVINO", "onnxruntime's result has more error than signal"
    assert rows["lstm", "float32"].ratio is None


def test_losses_stand_first_and_the_worst_of_them_before_all() -> None:
    measured = list(report.rows(RESULTS))
    assert [row[:2] for row in report.lost(measured)[1:]] == [
        ["llama, batch 1, 1 threads", "float32"],
        ["mlp, batch 1, 1 threads", "int8"],
    ]
    assert report.summary(measured)[1:] == [
        ["float32", "2", "0.75x", "1", "0.38x: llama, batch 1, 1 threads, against eager"],
        ["int8", "1", "0.50x", "1", "0.50x: mlp, batch 1, 1 threads, against OpenVINO"],
    ]
    assert report.against_float(measured)[1:] == [["mlp, batch 1, 1 threads", "int8", "1.000", "3.000", "3.00x"]]


def test_of_our_backends_the_faster_one() -> None:
    """In tables of its own: ours is `cpu` elsewhere, and never a peer of itself."""
    peers = {
        "delegraph": figures(2.0), "delegraph on openvino": figures(1.0), "OpenVINO": figures(1.5),
    }  # fmt: skip
    row = report.Row("mlp, batch 1, 1 threads", "float32", peers, {})
    assert (row.best_peer, row.ratio) == ("OpenVINO", 0.75)
    assert report.on_the_faster(row).ratio == 1.5
    useless = peers | {"delegraph on openvino": figures(1.0, db=5.0)}
    assert report.on_the_faster(report.Row("mlp", "float32", useless, {})).ratio == 0.75
    assert "the faster for a model" not in report.text(RESULTS)


def test_a_page_without_marks_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for content in (None, "no marks", "<!-- table -->\n"):
        if content is not None:
            page.write_text(content)
        with pytest.raises(SystemExit, match="has no lines <!-- table -->"):
            pages.check_marks(page, "table")
    page.write_text("a\n<!-- table -->\nold\n<!-- /table -->\nb\n")
    pages.check_marks(page, "table")
    pages.put(page, "table", "new")
    assert page.read_text() == "a\n<!-- table -->\n\nnew\n\n<!-- /table -->\nb\n"


def test_the_page_says_what_fails_and_what_is_of_no_use() -> None:
    text = report.text(RESULTS)
    assert "| mlp, batch 1, 1 threads | int8 | XNNPACK | a / b: d.so |" in text
    assert "0.100 (-5 dB)" in text
    assert text.index("## Lost rows") < text.index("## Milliseconds: float32")


def test_a_page_keeps_what_is_written_by_hand(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page, figures_file = tmp_path / "page.md", tmp_path / "peers.json"
    page.write_text(f"by hand\n{report.MARK}old tables\n")
    figures_file.write_text(json.dumps(RESULTS))
    monkeypatch.setattr("sys.argv", ["report", str(figures_file), "--into", str(page)])
    report.main()
    assert page.read_text().startswith(f"by hand\n{report.MARK}\nRevision abc. one, 2 cores (avx2). torch 2.13.0.\n")
    assert "old tables" not in page.read_text()
    page.write_text("no mark")
    with pytest.raises(SystemExit, match="has no line"):
        report.main()


def test_tokens_a_second_count_if_they_are_eagers() -> None:
    assert report.decoding(RESULTS)[1:] == [
        ["eager", "1", "100", "4.00x"],
        ["delegraph, cpu", "1", "400", "1.00x"],
        ["onnxruntime-genai", "1", "500 (other tokens than eager)", "0.80x"],
        ["executorch, portable", "1", "does not run", ""],
    ]


def test_a_run_goes_on_within_its_revision_and_puts_others_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("versions", "machine"):
        monkeypatch.setattr(peers, name, dict)
    monkeypatch.setattr(peers, "revision", lambda: "abc")
    path = tmp_path / "peers.json"
    assert peers.begun(path)["models"] == {}
    path.write_text(json.dumps(RESULTS))
    assert peers.begun(path)["models"] == RESULTS["models"]
    monkeypatch.setattr(peers, "revision", lambda: "def")
    assert peers.begun(path)["models"] == {}
    assert json.loads((tmp_path / "peers-abc.json").read_text()) == RESULTS


def test_what_is_made_is_not_made_again_but_for_ours_of_another_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def make(group: list[Contender], *_: object) -> dict[str, Any]:
        made.extend(map(str, group))
        return {str(one): {"made_s": 1.0, "revision": preparing.revision()} for one in group}

    monkeypatch.setattr(preparing, "_make", make)
    monkeypatch.setattr(preparing, "_write_example", lambda *_: None)
    those = contenders("llama", "delegraph;eager", "float32,int8")
    for revision in ("abc", "abc", "def"):
        monkeypatch.setattr(preparing, "revision", lambda revision=revision: revision)
        assert preparing.prepared("llama", 1, those, tmp_path, patience=1, jobs=1).keys() == set(those)
    ours = ["delegraph, float32", "delegraph, int8"]
    assert sorted(made) == sorted([*ours, "eager, float32", *ours])


def test_slow_peers_compete_on_small_models_unless_they_are_named() -> None:
    assert "torch.compile" in {one.peer for one in contenders("mlp", "", "float32")}
    assert "torch.compile" not in {one.peer for one in contenders("vit_tiny", "", "float32")}
    assert contenders("vit_tiny", "torch.compile;XNNPACK", "float32") == [
        Contender("torch.compile", "float32"),
        Contender("XNNPACK", "float32"),
    ]


def test_the_table_of_the_openvino_backend_has_what_it_lost_first() -> None:
    def measured(*milliseconds: float) -> dict[Contender, dict[str, Any]]:
        peers_ = (openvino.HERE, *openvino.OTHERS)
        return {Contender(one, "int8"): figures(ms) for one, ms in zip(peers_, milliseconds, strict=True)}

    won, lost, failed = measured(1.0, 2.0, 4.0), measured(2.0, 1.0, 3.0), measured(1.0, 2.0, 4.0)
    failed[Contender("OpenVINO", "int8")] = {"error": "it fell"}
    failed[Contender("delegraph", "int8")] = {"error": "it fell"}
    text = openvino.table({("mlp", 1): won, ("lstm", 2): lost, ("minilm", 1): failed}, "int8")
    assert text.splitlines()[2:] == [
        "| minilm | 1 | 1.000 | failed | failed | - | 40 / - / - |",
        "| lstm | 2 | 2.000 | 1.000 | 3.000 | 0.50x | 40 / 40 / 40 |",
        "| mlp | 1 | 1.000 | 2.000 | 4.000 | 2.00x | 40 / 40 / 40 |",
    ]


def test_the_chart_is_drawn_of_the_page() -> None:
    """`python -m benchmarks.peers.chart` draws it anew; the report does whenever it writes the page."""
    page = PAGE.read_text("utf-8")
    assert chart(page) == CHART.read_text("utf-8")
    (row,) = re.findall(r"^\| resnet18, batch 1, 1 threads \| (\d+\.\d)\d+ \| .* 0\.\d+x \|$", page, re.MULTILINE)[:1]
    assert f">{row}</text>" in chart(page)
