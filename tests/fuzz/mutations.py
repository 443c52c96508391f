"""Bytes -> other bytes: bits and pieces anywhere, and where the file can be read, its own fields.

Of a program the tables of its flatbuffer are changed one by one and put together again, so that what is reached lies
behind the reader; of a blob its header and its graph, with the checksums made right; of an ETRecord
the JSON of its programs and the pickles and storages of their tensors, zipped again; of a TOML file its lines.
"""

from __future__ import annotations

import copy
import io
import json
import lzma
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any
from zipfile import BadZipFile, ZipFile

import onnx
from core.tests.program.test_fuzz import mutated
from tests.fuzz.blobs import format_of_blob

from delegraph.errors import DelegraphError
from delegraph.program.raw_tables import read_tables, write_tables

__all__ = ["mutate"]

NUMBERS = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 7, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1)
TEXTS = (
    "",
    "\0",
    "\x1b[2J",
    "a" * 300,
    "\u202e",
    "forward",
    "aten::add",
    "CpuBackend",
    "[1,5]",
    "executorch_prim::mul",
    "s0 // (s0 - s0)",
    "torch.ops.aten.add.Tensor",
)
BLOB = b"DLGBLOB"


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Another file."""
    if data[:7] == BLOB and rng.random() < 0.8:
        return _blob(data, rng)
    if data[4:8] == b"ET12" and rng.random() < 0.7:
        return _tables(data, rng)
    if data[:2] == b"PK" and rng.random() < 0.9:
        return _zip(data, rng)
    if data[:1] == b"#" and rng.random() < 0.9:
        return _toml(data, rng)
    return _bits(data, rng)


def _bits(data: bytes, rng: random.Random) -> bytes:
    return mutated(rng, data.ljust(160, b"\0"))


# ---- programs ------------------------------------------------------------------------------------------


def _tables(data: bytes, rng: random.Random) -> bytes:
    try:
        tables = read_tables(data)
        for _ in range(rng.choice([1, 1, 2, 4])):
            _change_somewhere(tables, rng)
        return write_tables(tables)
    except (DelegraphError, KeyError, TypeError, ValueError, AttributeError, struct.error, RecursionError):
        return _bits(data, rng)


def _change_somewhere(tree: Any, rng: random.Random) -> None:
    """Change one field of a tree of dicts and lists, in place: each is as likely, however deep it lies."""
    places: list[tuple[Any, Any]] = []
    todo = [tree]
    while todo:
        node = todo.pop()
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(value, dict | list):
                todo.append(value)
    if places:
        node, key = rng.choice(places)
        node[key] = _other(node[key], rng) if rng.random() < 0.8 else _copied(places, rng)


def _copied(places: list[tuple[Any, Any]], rng: random.Random) -> Any:
    """What stands somewhere else."""
    node, key = rng.choice(places)
    return copy.deepcopy(node[key])


def _other(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([*NUMBERS, value + 1, value - 1, value * 2, rng.randrange(16)])
    if isinstance(value, float):
        return rng.choice([0.0, -1.0, 1e300, float("inf"), float("nan"), 2.0**63])
    if isinstance(value, str):
        return rng.choice([*TEXTS, value + "x", value[:-1]])
    if isinstance(value, bytes):
        return mutate(value, rng) if value else b"x"
    if isinstance(value, list) and value:
        return rng.choice([value[:-1], value * 2, value[::-1], [*value, rng.choice(value)], []])
    return None


# ---- descriptions --------------------------------------------------------------------------------------

_LITERALS = (
    "0", "-1", "1", "3.5", "1e308", "inf", "nan", "true", '""', '"x"', '"256 KiB"', '"99999999999999999999 GiB"',
    "9223372036854775808", "9" * 5000, "[]", "[1, 2]", "[" * 2000, "{}", "{x = 1}", "1979-05-27", "'" * 3, '"\\u0000"',
)  # fmt: skip


def _toml(data: bytes, rng: random.Random) -> bytes:
    """Some lines twice, none, elsewhere, or with another value; not the first, which says what it is."""
    first, *lines = data.split(b"\n")
    for _ in range(rng.choice([1, 1, 2, 4])):
        if not lines:
            break
        place = rng.randrange(len(lines))
        line = lines.pop(place)
        key, equals, _ = line.partition(b"=")
        if equals and rng.random() < 0.6:
            lines.insert(place, key + b"= " + rng.choice(_LITERALS).encode())
        elif rng.random() < 0.5:
            lines[place:place] = [line, rng.choice([line, b"[" + key.strip() + b"]", *lines])]
    return b"\n".join([first, *lines])


# ---- blobs ---------------------------------------------------------------------------------------------


def _blob(data: bytes, rng: random.Random) -> bytes:
    """Another header or graph, with the checksums that it has to have."""
    form = format_of_blob(data)
    try:
        content = form.unpack(data)
        header, sections = content.header, {name: bytes(content.view(name)) for name in content.names}
    except DelegraphError:
        return _bits(data, rng)
    if rng.random() < 0.4 or "graph" not in sections:
        _change_somewhere(header, rng)
    else:
        sections["graph"] = _graph(sections["graph"], rng)
    return form.pack(header, sections)


def _graph(data: bytes, rng: random.Random) -> bytes:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:  # protobuf's own
        return _bits(data, rng)
    change = rng.choice([*_GRAPH_CHANGES, None])
    if change is None or not model.graph.node:
        return _bits(data, rng)
    try:
        change(model, rng)
    except UnicodeDecodeError:  # a name of a node is no text
        return _bits(data, rng)
    return bytes(model.SerializeToString())


_OPS = ("Add", "Concat", "Reshape", "Identity", "Gather", "Expand", "Tile", "Pad", "Slice", "Resize", "NonZero", "Loop")


def _rename(model: onnx.ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    node.op_type = rng.choice(_OPS)


def _rewire(model: onnx.ModelProto, rng: random.Random) -> None:
    names = [name for node in model.graph.node for name in (*node.input, *node.output)]
    node = rng.choice(model.graph.node)
    side = rng.choice([node.input, node.output])
    if side:
        side[rng.randrange(len(side))] = rng.choice([*names, "x", "y", "w", "c"])


def _reshape(model: onnx.ModelProto, rng: random.Random) -> None:
    tensors = [*model.graph.initializer]
    borders = [value.type.tensor_type for value in (*model.graph.input, *model.graph.output)]
    if tensors and rng.random() < 0.5:
        tensor = rng.choice(tensors)
        tensor.data_type = rng.randrange(24)
        tensor.dims.extend([rng.choice([0, 1, 2, 2**31])])
    elif borders:
        border = rng.choice(borders)
        border.elem_type = rng.randrange(24)
        border.shape.dim.add(dim_value=rng.choice([0, 1, 3]))


def _externalize(model: onnx.ModelProto, rng: random.Random) -> None:
    if model.graph.initializer:
        tensor = rng.choice(model.graph.initializer)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=rng.choice(["/etc/hostname", "x", "*/_ORT_MEM_ADDR_/*"]))


_GRAPH_CHANGES: tuple[Callable[[onnx.ModelProto, random.Random], None], ...] = (
    _rename,
    _rewire,
    _reshape,
    _externalize,
)


# ---- ETRecords -----------------------------------------------------------------------------------------


def _zip(data: bytes, rng: random.Random) -> bytes:
    """Another zip, one of its members changed: a zip in it too, JSON by its values, and other bytes by theirs."""
    try:
        with ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except (BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError, OSError, zlib.error, lzma.LZMAError):
        return _bits(data, rng)
    if not members:
        return _bits(data, rng)
    name = rng.choice([*members])
    members[name] = _member(members[name], rng)
    file = io.BytesIO()
    with ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def _member(data: bytes, rng: random.Random) -> bytes:
    if data[:2] == b"PK":
        return _zip(data, rng)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        flips = bytearray(data or b"x")
        for _ in range(rng.choice([1, 1, 2, 4])):
            flips[rng.randrange(len(flips))] = rng.randrange(256)
        return bytes(flips)
    for _ in range(rng.choice([1, 1, 2])):
        _change_somewhere([document], rng)
    return json.dumps(document).encode()
