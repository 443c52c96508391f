"""Where a program's bytes lie: mapped and touched only where they are read, given back, fetched by URL, sent on."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegraph.errors import AccessFailed, InvalidState, MemoryAllocationFailed
from delegraph.interfaces import BackendInterface
from delegraph.program import ExternalData, FlatTensor, serialize_program, write_flat_tensor, write_program
from delegraph.program.flat_tensor import TensorLayout
from delegraph.program.schema import ScalarType
from delegraph.runtime import (
    BufferDataLoader,
    EventTracer,
    FileDataLoader,
    MmapDataLoader,
    Platform,
    Program,
    UrlDataLoader,
    load,
)
from delegraph.runtime.resolution.environment import Environment

LARGE = 16 << 20

touched = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells which pages are touched")


def resident(path: Path) -> int:
    """Bytes of the file that are mapped into this process and in its memory."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if not line[0].isupper():
            inside = line.endswith(str(path))
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


# ---- mapped ----------------------------------------------------------------------------------------


@touched
def test_constants_are_mapped_and_not_read(build: Any, kernels: Any, tmp_path: Path) -> None:
    x, large = build.tensor(3), build.constant(np.ones((LARGE // 4,), np.float32))
    assert large
    small = build.constant(np.float32([1, 2, 3]))
    plan = build.plan([x], [build.call("aten::add.out", x, small, build.int(1), build.tensor(3))])
    write_program(build.program(plan), tmp_path / "m.pte")
    model = load(tmp_path / "m.pte", kernels=[kernels])
    assert model(np.float32([1, 1, 1]))[0].tolist() == [2, 3, 4]
    assert resident(tmp_path / "m.pte") < LARGE // 8


@touched
def test_external_weights_are_mapped_and_not_read(build: Any, kernels: Any, tmp_path: Path) -> None:
    x, weight = build.tensor(3), build.external("w", 3)
    plan = build.plan([x], [build.call("aten::add.out", x, weight, build.int(1), build.tensor(3))])
    write_program(build.program(plan), tmp_path / "m.pte")
    entries = {
        "w": ExternalData(np.ones(3, np.float32).tobytes(), TensorLayout(ScalarType.FLOAT, (3,), (0,))),
        "other": ExternalData(bytes(LARGE)),
    }
    write_flat_tensor(FlatTensor(entries), tmp_path / "w.ptd")
    model = load(tmp_path / "m.pte", data_path=tmp_path / "w.ptd", kernels=[kernels])
    assert model(np.float32([1, 1, 1]))[0].tolist() == [2, 2, 2]
    assert resident(tmp_path / "w.ptd") < LARGE // 8


class Reads(BackendInterface):
    """Reads its blob in `init`, and needs it never again."""

    keeps_processed = False

    def init(self, context: Any, processed: Any, compile_specs: Any) -> int:
        return int(np.frombuffer(processed, np.uint8).sum(dtype=np.int64))

    def execute(self, context: Any, handle: int, args: Any) -> None:
        args[-1][...] = handle


class Keeps(Reads):
    keeps_processed = True


@touched
@pytest.mark.parametrize(("backend", "kept"), [(Reads(), False), (Keeps(), True)])
def test_a_blob_is_given_back_after_init(build: Any, tmp_path: Path, backend: BackendInterface, kept: bool) -> None:
    out = build.tensor(1)
    build.delegate("Reader", out, blob=b"\1" * LARGE)
    write_program(build.program(build.plan([], [out])), tmp_path / "m.pte")
    program = Program.load(tmp_path / "m.pte", environment=Environment(backends={"Reader": backend}))
    methods = [program.load_method("forward") for _ in range(2)]
    assert (resident(tmp_path / "m.pte") > LARGE // 2) == kept
    assert [method.execute([])[0].tolist() for method in methods] == [[LARGE], [LARGE]]


@pytest.mark.parametrize("kind", [BufferDataLoader, FileDataLoader, MmapDataLoader])
def test_what_was_released_can_be_read(kind: Any, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(range(256)) * 64)
    loader = kind(tmp_path / "data" if kind is not BufferDataLoader else (tmp_path / "data").read_bytes())
    for offset, size in ((0, 16384), (1, 16383), (100, 20), (4096, 0)):
        data = loader.load(offset, size)
        loader.release(data)
        assert bytes(data) == (bytes(range(256)) * 64)[offset : offset + size]
    loader.release(b"of somebody else's")


# ---- by URL ----------------------------------------------------------------------------------------


@pytest.fixture
def added(build: Any) -> bytes:
    """y = x + w, w external."""
    x, weight = build.tensor(3), build.external("w", 3)
    plan = build.plan([x], [build.call("aten::add.out", x, weight, build.int(1), build.tensor(3))])
    return serialize_program(build.program(plan))


@pytest.fixture
def files(added: bytes, tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "m.pte").write_bytes(added)
    layout = TensorLayout(ScalarType.FLOAT, (3,), (0,))
    weights = FlatTensor({"w": ExternalData(np.float32([1, 2, 3]).tobytes(), layout)})
    write_flat_tensor(weights, tmp_path / "w.ptd")
    return tmp_path / "m.pte", tmp_path / "w.ptd"


def test_urls(files: tuple[Path, Path], kernels: Any) -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec, an optional requirement, is not installed")
    urls = []
    for path in files:
        urls.append(f"memory://delegraph-tests/{path.name}")
        with fsspec.open(urls[-1], "wb") as file:
            file.write(path.read_bytes())
    assert load(urls[0], data_path=urls[1], kernels=[kernels])(np.float32([1, 1, 1]))[0].tolist() == [2, 3, 4]
    loader = UrlDataLoader(urls[0])
    assert bytes(pickle.loads(pickle.dumps(loader)).load(4, 4)) == b"ET12"
    assert bytes(loader.load(0, 0)) == b""
    with pytest.raises(AccessFailed, match=r"memory://.*m\.pte: bytes .* were asked for, but it ends at"):
        loader.load(loader.size() - 1, 2)
    with pytest.raises(AccessFailed, match=r"memory://nowhere: cannot be read: FileNotFoundError"):
        load("memory://nowhere")
    with pytest.raises(AccessFailed, match=r"nothing-known://x: cannot be read: ValueError: Protocol not known"):
        load("nothing-known://x")


def test_urls_without_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(AccessFailed, match=r"s3://b/m\.pte: fsspec, which reads .*: `pip install fsspec`"):
        load("s3://b/m.pte")


# ---- sent to another process -----------------------------------------------------------------------

CHILD = """
import pickle, sys
from pathlib import Path
program = pickle.loads(Path(sys.argv[1]).read_bytes())
print(sorted(program.method_names), [bytes(entry.data).hex() for entry in program.external_data.values()])
"""


def test_a_program_is_read_where_it_is_sent(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = Program.load("m.pte", data_path=["w.ptd"])
    (tmp_path / "sent").write_bytes(pickle.dumps(program))
    assert (tmp_path / "sent").stat().st_size < 1000
    done = subprocess.run(
        [sys.executable, "-c", CHILD, tmp_path / "sent", files[0]], cwd="/", capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.stdout) == ("", "['forward'] ['0000803f0000004000004040']\n")


def test_a_program_of_bytes_takes_them_along(added: bytes, files: tuple[Path, Path]) -> None:
    data = pickle.dumps(Program.load(added, data_path=FileDataLoader(files[1])))
    assert pickle.loads(data).method_names == {"forward"}
    assert added in data


def test_a_module_is_sent_with_what_it_was_loaded_with(build: Any) -> None:
    x = build.tensor(1)
    data = serialize_program(build.program(build.plan([x], [x], name="first"), build.plan([x], [x], name="main")))
    sent = pickle.loads(pickle.dumps(load(data, method="main", kernels=[])))
    assert (sent.metadata.name(), sent.methods, sent.program.environment.kernels) == ("main", ("first", "main"), [])
    assert sent(np.float32([7]))[0].tolist() == [7]
    with pytest.raises(InvalidState, match="a Module with an event tracer cannot be sent to another process"):
        pickle.dumps(load(data, method="main", event_tracer=EventTracer()))


def test_what_cannot_be_sent(build: Any, files: tuple[Path, Path]) -> None:
    with pytest.raises(InvalidState, match="cannot be sent to another process: it was made of records; load it there"):
        pickle.dumps(Program.load(build.program(build.plan())))
    with pytest.raises(InvalidState, match="it has an event tracer"):
        pickle.dumps(Program.load(files[0], event_tracer=EventTracer()))


def test_the_callers_platform_gives_the_memory(files: tuple[Path, Path], kernels: Any) -> None:
    asked: list[int] = []

    def allocate(nbytes: int) -> Any:
        asked.append(nbytes)
        return np.zeros(nbytes, np.uint8)

    model = load(files[0], data_path=files[1], kernels=[kernels], platform=Platform(allocate=allocate))
    assert sum(asked) == sum(model.program.plan("forward").non_const_buffer_sizes) > 0


@pytest.mark.parametrize("error", [MemoryError(), KeyError("mine")])
def test_a_platform_that_gives_no_memory(files: tuple[Path, Path], kernels: Any, error: Exception) -> None:
    def allocate(nbytes: int) -> Any:
        if nbytes:
            raise error
        return np.zeros(0, np.uint8)

    with pytest.raises(MemoryAllocationFailed, match=rf"allocate\(\d+\) raised {type(error).__name__}"):
        load(files[0], data_path=files[1], kernels=[kernels], platform=Platform(allocate=allocate))
