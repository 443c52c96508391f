"""The optimised graph, kept for the next load: the same results, whatever lies in the folder."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from backends.cpu.tests.harness import Context, edge
from numpy.typing import NDArray
from torch import nn

import delegraph
from delegraph.errors import DelegateInvalidCompatibility, InvalidArgument
from delegraph.interfaces import BackendCache, BackendInitContext, CacheEntry, CompilationCache
from delegraph_cpu.aot.preprocess import CpuLowering
from delegraph_cpu.blob import pack, unpack
from delegraph_cpu.graphs.filed import in_file
from delegraph_cpu.runtime import open_session
from delegraph_cpu.runtime import optimized as module
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
        times.append(args[2].optimization_level)
        optimize(*args)

    monkeypatch.setattr(open_session, "_optimize", counted)
    return times


def run(blob: bytes, folder: Path | None, **options: Any) -> NDArray[np.float32]:
    cache = BackendCache("CpuBackend", None if folder is None else CompilationCache(folder))
    handle = CpuBackend().init(BackendInitContext("forward", {}, options, cache=cache), blob, [])
    out = np.empty(SHAPE, np.float32)
    CpuBackend().execute(Context(), handle, [X.numpy(), out])
    return out


def kept(folder: Path) -> Path:
    """The file of the one entry."""
    (entry,) = CompilationCache(folder).entries()
    return entry.path / "optimized.blob"


def forge(folder: Path, content: bytes, honest: bool = False) -> None:
    """Another content of the one entry's file; `honest`: so that its digest is right."""
    file = kept(folder)
    file.unlink()  # who has it mapped keeps it as it was
    file.write_bytes(content)
    file.chmod(0o600)
    if honest:
        record = json.loads((file.parent / "entry.json").read_text())
        record["files"][file.name] = [len(content), hashlib.sha256(content).hexdigest()]
        (file.parent / "entry.json").write_text(json.dumps(record))


def test_what_cannot_be_written_is_loaded_without(blob: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: onnxruntime says that it could not write the graph, as it says that it refuses one."""

    def full(*args: object) -> None:
        raise DelegateInvalidCompatibility("onnxruntime refuses the graph: Failed to write external initializers")

    monkeypatch.setattr(open_session, "_optimize", full)
    with pytest.warns(RuntimeWarning, match="Failed to write external initializers"):
        np.testing.assert_allclose(run(blob, tmp_path), run(blob, None), atol=1e-6)
    assert not list(tmp_path.iterdir())


def test_a_graph_is_optimised_once(blob: bytes, tmp_path: Path, optimized: list[str]) -> None:
    for _ in range(3):
        np.testing.assert_allclose(run(blob, tmp_path), run(blob, None), atol=1e-6)
    assert optimized == ["all"]
    assert [path.name for path in kept(tmp_path).parent.iterdir() if path.name != "entry.json"] == ["optimized.blob"]


def test_the_former_option_names_a_folder(blob: bytes, tmp_path: Path, optimized: list[str]) -> None:
    with pytest.warns(FutureWarning, match="option cache of CpuBackend is deprecated"):
        np.testing.assert_allclose(run(blob, None, cache=str(tmp_path)), run(blob, tmp_path), atol=1e-6)
    assert optimized == ["all"]
    with pytest.raises(InvalidArgument, match="CpuBackend's option cache must be a folder's path"):
        run(blob, None, cache=1)


def test_what_the_graph_depends_on_is_in_the_key(
    blob: bytes, tmp_path: Path, optimized: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other weights in the same graph, another level, or onnxruntime."""
    weights = unpack(blob).data
    other = blob[: -len(weights)] + (-np.frombuffer(weights, np.float32)).tobytes()
    assert not np.allclose(run(blob, tmp_path), run(other, tmp_path))
    run(blob, tmp_path, optimization_level="extended")
    monkeypatch.setattr("onnxruntime.__version__", "99.0")
    run(blob, tmp_path)
    assert optimized == ["all", "all", "extended", "all"]
    assert len(list(tmp_path.iterdir())) == 4


def test_weights_that_optimising_left_alone_are_not_stored_again(blob: bytes, tmp_path: Path) -> None:
    run(blob, tmp_path, optimization_level="disabled")
    stored = unpack(kept(tmp_path).read_bytes())
    assert {weight.key for weight in stored.weights} <= {weight.name for weight in unpack(blob).weights}
    assert len(stored.weights) > 0


@pytest.mark.parametrize("damage", ["empty", "short", "weights", "graph"])
def test_damaged_files_are_written_anew(blob: bytes, tmp_path: Path, optimized: list[str], damage: str) -> None:
    expected = run(blob, tmp_path)
    content = bytearray(kept(tmp_path).read_bytes())
    if damage == "short":
        content = content[: len(content) // 2]
    elif damage == "empty":
        content.clear()
    else:
        content[{"weights": -100, "graph": 200}[damage]] ^= 1
    forge(tmp_path, bytes(content))
    np.testing.assert_array_equal(run(blob, tmp_path), expected)
    np.testing.assert_array_equal(run(blob, tmp_path), expected)
    assert optimized == ["all", "all"]


@pytest.mark.parametrize("forgery", ["empty", "not a graph", "other weights", "a graph that reads a file"])
def test_forged_files_are_as_none(blob: bytes, tmp_path: Path, optimized: list[str], forgery: str) -> None:
    expected = run(blob, tmp_path)
    stored = unpack(kept(tmp_path).read_bytes())
    forged = {
        "not a graph": replace(stored, graph=b"\x08\x08", weights=()),
        "other weights": replace(stored, weights=tuple(replace(w, key="of nobody") for w in stored.weights)),
        "a graph that reads a file": replace(stored, weights=()),
    }
    forge(tmp_path, pack(forged[forgery], []) if forgery in forged else b"", honest=True)
    for _ in range(2):
        np.testing.assert_allclose(run(blob, tmp_path), expected, atol=1e-6)
    assert optimized == ["all", "all"]


# ---- packed weights -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def methods() -> tuple[nn.Module, bytes]:
    """Two methods with the same weights, which onnxruntime packs: of a batch, and of one row."""
    net = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256)).eval()
    rows = torch.export.Dim("rows", min=4, max=8)  # no row is a batch: each method has a blob of its own
    exported = {
        "batch": torch.export.export(net, (torch.randn(5, 256),), dynamic_shapes=({0: rows},)),
        "row": torch.export.export(net, (torch.randn(1, 256),)),
    }
    return net, bytes(delegraph.lower(exported, backends=["cpu"]))


