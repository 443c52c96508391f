"""Distributions that exist for one test: real metadata and modules in a directory on `sys.path`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

Install = Callable[..., Path]

BACKEND = """
from delegraph.interfaces import BackendInterface

class Backend(BackendInterface):
    def init(self, context, processed, compile_specs):
        return bytes(processed)

    def execute(self, context, handle, args):
        args[-1][...] = 1
"""
"""The source of a sound backend."""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """`install(name, {group: {entry: value}}, modules={file: source}, version=…, where=…, kind=…)` -> its directory."""
    before = set(sys.modules)

    def write(
        name: str,
        entry_points: Mapping[str, Mapping[str, str]],
        modules: Mapping[str, str] | None = None,
        version: str = "1.0",
        where: str = "site",
        kind: str = "dist-info",
    ) -> Path:
        site = tmp_path / where
        stem = name.replace("-", "_")
        metadata = site / (f"{stem}-{version}.dist-info" if kind == "dist-info" else f"{stem}.egg-info")
        metadata.mkdir(parents=True)
        header = "METADATA" if kind == "dist-info" else "PKG-INFO"
        (metadata / header).write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nDescription: x\n")
        sections = (
            f"[delegraph.{group}]\n" + "".join(f"{entry} = {value}\n" for entry, value in entries.items())
            for group, entries in entry_points.items()
        )
        (metadata / "entry_points.txt").write_text("\n".join(sections))
        for file, source in (modules or {}).items():
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            (site / file).write_text(source)
        if str(site) not in sys.path:
            monkeypatch.syspath_prepend(str(site))
        return site

    yield write
    for module in set(sys.modules) - before:
        if str(getattr(sys.modules[module], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[module]


@pytest.fixture
def backend_source() -> str:
    """The source of a module with a sound `Backend`."""
    return BACKEND


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DELEGRAPH_PLUGINS", "DELEGRAPH_DISABLE_PLUGINS", "DELEGRAPH_PREFER"):
        monkeypatch.delenv(variable, raising=False)
