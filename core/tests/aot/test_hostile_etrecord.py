"""ETRecords that strangers made: none runs code or takes more than it holds, and each is refused by its place.

Each case is a sound record with one thing in it changed, where torch's own reader would unpickle, evaluate, look up,
import or compile it.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import sympy
import torch
from core.tests.aot import record_files
from core.tests.aot.record_files import PROGRAM, Members, parsed, zipped

from delegraph.aot import parse_etrecord
from delegraph.errors import ETRecordError

TENSORS = [
    *(f"{PROGRAM}_{part}" for part in ("state_dict", "constants", "example_inputs")),
    "edge_dialect_exported_program/forward_state_dict",
    "reference_outputs",
    "representative_inputs",
]


@pytest.fixture(scope="module")
def members() -> Members:
    return record_files.members()


# ---- a sound one -----------------------------------------------------------------------------------


def test_a_sound_one_is_read_without_what_could_run_code(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object, **__: object) -> None:
        raise AssertionError("it was asked to unpickle")

    for module, name in ((torch, "load"), (pickle, "load"), (pickle, "loads"), (pickle, "Unpickler")):
        monkeypatch.setattr(module, name, no)
    sympify = sympy.sympify
    monkeypatch.setattr(sympy, "sympify", lambda text, **_: no() if isinstance(text, str) else sympify(text))
    read = parsed(members).exported_program
    assert read is not None
    assert "L['x'].size()[0] % 2 == 0" in read._guards_code
    y = {"k": torch.randn(3)}
    for x in (torch.randn(4, 4), torch.randn(6, 4)):
        torch.testing.assert_close(read.module()(x, "fast", y=y), record_files.exported().module()(x, "fast", y=y))
    with pytest.raises(AssertionError, match="Guard failed"):
        read.module()(torch.randn(3, 4), "fast", y=y)


# ---- pickles ---------------------------------------------------------------------------------------


class Evil:
    """Unpickling it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.folder,)


def archive_of(program: bytes, **storages: bytes) -> bytes:
    """A file as `torch.save` writes it."""
    return zipped({"archive/data.pkl": program, **{f"archive/data/{name}": data for name, data in storages.items()}})


FORMS: dict[str, Callable[[bytes], bytes]] = {"a pickle": bytes, "an archive of torch.save": archive_of}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TENSORS)
def test_a_pickle_is_not_unpickled(members: Members, name: str, form: str, tmp_path: Path) -> None:
    evil = FORMS[form](pickle.dumps(Evil(tmp_path / "ran"), protocol=2))
    with pytest.raises(
        ETRecordError, match=rf"{name}: (File is not a zip file|byte 2 of data\.pkl: the name '\w+ mkdir')"
    ):
        parsed({**members, name: evil})
    assert not (tmp_path / "ran").exists()


def test_no_pickle_of_another_protocol(members: Members, tmp_path: Path) -> None:
    for protocol in (0, 1, 3, 4, 5):
        program = pickle.dumps({"w": Evil(tmp_path / "ran")}, protocol=protocol)
        with pytest.raises(
            ETRecordError, match=r"exported_program_constants: byte \d+ of data\.pkl: (pickle's|protocol|the name)"
        ):
            parsed({**members, f"{PROGRAM}_constants": archive_of(program)})
    assert not (tmp_path / "ran").exists()


class Pickler(pickle.Pickler):
    """Writes a tuple as the name of a storage, as torch does."""

    def persistent_id(self, obj: Any) -> Any:
        return obj if isinstance(obj, tuple) and obj[:1] == ("storage",) else None


class Made:
    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


def tensor(
    kind: Any = torch.FloatStorage,
    key: Any = "0",
    length: Any = 4,
    offset: Any = 0,
    size: Any = (4,),
    stride: Any = (1,),
    grad: Any = False,
) -> Made:
    storage = ("storage", kind, key, "cpu", length)
    return Made(torch._utils._rebuild_tensor_v2, (storage, offset, size, stride, grad, {}))


def pickled(value: Any) -> bytes:
    file = io.BytesIO()
    Pickler(file, protocol=2).dump(value)
    return file.getvalue()


def endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def doubled() -> Any:
    value: list[Any] = []
    for _ in range(40):
        value = [value, value]
    return value