def test_methods_have_their_packed_weights_once(methods: tuple[nn.Module, bytes], tmp_path: Path) -> None:
    net, program = methods
    for _ in range(2):
        run = delegraph.load(program, method="batch", cache=tmp_path)
        for name, x in (("batch", torch.randn(5, 256)), ("row", torch.randn(1, 256))):
            np.testing.assert_allclose(run[name](x.numpy()), net(x).detach(), atol=1e-5)
    first, second = ({path.stat().st_ino for path in entry.path.glob("weight-*")} for entry in entries(tmp_path))
    assert first == second
    assert len(first) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is mapped")
def test_the_engine_maps_packed_weights(methods: tuple[nn.Module, bytes], tmp_path: Path) -> None:
    program = methods[1]
    delegraph.load(program, method="row", cache=tmp_path)
    run = delegraph.load(program, method="row", cache=tmp_path)
    run(np.zeros((1, 256), np.float32))
    (entry,) = entries(tmp_path)
    mapped = Path("/proc/self/maps").read_text()
    assert all(str(path) in mapped for path in entry.path.glob("weight-*"))


def test_an_entry_that_another_process_removed_is_as_none(
    methods: tuple[nn.Module, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, program = methods
    delegraph.load(program, method="row", cache=tmp_path)
    opened = module._opened

    def gone(*args: Any) -> module.Optimized:
        result = opened(*args)
        for path in args[2].glob("weight-*"):
            path.unlink()
        return result

    monkeypatch.setattr(module, "_opened", gone)
    x = torch.randn(1, 256)
    run = delegraph.load(program, method="row", cache=tmp_path)
    np.testing.assert_allclose(run(x.numpy()), net(x).detach(), atol=1e-5)


def test_a_session_that_is_made_later_needs_no_entry(
    methods: tuple[nn.Module, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session for busy machines, or that of a forked process, is made when needed; the entry may have gone."""
    net, program = methods
    busy = [0.0]
    monkeypatch.setattr(open_session, "cores_of_others", lambda: lambda: busy[0])
    options = {"cpu": {"num_threads": 2}}
    with torch.no_grad():
        for _ in range(2):
            run = delegraph.load(program, method="row", cache=tmp_path, backend_options=options)
        x = torch.randn(1, 256)
        np.testing.assert_allclose(run(x.numpy()), net(x), atol=1e-5)
        CompilationCache(tmp_path).clear()
        busy[0] = 64.0
        np.testing.assert_allclose(run(x.numpy()), net(x), atol=1e-5)


WORDS = {"location": "weight-0", "offset": "0", "length": "64"}
PACKED = {"prepacked_0": "MatMul+123|65536;64;0"}


def tensor(words: dict[str, str]) -> dict[str, Any]:
    entries = [{"key": key, "value": value} for key, value in words.items()]
    return {"name": "w", "dims": [4, 4], "data_type": 1, "external_data": entries, "data_location": 1}


@pytest.mark.parametrize("words", [WORDS, WORDS | PACKED, WORDS | {"prepacked_0": "MatMul+1|64;64;0|128;64;0"}])
def test_where_a_tensor_lies_is_written_anew(words: dict[str, str]) -> None:
    assert in_file(tensor(words), {"weight-0": 65600}) == tensor(words)


@pytest.mark.parametrize(
    "words",
    [
        WORDS | {"location": "/etc/passwd"},
        WORDS | {"location": "../weight-0"},
        WORDS | {"length": "60"},
        WORDS | {"offset": "-1"},
        WORDS | {"offset": "65599"},
        WORDS | {"prepacked_0": "MatMul+123|65537;64;0"},
        WORDS | {"prepacked_0": "MatMul+123"},
        WORDS | {"prepacked_0": "MatMul|0;64;0"},
        WORDS | {"other": "words"},
        {"location": "weight-0"},
    ],
)
def test_other_places_are_refused(words: dict[str, str]) -> None:
    with pytest.raises(DelegateInvalidCompatibility):
        in_file(tensor(words), {"weight-0": 65600})


def entries(folder: Path) -> list[CacheEntry]:
    return CompilationCache(folder).entries()
