"""The optimised graph, kept for the next load: the same results, whatever lies in the folder."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from backends.cpu.tests.harness import Context, edge
from numpy.typing import NDArray
from torch import nn

from delegraph.errors import DelegateInvalidCompatibility, InvalidArgument
from delegraph.interfaces import BackendInitContext
from delegraph_cpu.aot.preprocess import CpuLowering
from delegraph_cpu.blob import pack, unpack
from delegraph_cpu.runtime import cache, open_session
from delegraph_cpu.runtime.backend import CpuBackend

X = torch.randn(1, 16, 8, 8)
SHAPE = (1, 32, 6, 6)


@pytest.fixture(scope="module")
def blob() -> bytes:
    net = nn.Sequential(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Linear(6, 6))
    return bytes(CpuLowering.preprocess(edge(net, (X,)), []).processed_bytes)


@pytest.fixture
def optimized(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gets an entry each time that a graph is optimised to be kept."""
    times, optimize = [], open_session._optimize

    def counted(*args: Any) -> None:
        times.append(args[2])
        optimize(*args)

    monkeypatch.setattr(open_session, "_optimize", counted)
    return times


def run(blob: bytes, folder: Path | None, **options: Any) -> NDArray[np.float32]:
    specs = options if folder is None else {"cache": str(folder), **options}
    handle = CpuBackend().init(BackendInitContext("forward", {}, specs), blob, [])
    out = np.empty(SHAPE, np.float32)
    CpuBackend().execute(Context(), handle, [X.numpy(), out])
    return out


def test_what_cannot_be_written_is_loaded_without(blob: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: onnxruntime says that it could not write the graph, as it says that it refuses one."""

    def full(*args: object) -> None:
        raise DelegateInvalidCompatibility("onnxruntime refuses the graph: Failed to write external initializers")

    monkeypatch.setattr(open_session, "_optimize", full)
    np.testing.assert_allclose(run(blob, tmp_path), run(blob, None), atol=1e-6)
    assert not list(tmp_path.iterdir())


def test_a_graph_is_optimised_once(blob: bytes, tmp_path: Path, optimized: list[str]) -> None:
    folder = tmp_path / "new" / "folder"
    for _ in range(3):
        np.testing.assert_allclose(run(blob, folder), run(blob, None), atol=1e-6)
    assert optimized == ["all"]
    (file,) = folder.iterdir()
    if os.name == "posix":
        assert file.stat().st_mode & 0o077 == 0


def test_what_the_graph_depends_on_is_in_the_key(
    blob: bytes, tmp_path: Path, optimized: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other weights in the same graph, another level, processor, or onnxruntime."""
    weights = unpack(blob).data
    other = blob[: -len(weights)] + (-np.frombuffer(weights, np.float32)).tobytes()
    assert not np.allclose(run(blob, tmp_path), run(other, tmp_path))
    run(blob, tmp_path, optimization_level="extended")
    monkeypatch.setattr(cache, "_processor", lambda: ("another",))
    run(blob, tmp_path)
    monkeypatch.setattr("onnxruntime.__version__", "99.0")
    run(blob, tmp_path)
    assert optimized == ["all", "all", "extended", "all", "all"]
    assert len(list(tmp_path.iterdir())) == 5


def test_weights_that_optimising_left_alone_are_not_stored_again(blob: bytes, tmp_path: Path) -> None:
    run(blob, tmp_path, optimization_level="disabled")
    (file,) = tmp_path.iterdir()
    kept = unpack(file.read_bytes()[:-32])
    assert {weight.key for weight in kept.weights} <= {weight.name for weight in unpack(blob).weights}
    assert len(kept.weights) > 0


@pytest.mark.parametrize("damage", ["empty", "short", "weights", "graph", "digest"])
def test_damaged_files_are_written_anew(blob: bytes, tmp_path: Path, optimized: list[str], damage: str) -> None:
    expected = run(blob, tmp_path)
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    if damage == "short":
        content = content[: len(content) // 2]
    elif damage == "empty":
        content.clear()
    else:
        content[{"weights": -100, "graph": 200, "digest": -1}[damage]] ^= 1
    file.write_bytes(content)
    np.testing.assert_array_equal(run(blob, tmp_path), expected)
    np.testing.assert_array_equal(run(blob, tmp_path), expected)
    assert optimized == ["all", "all"]


@pytest.mark.parametrize("forgery", ["not a graph", "other weights", "a graph that reads a file"])
def test_forged_files_are_as_none(blob: bytes, tmp_path: Path, forgery: str) -> None:
    expected = run(blob, tmp_path)
    (file,) = tmp_path.iterdir()
    kept = unpack(file.read_bytes()[:-32])
    forged = {
        "not a graph": replace(kept, graph=b"\x08\x08", weights=()),
        "other weights": replace(kept, weights=tuple(replace(w, key="of nobody") for w in kept.weights)),
        "a graph that reads a file": replace(kept, weights=()),
    }[forgery]
    content = pack(forged, [])
    file.write_bytes(content + hashlib.sha256(content).digest())
    np.testing.assert_allclose(run(blob, tmp_path), expected, atol=1e-6)


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such permissions")
def test_files_that_others_may_write_are_not_read(blob: bytes, tmp_path: Path, optimized: list[str]) -> None:
    run(blob, tmp_path)
    (file,) = tmp_path.iterdir()
    file.chmod(0o666)
    run(blob, tmp_path)
    assert optimized == ["all", "all"]
    assert file.stat().st_mode & 0o022 == 0


def test_a_folder_that_cannot_be_is_as_none(blob: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    np.testing.assert_array_equal(run(blob, tmp_path / "file"), run(blob, None))
    with pytest.raises(InvalidArgument, match="CpuBackend's option cache must be a folder's path"):
        run(blob, None, cache=1)