VALUES: dict[str, tuple[Any, str]] = {
    "past its storage": (tensor(size=(5,)), r"\[5\] reaches past the 4 elements of its storage"),
    "an offset past it": (tensor(offset=1), "reaches past the 4 elements"),
    "strides past it": (tensor(size=(2, 2), stride=(3, 1)), "reaches past the 4 elements"),
    "a negative offset": (tensor(offset=-1), "sizes that no tensor has"),
    "a negative size": (tensor(size=(-4,)), "sizes that no tensor has"),
    "a negative stride": (tensor(stride=(-1,)), "sizes that no tensor has"),
    "a large size": (tensor(size=(2**62, 2**62), stride=(0, 0)), "(elements in a storage|overflow)"),
    "much out of little": (tensor(size=(2**40,), stride=(0,)), "1099511627776 elements in a storage of 4"),
    "a size that is no number": (tensor(size=(4.0,)), "sizes that no tensor has"),
    "a truth for a size": (tensor(size=(True,)), "sizes that no tensor has"),
    "more strides than sizes": (tensor(stride=(1, 1)), "sizes and strides of different tensors"),
    "a storage of another length": (tensor(length=2**40), "the storage '0' has 16 bytes"),
    "a storage of another type": (tensor(kind=torch.LongStorage), "the storage '0' has 16 bytes"),
    "no storage": (tensor(key="1"), "the storage '1' is not in the file"),
    "a storage elsewhere": (tensor(key="../data.pkl"), r"the storage '\.\./data\.pkl' is not in the file"),
    "bools that are none": (tensor(kind=torch.BoolStorage, length=16, size=(16,)), "bytes that are no bools"),
    "gradients of whole numbers": (tensor(kind=torch.IntStorage, grad=True), "floating point"),
    "a hook": (
        Made(
            torch._utils._rebuild_tensor_v2,
            (("storage", torch.FloatStorage, "0", "cpu", 4), 0, (4,), (1,), False, {1: 2}),
        ),
        "no tensor",
    ),
    "a name as a value": (torch.FloatStorage, "the name 'torch FloatStorage' stands for a value"),
    "a call of a type": (Made(torch.FloatStorage, (4,)), "a call of the name 'torch FloatStorage'"),
    "an object with a state": (Made(torch.Size, ((1,),), {"a": 1}), "an object with a state"),
    "another function of torch": (Made(torch._utils._rebuild_wrapper_subclass, ()), "which is not one of torch.save's"),
    "a list in itself": (endless(), "64 containers in one another"),
    "a list twice in a list, forty times": (doubled(), "1,000,000 values"),
    "a tensor for a key": ({tensor(): 1}, "a key of a dict is no text and no number"),
    "bytes": ({"a": b"bytes"}, r"pickle's|the name '_codecs encode'"),
}


@pytest.mark.parametrize("case", VALUES)
def test_a_tensor_that_is_none(members: Members, case: str) -> None:
    value, message = VALUES[case]
    data = archive_of(pickled({"w": value} if not isinstance(value, dict) else value), **{"0": b"\x02" * 16})
    with pytest.raises(ETRecordError, match=rf"exported_program_state_dict: byte \d+ of data\.pkl: .*({message})"):
        parsed({**members, f"{PROGRAM}_state_dict": data})


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (b"", "byte 0 of data.pkl: pickle exhausted before seeing STOP"),
        (b"\x80\x02}.more", "byte 3 of data.pkl: it ends before its end"),
        (b"\x80\x02}}.", "byte 4 of data.pkl: it ends before its end"),
        (b"\x80\x02t.", "byte 2 of data.pkl: pop from empty list"),
        (b"\x80\x02\x85.", "byte 2 of data.pkl: too few values for a tuple"),
        (b"\x80\x02X\xff\xff\xff\x7fa.", "byte 0 of data.pkl: expected 2147483647 bytes"),
        (b"\x80\x02h\x07.", "byte 2 of data.pkl: 7"),
        (b"\x80\x02K\x01K\x02K\x03s.", "byte 8 of data.pkl: items of what is no dict"),
        (b"\x80\x02K\x01K\x02a.", "byte 6 of data.pkl: items of what is no list"),
        (b"\x80\x02NQ.", "byte 3 of data.pkl: cannot unpack"),
    ],
)
def test_a_damaged_pickle(members: Members, program: bytes, message: str) -> None:
    with pytest.raises(ETRecordError) as error:
        parsed({**members, f"{PROGRAM}_state_dict": archive_of(program)})
    assert f"exported_program_state_dict: {message}" in str(error.value)


def test_other_things_than_tensors_by_name(members: Members) -> None:
    for name, value in (("state_dict", {"w": 3}), ("constants", [1])):
        with pytest.raises(ETRecordError, match=f"exported_program_{name}: it has other things than tensors by name"):
            parsed({**members, f"{PROGRAM}_{name}": archive_of(pickled(value))})
    with pytest.raises(ETRecordError) as error:
        parsed({**members, f"{PROGRAM}_example_inputs": archive_of(pickled({}))})
    assert "_example_inputs: it has something else than ((arguments), {keywords})" in str(error.value)


