"""Which distributions have plug-ins, and the plug-in API that each needs, told without importing any of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from delegraph.plugins.installed import Installed, installed
from delegraph.plugins.inventory import module_exists, module_spec

Install = Callable[..., Path]
GROUPS = {"backends": {"Npu": "npu_rt:Npu"}, "lowerings": {"Npu": "npu_aot:Lowering"}}


@pytest.mark.parametrize(
    ("runtime", "api"),
    [
        ("class Npu: pass", (1, 0)),
        ("delegraph_api = (1, 2)\nclass Npu: pass", (1, 2)),
        ("class Npu:\n    delegraph_api: tuple[int, int] = (1, 3)", (1, 3)),
        ("delegraph_api = (1, 2)\nclass Npu:\n    delegraph_api = (1, 1)", (1, 2)),  # both have to be met
        ("class Other:\n    delegraph_api = (9, 0)\nclass Npu: pass", (1, 0)),
        ("delegraph_api = '2.0'", (1, 0)),  # malformed: loading it is refused, and the doctor says why
        ("class Npu:", (1, 0)),  # as is this
    ],
)
def test_the_api_that_the_source_names(install: Install, runtime: str, api: tuple[int, int]) -> None:
    fail = "raise RuntimeError('this module was imported')\n"
    modules = {"npu_rt.py": fail + runtime, "npu_aot.py": f"{fail}class Lowering: pass"}
    install("acme-npu", GROUPS, modules, version="2.5")
    assert Installed("acme-npu", "2.5", api) in installed()
    assert "npu_rt" not in sys.modules


def test_a_module_that_is_not_there(install: Install) -> None:
    install("stale", {"backends": {"Gone": "gone_module:Gone", "Odd": "no reference at all"}}, {})
    assert Installed("stale", "1.0", (1, 0)) in installed()


def test_the_host_is_not_among_its_plugins() -> None:
    assert "delegraph" not in [entry.distribution for entry in installed()]


def test_a_module_made_by_hand_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("made_by_hand")
    monkeypatch.setitem(sys.modules, "made_by_hand", module)
    assert module_exists("made_by_hand")
    assert not module_exists("made_by_hand.inner")
    assert module_spec("delegraph.nowhere") is None
