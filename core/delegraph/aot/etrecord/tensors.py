"""The bytes that `torch.save` wrote -> tensors in containers, read without an unpickler.

The file is a zip: `<root>/data.pkl`, a pickle of protocol 2, and `<root>/data/<key>`, the bytes of each storage. Of
pickle's machine only what such files need is here, and it resolves no name: the names in `_TYPES` and `_CALLS` are all
that there are, and stand for what this module does. Another opcode or name ends the reading at its offset.

A storage is read as bytes; sizes, strides and offset of a tensor are checked against it before torch makes the view.
Everything comes to the CPU, whatever device the file names.
"""

from __future__ import annotations

import pickletools
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from delegraph.aot.etrecord.archive import read_zip_members
from delegraph.errors import ETRecordError

__all__ = ["read_tensors"]

MOST_VALUES: Final = 1_000_000
MOST_DEPTH: Final = 64
MOST_REPEATED: Final = 2**24
"""Elements of a tensor that has more of them than its storage, as `expand` makes them."""

Call = Callable[..., Any]


def read_tensors(data: bytes, where: str) -> Any:
    """The tensors, numbers, texts and plain containers in `data`. Raises `ETRecordError` for anything else."""
    members = read_zip_members(data, where)
    roots = [name.removesuffix("/data.pkl") for name in members if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise ETRecordError(f"{where}: no file of torch.save: it has {len(roots)} members named data.pkl")
    order = members.get(f"{roots[0]}/byteorder", b"little")
    if order != sys.byteorder.encode():
        raise ETRecordError(f"{where}: its numbers are {order!r:.20}-endian, this machine's are {sys.byteorder}-endian")
    machine = _Machine(members, f"{roots[0]}/data/")
    try:
        value = machine.run(members[f"{roots[0]}/data.pkl"])
        _check_plain(value)
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError, RuntimeError) as error:
        raise ETRecordError(
            f"{where}: byte {machine.position} of data.pkl: {error or 'damaged'}; only tensors, numbers and texts in"
            " plain containers are read"
        ) from error
    return value


def _check_plain(root: object) -> None:
    """Raise `ValueError` unless all of `root` is a value, and it ends."""
    todo = [(root, 0)]
    seen = 0
    while todo:
        value, depth = todo.pop()
        seen += 1
        if seen > MOST_VALUES or depth > MOST_DEPTH:
            raise ValueError(f"more than {MOST_VALUES:,} values, or {MOST_DEPTH} containers in one another")
        if isinstance(value, dict):
            if not all(isinstance(key, str | int | float | None) for key in value):
                raise ValueError("a key of a dict is no text and no number")
            todo += [(item, depth + 1) for item in value.values()]
        elif isinstance(value, list | tuple):
            todo += [(item, depth + 1) for item in value]
        elif not isinstance(value, _VALUES):
            raise ValueError(f"{value} stands for a value")


_VALUES: Final = (torch.Tensor, torch.dtype, torch.device, str, int, float, complex, type(None))


# ---- names -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Name:
    """A name in the file."""

    text: str

    def __str__(self) -> str:
        return f"the name {self.text!r}"


@dataclass(frozen=True, slots=True)
class _Storage:
    """The bytes of a storage, and the dtype of its elements: None for those of an untyped one."""

    data: torch.Tensor
    dtype: torch.dtype | None


def _tensor(storage: _Storage, offset: int, size: Any, stride: Any, grad: bool, hooks: Any, *late: Any) -> torch.Tensor:
    """`torch._utils._rebuild_tensor_v2`, and `v3`, which tells the dtype of an untyped storage."""
    dtype = storage.dtype if storage.dtype is not None else late[0]
    _expect(isinstance(dtype, torch.dtype) and type(grad) is bool and hooks == OrderedDict(), "no tensor")
    _expect(len(size) == len(stride) <= MOST_DEPTH, "sizes and strides of different tensors")
    _expect(all(type(n) is int and 0 <= n < 2**63 for n in (offset, *size, *stride)), "sizes that no tensor has")
    flat = storage.data.view(dtype)
    elements = torch.Size(size).numel()
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    _expect(0 in size or last < flat.numel(), f"{list(size)} reaches past the {flat.numel()} elements of its storage")
    _expect(elements <= max(flat.numel(), MOST_REPEATED), f"{elements} elements in a storage of {flat.numel()}")
    return flat.as_strided(size, stride, offset if elements else 0).requires_grad_(grad)


def _parameter(data: torch.Tensor, grad: bool, hooks: Any, _attributes: object = None) -> torch.nn.Parameter:
    """`torch._utils._rebuild_parameter`, and `…_with_state`, whose attributes nobody reads here."""
    _expect(isinstance(data, torch.Tensor) and type(grad) is bool and hooks == OrderedDict(), "no parameter")
    return torch.nn.Parameter(data.detach(), grad)


def _size(sizes: Any) -> torch.Size:
    _expect(all(type(n) is int for n in sizes), "no torch.Size")
    return torch.Size(sizes)


def _device(kind: str, index: int = 0) -> torch.device:
    _expect(kind in ("cpu", "meta", "cuda", "mps", "xpu") and type(index) is int, f"a device {kind!r}")
    return torch.device(kind, index) if index else torch.device(kind)


def _complex(real: float, imaginary: float) -> complex:
    _expect(type(real) is type(imaginary) is float, "no complex number")
    return complex(real, imaginary)


