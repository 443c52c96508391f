"""Sources of bytes: in memory, files, mapped files; missing, unreadable and truncated ones."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegraph.errors import AccessFailed, DelegraphError, InvalidExternalData, InvalidProgram
from delegraph.plugins.registry import PluginRegistry
from delegraph.program import ExternalData, FlatTensor, serialize_flat_tensor, serialize_program
from delegraph.program.flat_tensor import TensorLayout
from delegraph.program.schema import NamedData, ScalarType
from delegraph.runtime import BufferDataLoader, DataLoader, FileDataLoader, MmapDataLoader, Program, Runtime, load
from delegraph.runtime.data_loader import open_data_loader

DATA = bytes(range(100))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").write_bytes(DATA)
    return tmp_path / "data"


@pytest.fixture(params=[BufferDataLoader, FileDataLoader, MmapDataLoader])
def loader(request: pytest.FixtureRequest, path: Path) -> DataLoader:
    result: DataLoader = request.param(DATA if request.param is BufferDataLoader else path)
    return result


def test_ranges(loader: DataLoader) -> None:
    assert loader.size() == 100
    assert bytes(loader.load(10, 5)) == DATA[10:15]
    assert bytes(loader.load(100, 0)) == b""
    assert memoryview(loader.load(0, 4)).readonly
    buffer = bytearray(8)
    loader.load_into(20, 4, memoryview(buffer))
    assert buffer == DATA[20:24] + bytes(4)


@pytest.mark.parametrize(("offset", "size"), [(98, 5), (-1, 2), (0, -1), (200, 1)])
def test_ranges_outside(loader: DataLoader, offset: int, size: int) -> None:
    with pytest.raises(AccessFailed, match=r"bytes .* were asked for, but it ends at 100; is the file incomplete\?"):
        loader.load(offset, size)


def test_a_buffer_is_viewed() -> None:
    data = bytearray(DATA)
    view = BufferDataLoader(data).load(0, 10)
    data[0] = 77
    assert bytes(view)[0] == 77


def test_a_file_that_is_cut_after_it_was_opened(path: Path) -> None:
    loader = FileDataLoader(path)
    os.truncate(path, 50)
    assert bytes(loader.load(0, 50)) == DATA[:50]
    with pytest.raises(AccessFailed, match="it ends at 50; is the file incomplete"):
        loader.load(40, 20)


def test_a_small_file_is_a_copy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = MmapDataLoader(path)
    monkeypatch.setattr("delegraph.runtime.data_loader.COPIED_BYTES", 0)
    assert (copied.is_mapped, MmapDataLoader(path).is_mapped) == (False, True)
    os.truncate(path, 50)
    assert bytes(copied.load(0, len(DATA))) == DATA


@pytest.mark.parametrize("kind", [FileDataLoader, MmapDataLoader])
def test_files_that_are_not_there(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(AccessFailed, match=r"missing\.pte: cannot be opened: No such file or directory"):
        kind(tmp_path / "missing.pte")
    with pytest.raises(AccessFailed, match="cannot be opened: Is a directory"):
        kind(tmp_path)


@pytest.mark.parametrize("kind", [FileDataLoader, MmapDataLoader])
@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_names_that_files_cannot_have(kind: Any, name: str) -> None:
    with pytest.raises(AccessFailed, match="cannot be opened"):
        kind(name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("kind", [FileDataLoader, MmapDataLoader])
def test_a_pipe_is_not_waited_for(tmp_path: Path, kind: Any) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AccessFailed, match="is not a regular file; read it, and give its bytes"):
        kind(tmp_path / "pipe")
    with pytest.raises(AccessFailed, match="is not a regular file"):
        kind(os.devnull)


def test_loaders_of_one_file_have_one_mapping(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a backend sees that two loads hand it the same weights; a file that takes its place is another."""
    monkeypatch.setattr("delegraph.runtime.data_loader.COPIED_BYTES", 0)

    def place(loader: DataLoader) -> int:
        address: int = np.frombuffer(loader.load(0, 100), np.uint8).ctypes.data
        return address

    first, second = MmapDataLoader(path), MmapDataLoader(str(path))
    assert place(first) == place(second)
    (path.parent / "new").write_bytes(DATA[::-1])
    os.replace(path.parent / "new", path)
    third = MmapDataLoader(path)
    assert place(third) != place(first)
    del second
    assert (bytes(first.load(0, 100)), bytes(third.load(0, 100))) == (DATA, DATA[::-1])


