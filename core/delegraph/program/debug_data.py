"""A program <-> what its instructions and its delegates' steps come from: operators, modules, lines, weights' names.

ExecuTorch keeps this in an ETRecord beside the file, as its schema has no place for it. A program that was lowered here
carries it as named data under `DEBUG_DATA_KEY`, JSON compressed by zlib, which ExecuTorch ignores and no run reads:

    {"version": 1, "methods": {"forward": {
        "nodes": [[1, ["aten::conv2d"], "stem.conv", "net.py:12, in forward", ["stem.conv.weight"],
                   ["float32 [1, 16, 8, 8]"]], …],
        "instructions": [[0, [1, 2]], …],                   the debug handles of each, those in a delegate included
        "delegates": [[["Relu_1_0", [1, 2]], …], …],         of each delegate its own ids, `debug_handle_map`
        "constants": [[3, ["stem.conv.weight"]], …],        values that are weights, or were folded from them
        "left": [["cpu: no float16", [7, 8]], …],           why no backend took what has these handles
        "weights": [["stem.conv.weight", ["float32", [16, 3, 3, 3]]], …]}}}

Files are named as Python finds them, or from the folder in which the program was lowered: not by where they lay.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from delegraph.errors import InvalidProgram
from delegraph.lazy_dataclass import dataclass, field, fields
from delegraph.program.buffers import byte_view
from delegraph.program.schema import Buffer, Program

__all__ = [
    "DEBUG_DATA_KEY",
    "DebugData",
    "SourceNode",
    "SourceWeight",
    "StepId",
    "debug_data_of",
    "read_debug_data",
    "write_debug_data",
]

DEBUG_DATA_KEY: Final = "delegraph.debug_data"
VERSION: Final = 1
MOST_NBYTES: Final = 2**26
"""Of the JSON, which has some 150 bytes for a node. A stranger's file could unpack to any size."""

StepId: TypeAlias = int | str
"""A backend's id of a step of a delegate, in `PreprocessResult.debug_handle_map` and in events."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SourceNode:
    """The nodes of the edge program with one debug handle: their operators, the innermost module of the model,
    `"blocks.0.conv"`, the user's line, `"net.py:12, in forward"`, and the weights that they read, by qualified names;
    `results` are what the last of them gives, as text: `"float32 [batch, 16]"`. Unknown texts are ""."""

    operators: tuple[str, ...]
    module: str = ""
    line: str = ""
    weights: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceWeight:
    """A weight of the model as it was lowered: torch's name of its dtype, and its shape."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DebugData:
    """Of a method: its nodes by debug handle; the handles of each instruction; for each delegate, in the order of the
    plan, those of its steps by their ids; of values that are constants the qualified names of the weights which they
    are, or were computed from; `weights` are all of these, and those that delegates read, by qualified name; `left`
    says of nodes, by handle, why no backend took them."""

    nodes: Mapping[int, SourceNode] = field(default_factory=dict)
    instructions: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    delegates: tuple[Mapping[StepId, tuple[int, ...]], ...] = ()
    constants: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    weights: Mapping[str, SourceWeight] = field(default_factory=dict)
    left: Mapping[int, str] = field(default_factory=dict)


# ---- writing ---------------------------------------------------------------------------------------


def write_debug_data(methods: Mapping[str, DebugData]) -> bytes:
    """The bytes that a program has under `DEBUG_DATA_KEY`; of more than would be read, none of it."""
    content = {"version": VERSION, "methods": {name: _written(data) for name, data in methods.items()}}
    text = json.dumps(content, separators=(",", ":")).encode()
    return zlib.compress(text if len(text) <= MOST_NBYTES else _NOTHING)


_NOTHING: Final = b'{"version":1,"methods":{}}'
_FIELDS: Final = tuple(field.name for field in fields(SourceNode))


def _written(data: DebugData) -> dict[str, object]:
    return {
        "nodes": [[handle, *(getattr(node, name) for name in _FIELDS)] for handle, node in data.nodes.items()],
        "instructions": list(data.instructions.items()),
        "delegates": [list(steps.items()) for steps in data.delegates],
        "constants": list(data.constants.items()),
        "weights": [[name, [weight.dtype, weight.shape]] for name, weight in data.weights.items()],
        "left": [[reason, handles] for reason, handles in _by_reason(data.left).items()],
    }


def _by_reason(left: Mapping[int, str]) -> dict[str, list[int]]:
    by_reason: dict[str, list[int]] = {}
    for handle, reason in left.items():
        by_reason.setdefault(reason, []).append(handle)
    return by_reason


# ---- reading ---------------------------------------------------------------------------------------


def debug_data_of(program: Program) -> dict[str, DebugData]:
    """The debug data in `program`, by method; none where it carries none. Raises `InvalidProgram` if damaged."""
    named = program.named_data.get(DEBUG_DATA_KEY)
    return {} if named is None else read_debug_data(named.data)


def read_debug_data(data: Buffer) -> dict[str, DebugData]:
    """The debug data by method. That of a later version is not read: none. Raises `InvalidProgram` if damaged."""
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(bytes(byte_view(data)), MOST_NBYTES)
        if not unpacking.eof:
            raise ValueError(f"it is cut short, or more than {MOST_NBYTES} bytes long")
        content = json.loads(text)
        if _integer(content["version"]) > VERSION:
            return {}
        return {str(name): _read(method) for name, method in content["methods"].items()}
    except (zlib.error, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidProgram(
            f"the named data {DEBUG_DATA_KEY!r} is damaged: {error!r:.200}; copy or lower the program again"
        ) from error


def _read(method: Mapping[str, Any]) -> DebugData:
    return DebugData(
        nodes={_integer(handle): _node(*fields) for handle, *fields in method["nodes"]},
        instructions=_pairs(method["instructions"], _integer, _integers),
        delegates=tuple(_pairs(steps, _step_id, _integers) for steps in method["delegates"]),
        constants=_pairs(method["constants"], _integer, _texts),
        weights=_pairs(method["weights"], _text, _weight),
        left={
            handle: reason
            for reason, handles in _pairs(method.get("left", []), _text, _integers).items()
            for handle in handles
        },
    )


def _node(operators: object, module: object, line: object, weights: object, results: object) -> SourceNode:
    return SourceNode(_texts(operators), _text(module), _text(line), _texts(weights), _texts(results))


def _weight(entry: Any) -> SourceWeight:
    dtype, shape = entry
    return SourceWeight(_text(dtype), _integers(shape))


_K = TypeVar("_K", int, str, StepId)


def _pairs(entries: Any, read_key: Callable[[object], _K], read: Callable[[object], _T]) -> dict[_K, _T]:
    return {read_key(key): read(value) for key, value in entries}


def _list(entries: Any, read: Callable[[object], _T]) -> tuple[_T, ...]:
    if not isinstance(entries, list):
        raise TypeError(f"expected a list, not {entries!r:.40}")
    return tuple(map(read, entries))


def _integers(entries: object) -> tuple[int, ...]:
    return _list(entries, _integer)


def _texts(entries: object) -> tuple[str, ...]:
    return _list(entries, _text)


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"expected an integer, not {value!r:.40}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, not {value!r:.40}")
    return value


def _step_id(value: object) -> StepId:
    return value if isinstance(value, str) else _integer(value)
