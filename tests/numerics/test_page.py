"""The page is made of what was swept last, part by part, and of today's reasons."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.numerics import page as pages
from tests.numerics.page import PAGE, page
from tests.numerics.subjects import SWEPT, subject_called

from delegraph_testkit.numerics.report import save_cells
from delegraph_testkit.numerics.sweep import Cell

TEXT = PAGE.read_text("utf-8")


def test_it_has_the_reasons_of_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    assert page(TEXT) == TEXT


def test_a_part_renews_its_own_numbers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    save_cells(tmp_path, "npu", "add", {"float32": Cell(compared=7)})
    renewed = page(TEXT)
    assert "| npu | 1 | 0 | 0 | 1 | 7 |" in renewed and "| npu | 69 |" not in renewed
    for name in set(SWEPT) - {"npu"}:
        (row,) = (line for line in TEXT.splitlines() if line.startswith(f"| {name} | "))
        assert row in renewed


def test_nothing_is_at_fault() -> None:
    assert "at fault" not in TEXT


def test_plug_ins_of_one_package_have_claims_of_their_own() -> None:
    qnn, webgpu = (subject_called(name).claims for name in ("qnn", "webgpu"))
    assert qnn.computes_in == "float16" and not webgpu.computes_in
    assert webgpu.finite_only.startswith("WGSL")