def test_a_file_of_another_byte_order_or_of_none(members: Members) -> None:
    sound = {"archive/data.pkl": pickled({}), "archive/byteorder": b"big"}
    with pytest.raises(ETRecordError, match="its numbers are b'big'-endian, this machine's are little-endian"):
        parsed({**members, f"{PROGRAM}_constants": zipped(sound)})
    with pytest.raises(ETRecordError, match=r"exported_program_constants: no file of torch\.save: it has 0 members"):
        parsed({**members, f"{PROGRAM}_constants": zipped({})})


# ---- the zip ---------------------------------------------------------------------------------------


def patched(data: bytes, name: str, offset: int, value: bytes) -> bytes:
    """`data`, with the field at `offset` of the directory's entry for `name` replaced."""
    entry = data.rindex(name.encode()) - 46
    return data[: entry + offset] + value + data[entry + offset + len(value) :]


def test_zips_that_are_refused(members: Members) -> None:
    sound = zipped(members)
    bomb = io.BytesIO()
    with ZipFile(bomb, "w", ZIP_DEFLATED) as archive:
        archive.writestr("ETRECORD_V0", bytes(2**24))
    twice = io.BytesIO()
    with warnings.catch_warnings(), ZipFile(twice, "w") as archive:
        warnings.simplefilter("ignore")
        for _ in range(2):
            archive.writestr("ETRECORD_V0", "")
    for data, message in (
        (bomb.getvalue(), "its members are longer than its"),
        (twice.getvalue(), "2 members with 1 names"),
        (zipped({**members, "../x": b""}), r"member '\.\./x' at byte \d+: no name of a file in it"),
        (zipped({**members, "/etc/x": b""}), "member '/etc/x' at byte .*: no name of a file"),
        (zipped({**members, "x/": b""}), "no name of a file in it"),
        (zipped({**members, "more": b""}), "'more' is no member of an ETRecord"),
        (zipped({**members, "p_state_dict": b""}), "'p' has not its four members|'p_state_dict' is no member"),
        (patched(sound, "delegate_map", 24, struct.pack("<I", 2**31)), "its members are longer than its"),
        (patched(sound, "delegate_map", 8, b"\x01"), "member 'delegate_map' at byte .*: encrypted"),
        (patched(sound, "delegate_map", 10, b"\x08"), "member 'delegate_map' at byte .*: compressed"),
        (patched(sound, "delegate_map", 16, bytes(4)), "Bad CRC-32 for file 'delegate_map'"),
        (sound[: len(sound) // 2], "File is not a zip file|it has no ETRECORD_V0"),
    ):
        with pytest.raises(ETRecordError, match=message):
            parse_etrecord(io.BytesIO(data))


# ---- JSON ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[" * 100_000, "values in one another without end"),
        (b'{"a": 1, "a": 2}', "the key 'a' is there twice"),
        (b"{} {}", "Extra data: line 1 column 4"),
        (b"\xff", "can't decode byte 0xff"),
        (b"1" * 5000, "Exceeds the limit"),
        (b"[]", "cannot be read: TypeError"),
        (b"null", "cannot be read: TypeError"),
    ],
)
def test_json_that_is_none(members: Members, data: bytes, message: str) -> None:
    for name in (PROGRAM, "debug_handle_map", "export_graph_id"):
        with pytest.raises(ETRecordError, match=f"{name}.*({message}|is no )"):
            parsed({**members, name: data})


@pytest.mark.parametrize(
    ("name", "value", "place"),
    [
        ("debug_handle_map", {"forward": {"0": "x"}}, r"forward\.0: 'x' is no whole number"),
        ("debug_handle_map", {"forward": {"0": [2**64]}}, r"forward\.0\[0\]: .* more than 64 bits"),
        ("delegate_map", {"forward": {"0": {"name": 1.5}}}, r"forward\.0\.name: 1\.5 is no"),
        ("delegate_map", {"forward": [1]}, r"forward: \[1\] is no object"),
        ("instruction_id_to_num_outs_map", {"\x1b": {}}, r"\\x1b: .* is no name"),
        ("export_graph_id", 1.5, "the whole: 1.5 is no whole number"),
    ],
)
def test_maps_of_another_form(members: Members, name: str, value: Any, place: str) -> None:
    with pytest.raises(ETRecordError, match=f"{name}: {place}"):
        parsed({**members, name: json.dumps(value).encode()})