def test_an_empty_file_cannot_be_mapped(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(AccessFailed, match="empty: cannot be mapped"):
        MmapDataLoader(tmp_path / "empty")


def test_what_fits_a_source(path: Path) -> None:
    assert isinstance(open_data_loader(path), MmapDataLoader)
    assert isinstance(open_data_loader(str(path)), MmapDataLoader)
    assert isinstance(open_data_loader(DATA), BufferDataLoader)
    assert isinstance(open_data_loader(memoryview(DATA)), BufferDataLoader)
    assert isinstance(open_data_loader(io.BytesIO(DATA)), BufferDataLoader)
    loader = FileDataLoader(path)
    assert open_data_loader(loader) is loader
    with pytest.raises(TypeError, match="open it in binary mode"):
        open_data_loader(io.StringIO("text"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected bytes, a path, a binary file object or a DataLoader, got int"):
        open_data_loader(5)  # type: ignore[arg-type]


# ---- programs from sources ---------------------------------------------------------------------------


def weighted(build: Any) -> Any:
    x, weight = build.tensor(1024), build.constant(np.arange(1024, dtype=np.float32))
    out = build.call("aten::add.out", x, weight, build.int(1), build.tensor(1024))
    return build.plan([x], [out])


def program_bytes(build: Any, plan: Any, **options: Any) -> bytes:
    return bytes(serialize_program(build.program(plan, **options)))


@pytest.mark.parametrize("kind", ["bytes", "bytearray", "file object", "path", "str", "file loader"])
def test_programs_from_every_source(build: Any, kernels: Any, tmp_path: Path, kind: str) -> None:
    data, file = program_bytes(build, weighted(build)), tmp_path / "m.pte"
    file.write_bytes(data)
    source: Any = {
        "bytes": data,
        "bytearray": bytearray(data),
        "file object": io.BytesIO(data),
        "path": file,
        "str": str(file),
        "file loader": FileDataLoader(file),
    }[kind]
    program = Runtime(kernels=[kernels]).load_program(source)
    assert program.method_names == {"forward"}
    (result,) = program.load_method("forward").execute([np.ones(1024, np.float32)])
    np.testing.assert_array_equal(result, np.arange(1024) + 1)


def test_constants_stay_in_the_mapping(build: Any, tmp_path: Path) -> None:
    from delegraph.runtime import KernelLibrary

    seen: list[Any] = []
    library = KernelLibrary("seen")

    @library.kernel("aten::add.out")
    def add(context: Any, x: Any, weight: Any, alpha: int, out: Any) -> None:
        seen.append((weight, context.is_constant(weight), context.is_constant(x)))

    (tmp_path / "m.pte").write_bytes(program_bytes(build, weighted(build)))
    loader = MmapDataLoader(tmp_path / "m.pte")
    mapping = np.frombuffer(loader.load(0, loader.size()), np.uint8)
    Runtime(kernels=[library]).load_program(loader).load_method("forward").execute([np.ones(1024, np.float32)])
    weight, weight_is_constant, input_is_constant = seen[0]
    assert np.shares_memory(weight, mapping)
    assert not weight.flags.writeable
    assert (weight_is_constant, input_is_constant) == (True, False)


def test_truncated_programs(build: Any, tmp_path: Path) -> None:
    data = program_bytes(build, weighted(build))
    for length in (0, 3, 40, len(data) // 2, len(data) - 1):
        (tmp_path / "m.pte").write_bytes(data[:length])
        with pytest.raises((InvalidProgram, AccessFailed)):
            load(tmp_path / "m.pte")
    with pytest.raises(InvalidProgram):
        load(b"not a program at all" * 10)


# ---- .ptd ----------------------------------------------------------------------------------------------


def external(build: Any, planned: bool = False) -> Any:
    x, weight = build.tensor(3), build.external("layer.weight", 3, planned=planned)
    return build.plan([x], [build.call("aten::add.out", x, weight, build.int(1), build.tensor(3))])


def flat_tensor(
    name: str = "layer.weight", sizes: tuple[int, ...] = (3,), dtype: ScalarType = ScalarType.FLOAT, layout: bool = True
) -> bytes:
    data = np.arange(np.prod(sizes), dtype=np.float64 if dtype is ScalarType.DOUBLE else np.float32).tobytes()
    described = TensorLayout(dtype, sizes, tuple(range(len(sizes)))) if layout else None
    return bytes(serialize_flat_tensor(FlatTensor({name: ExternalData(data, described)})))


@pytest.mark.parametrize("planned", [False, True])
def test_external_constants(build: Any, kernels: Any, tmp_path: Path, planned: bool) -> None:
    (tmp_path / "m.ptd").write_bytes(flat_tensor())
    model = load(program_bytes(build, external(build, planned)), data_path=tmp_path / "m.ptd", kernels=[kernels])
    assert model(np.float32([1, 1, 1]))[0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, r"the data of 'layer.weight' is in a .ptd file; pass it as data_path="),
        (flat_tensor("other"), "the .ptd files have no 'layer.weight', but 'other': they are another model's"),
        (flat_tensor(sizes=(2,)), r"'layer.weight' is FLOAT\[2\] in dim order \[0\] in the .ptd file, but FLOAT\[3\]"),
        (flat_tensor(dtype=ScalarType.DOUBLE), r"is DOUBLE\[3\] in dim order \[0\] in the .ptd file"),
        (flat_tensor(layout=False), "'layer.weight' is a blob in the .ptd file"),
    ],
)
def test_external_constants_that_do_not_fit(build: Any, kernels: Any, data: bytes | None, message: str) -> None:
    with pytest.raises(InvalidExternalData, match="method 'forward', value 1: .*" + message):
        load(program_bytes(build, external(build)), data_path=data, kernels=[kernels])


def test_delegates_see_the_data_of_both_files(build: Any) -> None:
    data = program_bytes(build, build.plan(), named_data={"mine": NamedData(b"12")})
    program = Program.load(data, data_path=flat_tensor("theirs", (1,)))
    assert {key: len(value) for key, value in program.named_data.items()} == {"mine": 2, "theirs": 4}
    with pytest.raises(InvalidExternalData, match=r"both the program and its \.ptd have data named 'mine'"):
        Program.load(data, data_path=flat_tensor("mine"))


def test_a_ptd_that_is_none(build: Any) -> None:
    with pytest.raises(DelegraphError):
        load(program_bytes(build, external(build)), data_path=b"FT01")


def test_a_scheme_has_a_loader_of_its_own() -> None:
    registry = PluginRegistry()
    registry.register("delegraph.data_loaders", "acme", lambda url: BufferDataLoader(url.encode()))
    registry.register("delegraph.data_loaders", "none", lambda url: url)
    registry.register("delegraph.data_loaders", "broken", lambda url: {}["x"])
    assert bytes(open_data_loader("acme://model", registry).load(7, 5)) == b"model"
    with pytest.raises(AccessFailed, match="'none' gave 'none://model', which is not a DataLoader"):
        open_data_loader("none://model", registry)
    with pytest.raises(AccessFailed, match="the data loader for 'broken' raised KeyError"):
        open_data_loader("broken://model", registry)