_CALLS: Final[dict[str, Call]] = {
    "torch._utils _rebuild_tensor_v2": _tensor,
    "torch._utils _rebuild_tensor_v3": _tensor,
    "torch._utils _rebuild_parameter": _parameter,
    "torch._utils _rebuild_parameter_with_state": _parameter,
    "collections OrderedDict": OrderedDict[Any, Any],
    "torch Size": _size,
    "torch device": _device,
    "__builtin__ complex": _complex,
}
_DTYPES: Final = (
    *("float64", "float32", "float16", "bfloat16"),
    *("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool"),
    *("complex128", "complex64", "complex32"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
_STORAGES: Final = {
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
    "ComplexDouble": torch.complex128,
    "ComplexFloat": torch.complex64,
}
_TYPES: Final[dict[str, torch.dtype | None]] = {
    "torch.storage UntypedStorage": None,
    **{f"torch {name}Storage": dtype for name, dtype in _STORAGES.items()},
}
"""The types of storages."""
_VALUES_BY_NAME: Final = {f"torch {name}": getattr(torch, name) for name in _DTYPES}


def _expect(condition: bool, reason: str) -> None:
    if not condition:
        raise ValueError(reason)


# ---- the machine -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Machine:
    """Pickle's stack and memo, over the storages that the zip has."""

    members: dict[str, bytes]
    folder: str
    position: int = 0
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    storages: dict[str, torch.Tensor] = field(default_factory=dict)

    def run(self, program: bytes) -> Any:
        """The value that the pickle makes. Raises what comes of a bad one, at `position`."""
        for opcode, argument, position in pickletools.genops(program):
            self.position = position or 0
            if opcode.name == "STOP":
                _expect(len(self.stack) == 1 and self.position + 1 == len(program), "it ends before its end")
                return self.stack.pop()
            step = _STEPS.get(opcode.name)
            _expect(step is not None, f"pickle's {opcode.name}, which no tensor needs")
            step(self, argument)  # type: ignore[misc] # it is there
        raise ValueError("it has no end")

    def marked(self) -> list[Any]:
        """Take what lies above the last mark."""
        place = self.marks.pop()
        taken = self.stack[place:]
        del self.stack[place:]
        return taken

    def call(self, _: object) -> None:
        arguments, name = self.stack.pop(), self.stack.pop()
        _expect(isinstance(name, _Name) and name.text in _CALLS and type(arguments) is tuple, f"a call of {name}")
        self.stack.append(_CALLS[name.text](*arguments))

    def name(self, text: str) -> None:
        known = text in _CALLS or text in _TYPES or text in _VALUES_BY_NAME
        _expect(known, f"the name {text!r}, which is not one of torch.save's")
        self.stack.append(_VALUES_BY_NAME.get(text, _Name(text)))

    def storage(self, _: object) -> None:
        word, kind, key, _device_name, length = self.stack.pop()
        _expect(word == "storage" and isinstance(kind, _Name) and type(key) is str, "no storage")
        dtype = _TYPES[kind.text]
        if key not in self.storages:
            _expect(self.folder + key in self.members, f"the storage {key!r} is not in the file")
            self.storages[key] = _bytes_of(self.members[self.folder + key])
        data = self.storages[key]
        size = 1 if dtype is None else dtype.itemsize
        _expect(type(length) is int and length * size == data.numel(), f"the storage {key!r} has {data.numel()} bytes")
        _expect(dtype is not torch.bool or bool((data < 2).all()), f"the storage {key!r} has bytes that are no bools")
        self.stack.append(_Storage(data, dtype))

    def set_items(self, items: list[Any]) -> None:
        mapping = self.stack[-1]
        _expect(isinstance(mapping, dict) and len(items) % 2 == 0, "items of what is no dict")
        mapping.update(zip(items[::2], items[1::2], strict=True))

    def append(self, items: list[Any]) -> None:
        _expect(type(self.stack[-1]) is list, "items of what is no list")
        self.stack[-1].extend(items)

    def build(self, _: object) -> None:
        """A module's state dict has the versions of its modules; nobody reads them here."""
        state = self.stack.pop()
        of_a_module = isinstance(self.stack[-1], OrderedDict) and isinstance(state, dict) and [*state] == ["_metadata"]
        _expect(of_a_module, "an object with a state")

    def memorize(self, index: int) -> None:
        self.memo[index] = self.stack[-1]


def _bytes_of(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


Step = Callable[[_Machine, Any], None]


def _push(make: Callable[[], Any]) -> Step:
    return lambda machine, _: machine.stack.append(make())


def _tuple_of(count: int) -> Step:
    def step(machine: _Machine, _: object) -> None:
        _expect(len(machine.stack) >= count, "too few values for a tuple")
        items = tuple(machine.stack[-count:])
        machine.stack[-count:] = [items]

    return step


_STEPS: Final[dict[str, Step]] = {
    "PROTO": lambda machine, version: _expect(version == 2, f"protocol {version}"),
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "NONE": _push(lambda: None),
    "NEWTRUE": _push(lambda: True),
    "NEWFALSE": _push(lambda: False),
    "EMPTY_DICT": _push(dict),
    "EMPTY_LIST": _push(list),
    "EMPTY_TUPLE": _push(tuple),
    **dict.fromkeys(
        ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"),
        lambda machine, value: machine.stack.append(value),
    ),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.marked())),
    "APPEND": lambda machine, _: machine.append([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.marked()),
    "SETITEM": lambda machine, _: machine.set_items([machine.stack.pop(-2), machine.stack.pop()]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.marked()),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _Machine.memorize),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda machine, index: machine.stack.append(machine.memo[index])),
    "GLOBAL": _Machine.name,
    "BINPERSID": _Machine.storage,
    "REDUCE": _Machine.call,
    "BUILD": _Machine.build,
}
