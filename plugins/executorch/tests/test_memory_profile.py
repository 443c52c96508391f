"""`generate_memory_trace` draws each planned tensor once per step of its life, at the place that it has."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.export import export

from delegraph_executorch.exir import EdgeCompileConfig, to_edge
from delegraph_executorch.util.activation_memory_profiler import generate_memory_trace

MODEL = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())


def events(path: Path, **options: Any) -> list[dict[str, Any]]:
    program = to_edge(export(MODEL, (torch.ones(2, 3),))).to_executorch()
    generate_memory_trace(program, str(path), **options)
    return json.loads(path.read_text())["traceEvents"]


def test_tensors_that_live_at_once_do_not_overlap(tmp_path: Path) -> None:
    found = events(tmp_path / "trace.json", enable_memory_offsets=True)
    names = {event["name"] for event in found}
    assert any(name.startswith("aten_relu") for name in names) and any(name.startswith("aten_addmm") for name in names)
    assert {event["dur"] for event in found if event["name"].startswith("aten_relu")} == {2 * 4 * 4}
    for step in {event["tid"] for event in found}:
        alive = sorted((event["ts"], event["dur"]) for event in found if event["tid"] == step)
        assert all(start + size <= after for (start, size), (after, _) in pairwise(alive))


def test_metadata_may_be_left_out(tmp_path: Path) -> None:
    assert {event["args"].get("bytes") for event in events(tmp_path / "with.json")} <= {24, 32}
    assert all(event["args"] == {} for event in events(tmp_path / "without.json", ommit_metadata=True))


def test_what_was_not_lowered_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"takes what to_executorch\(\) returns, not a Sequential"):
        generate_memory_trace(MODEL, str(tmp_path / "trace.json"))  # type: ignore[arg-type]


def test_a_config_that_the_wheel_made_is_taken() -> None:
    config: Any = SimpleNamespace(
        _check_ir_validity=False, _skip_dim_order=True, _core_aten_ops_exception_list=(), preserve_ops=()
    )
    edge = to_edge(export(MODEL, (torch.ones(2, 3),)), compile_config=config)
    assert edge.compile_config == EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True)
