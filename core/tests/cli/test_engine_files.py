"""`delegraph inspect --delegates DIR`: what backends make of their blobs, in files, or why there are none."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.plugins.registry import PluginRegistry, use_registry
from delegraph.program import write_program
from delegraph.runtime import BackendInterface

from .conftest import Negator, program

Told = Callable[..., Any]
Refused = Callable[..., str]


class Drawing(Negator):
    """A backend with two files for each delegate, or what `files` makes of the name and the blob."""

    def __init__(self, files: Callable[[str, bytes], Any] | None = None) -> None:
        self._files = files

    def engine_files(self, name: str, processed: Any, named_data: Any) -> Any:
        if self._files is not None:
            return self._files(name, bytes(processed))
        return {f"{name}.bin": [named_data["shared.table"]], f"{name}.xml": [b"<net>", processed]}


def use(backend: BackendInterface | None) -> Any:
    registry = PluginRegistry()
    if backend is not None:
        registry.register("backends", "Negator", backend)
    return use_registry(registry)


def test_files_and_a_table_of_them(pte: str, told: Told, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "delegates"
    with use(Drawing()):
        text = told("inspect", pte, "--delegates", str(folder))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "forward_delegate_0.bin": bytes(24),
        "forward_delegate_0.xml": b"<net>negate",
    }
    assert "forward_delegate_0.xml" in text and "11" in text


def test_json(pte: str, told: Told, tmp_path: Path) -> None:
    with use(Drawing()):
        summary = told("inspect", pte, "--delegates", str(tmp_path), "--json")
    files = {"forward_delegate_0.bin": 24, "forward_delegate_0.xml": 11}
    delegate = {"method": "forward", "index": 0, "backend": "Negator", "files": files, "reason": ""}
    assert summary == {"folder": str(tmp_path), "delegates": [delegate]}


@pytest.mark.parametrize(
    ("backend", "reason"),
    [(Negator(), "its backend has no format that others open"), (None, "its backend is not installed here")],
)
def test_why_there_are_none(
    pte: str, told: Told, tmp_path: Path, backend: BackendInterface | None, reason: str
) -> None:
    folder = tmp_path / "out"
    with use(backend):
        assert reason in told("inspect", pte, "--delegates", str(folder))
        (delegate,) = told("inspect", pte, "--delegates", str(folder), "--json")["delegates"]
    assert (delegate["files"], delegate["reason"]) == ({}, reason)
    assert os.listdir(folder) == []


def test_a_program_without_delegates(told: Told, tmp_path: Path) -> None:
    plans = tuple(plan for plan in program().execution_plan if not plan.delegates)
    write_program(replace(program(), execution_plan=plans, delegate_data=()), tmp_path / "m.pte")
    assert told("inspect", str(tmp_path / "m.pte"), "--delegates", str(tmp_path)) == "the program has no delegates\n"


@pytest.mark.parametrize("method", ["../../evil", "..", "/etc/passwd", "c:\\d", "*"])
def test_no_method_is_called_so_that_its_files_are_elsewhere(method: str, told: Told, tmp_path: Path) -> None:
    plans = [replace(plan, name=method) if plan.delegates else plan for plan in program().execution_plan]
    write_program(replace(program(), execution_plan=tuple(sorted(plans, key=lambda p: p.name))), tmp_path / "m.pte")
    folder = tmp_path / "a" / "b" / "out"
    with use(Drawing()):
        told("inspect", str(tmp_path / "m.pte"), "--delegates", str(folder))
    assert len(os.listdir(folder)) == 2
    assert sorted(p.name for p in tmp_path.rglob("*_delegate_0.xml")) == [p.name for p in folder.glob("*.xml")]


@pytest.mark.parametrize("ending", ["/../../evil.xml", "", "xml", "/a.xml", ".x\0", ".."])
def test_a_backend_adds_an_ending_and_no_more(pte: str, refused: Refused, tmp_path: Path, ending: str) -> None:
    with use(Drawing(lambda name, blob: {f"{name}{ending}": [blob]})):
        message = refused("inspect", pte, "--delegates", str(tmp_path / "out"), code=1)
    assert "it has to be 'forward_delegate_0' and an ending" in message
    assert not (tmp_path / "out").exists()


def test_what_goes_wrong_names_the_delegate(pte: str, refused: Refused, tmp_path: Path) -> None:
    def damaged(name: str, blob: bytes) -> Any:
        raise DelegateInvalidCompatibility("its blob is damaged")

    def faulty(name: str, blob: bytes) -> Any:
        raise KeyError("layers")

    for files, message in (
        (damaged, "forward_delegate_0 (Negator): its blob is damaged"),
        (faulty, "forward_delegate_0 (Negator): KeyError while its engine's files are made: 'layers'"),
    ):
        with use(Drawing(files)):
            assert message in refused("inspect", pte, "--delegates", str(tmp_path / "out"), code=1)


def test_a_folder_that_cannot_be_made(pte: str, refused: Refused) -> None:
    with use(Drawing()):
        assert "m.pte" in refused("inspect", pte, "--delegates", pte, code=1)


@pytest.mark.parametrize("words", [["--memory"], ["--text"]])
def test_what_does_not_go_with_it(pte: str, refused: Refused, tmp_path: Path, words: list[str]) -> None:
    message = refused("inspect", pte, "--delegates", str(tmp_path), *words, code=2)
    assert f"--delegates does not go with {words[0]}: one view at a time" in message


def test_weights_go_with_it_alone(pte: str, refused: Refused) -> None:
    assert "--data goes with --delegates" in refused("inspect", pte, "--data", "w.ptd", code=2)
