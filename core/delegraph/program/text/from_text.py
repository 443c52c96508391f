"""The text of a program, as `to_text` writes it -> the program, its data zeros of the sizes that the text says.

So passes and emission can be given a program that a test writes down. What a text leaves out is left out: content, the
alignment of named data, and of each stack trace all but the innermost line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, TypeVar

from delegraph.errors import InvalidArgument
from delegraph.lazy_dataclass import dataclass, field
from delegraph.program.devices import CPU, Device
from delegraph.program.schema import (
    AllocationDetails,
    BackendDelegate,
    Bool,
    BoolList,
    Chain,
    CompileSpec,
    ContainerMetadata,
    DelegateCall,
    Double,
    DoubleList,
    ExecutionPlan,
    ExtraTensorInfo,
    Frame,
    FreeCall,
    Instruction,
    Int,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    NamedData,
    NonConstBufferDevice,
    Null,
    Operator,
    OptionalTensorList,
    Program,
    ScalarType,
    String,
    Tensor,
    TensorDataLocation,
    TensorList,
    Value,
)
from delegraph.program.text.to_text import DYNAMISM

__all__ = ["from_text"]


def from_text(text: str) -> Program:
    """The program of which `text` is the text form: `to_text` of it gives `text` again.

    Raises `InvalidArgument` with the number of a line that is none of the form.
    """
    return _TextReader(text).program()


@dataclass(slots=True)
class _MethodText:
    """A method as far as it is read."""

    name: str
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    specs: dict[str, str] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=lambda: [0])
    devices: list[NonConstBufferDevice] = field(default_factory=list)
    delegates: list[BackendDelegate] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    chains: list[Chain] = field(default_factory=list)
    operators: dict[Operator, int] = field(default_factory=dict)

    def plan(self) -> ExecutionPlan:
        return ExecutionPlan(
            self.name,
            tuple(self.values),
            self.inputs,
            self.outputs,
            tuple(self.chains),
            tuple(self.operators),
            tuple(self.delegates),
            tuple(self.sizes),
            ContainerMetadata(self.specs.get("in_spec", ""), self.specs.get("out_spec", "")),
            tuple(self.devices) or None,
        )


class _TextReader:
    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._at = 0

    def _refuse(self) -> NoReturn:
        raise InvalidArgument(f"line {self._at}: {self._lines[self._at - 1]!r} is no line of a program's text")

    def _next(self, indent: str) -> Iterator[str]:
        """The lines from here on that begin with `indent`, without it."""
        while self._at < len(self._lines) and self._lines[self._at].startswith(indent) and self._lines[self._at]:
            self._at += 1
            yield self._lines[self._at - 1][len(indent) :]

    def _match(self, pattern: str, line: str) -> tuple[Any, ...]:
        match = re.fullmatch(pattern, line)
        if match is None:
            self._refuse()
        return match.groups()

    # ---- the program -----------------------------------------------------------------------------------

    def program(self) -> Program:
        version, data = 0, {"constant": [b""], "mutable data": [b""], "blob": list[bytes]()}
        named, plans = dict[str, NamedData](), list[ExecutionPlan]()
        for line in self._next(""):
            if line.startswith("program version "):
                version = int(self._match(r"program version (\d+)", line)[0])
            elif line.startswith("named data "):
                key, size = self._match(r"named data (.+): (\d+) bytes", line)
                named[ast.literal_eval(key)] = NamedData(bytes(int(size)))
            else:
                kind, size = self._match(r"(constant|mutable data|blob) \d+: (\d+) bytes", line)
                data[kind].append(bytes(int(size)))
        while self._at < len(self._lines):
            self._at += 1  # the empty line before a method
            (name,) = self._match(r"method (.+)", next(self._next(""), ""))
            plans.append(self._method(_MethodText(_unquoted(name))))
        mutable = data["mutable data"] if len(data["mutable data"]) > 1 else []
        return Program(tuple(plans), tuple(data["constant"]), tuple(mutable), tuple(data["blob"]), named, version)

    def _method(self, method: _MethodText) -> ExecutionPlan:
        for line in self._next("  "):
            word = line.partition(" ")[0]
            if word in _HEAD:
                _HEAD[word](self, method, line)
            elif word.startswith("%"):
                method.values.append(self._value(*self._match(r"%\d+ = (.*)", line)))
            else:
                self._match(r"chain \d+", line)
                method.chains.append(self._chain(method))
        return method.plan()

    def _puts(self, method: _MethodText, line: str) -> None:
        setattr(method, line.partition(" ")[0], _indices(line))

    def _spec(self, method: _MethodText, line: str) -> None:
        name, _, spec = line.partition(" ")
        method.specs[name] = _unquoted(spec)

    def _memory(self, method: _MethodText, line: str) -> None:
        memory_id, size, device = self._match(r"memory (\d+): (\d+) bytes(?: on (\S+))?", line)
        method.sizes.append(int(size))
        if device is not None:
            place = Device.parse(device)
            method.devices.append(NonConstBufferDevice(int(memory_id), place.type, place.index))

    def _delegate(self, method: _MethodText, line: str) -> None:
        name, blob, specs = self._match(r"delegate \d+: (.+?), blob (\d+)(.*)", line)
        pairs = re.findall(r", (.*?)=(b'(?:[^'\\]|\\.)*'|b\"(?:[^\"\\]|\\.)*\")", specs)
        compile_specs = tuple(CompileSpec(_unquoted(key), ast.literal_eval(value)) for key, value in pairs)
        method.delegates.append(BackendDelegate(_unquoted(name), int(blob), compile_specs))

    # ---- values ----------------------------------------------------------------------------------------

    def _value(self, text: str) -> Value:
        if text == "none":
            return Null()
        if text.startswith("tensor ") and not text.startswith("tensor list"):
            return self._tensor(text)
        kinds = "|".join(sorted(_VALUES, key=len, reverse=True))  # "int list" before "int"
        kind, content = self._match(f"({kinds}) (.*)", text)
        return _VALUES[kind](content)

    def _tensor(self, text: str) -> Tensor:
        kind, dynamism, sizes, order, grad, memory, offset, place, index, name, device = self._match(_TENSOR, text)
        shape = tuple(map(int, re.findall(r"\d+", sizes)))
        location = TensorDataLocation.EXTERNAL if place == "external" else TensorDataLocation.SEGMENT
        on = CPU if device is None else Device.parse(device)
        info = ExtraTensorInfo(0, name and ast.literal_eval(name), location, on.type, on.index)
        return Tensor(
            ScalarType[kind.upper()] if kind.upper() in ScalarType.__members__ else self._refuse(),
            shape,
            tuple(range(len(shape))) if order is None else tuple(map(int, re.findall(r"\d+", order))),
            int(index or 0),
            None if memory is None else AllocationDetails(int(memory), int(offset)),
            _DYNAMISM[dynamism or ""],
            grad is not None,
            extra_tensor_info=None if info == ExtraTensorInfo() else info,
        )

    # ---- instructions ----------------------------------------------------------------------------------

    def _chain(self, method: _MethodText) -> Chain:
        inputs: tuple[int, ...] = ()
        outputs: tuple[int, ...] = ()
        instructions: list[Instruction] = []
        frames: list[tuple[Frame, ...]] = []
        for line in self._next("    "):
            if line.startswith("from "):
                inputs, outputs = (_indices(part) for part in self._match(r"from (.*) to (.*)", line))
                continue
            call, filename, number = self._match(r"\d+: (.*?)(?:  # (.*):(\d+))?", line)
            instructions.append(self._instruction(method, call))
            frames.append(() if filename is None else (Frame(_unquoted(filename), int(number), ""),))
        return Chain(tuple(instructions), inputs, outputs, tuple(frames) if any(frames) else None)

    def _instruction(self, method: _MethodText, text: str) -> Instruction:
        if text.startswith("move "):
            source, target = self._match(r"move %(\d+) to %(\d+)", text)
            return MoveCall(int(source), int(target))
        if text.startswith("jump to "):
            target, condition = self._match(r"jump to (\d+) unless %(\d+)", text)
            return JumpFalseCall(int(condition), int(target))
        if text.startswith("free "):
            return FreeCall(int(self._match(r"free %(\d+)", text)[0]))
        if text.startswith("delegate "):
            index, args = self._match(r"delegate (\d+) .*\((.*)\)", text)
            return DelegateCall(int(index), _indices(args))
        name, args = self._match(r"(.+)\((.*)\)", text)
        base, _, overload = _unquoted(name).partition(".")
        operator = Operator(base, overload)
        return KernelCall(method.operators.setdefault(operator, len(method.operators)), _indices(args))


_HEAD: Final[dict[str, Callable[[_TextReader, _MethodText, str], None]]] = {
    "inputs": _TextReader._puts,
    "outputs": _TextReader._puts,
    "in_spec": _TextReader._spec,
    "out_spec": _TextReader._spec,
    "memory": _TextReader._memory,
    "delegate": _TextReader._delegate,
}

_TENSOR: Final = (
    r"tensor (\w+) (up to |unbounded )?\[(.*?)\](?: order \((.*?)\))?( requires_grad)?"
    r"(?: at (\d+)\+(\d+))?(?: given at run time)?(?: (external|constant|mutable data))?(?: (\d+))?"
    r"(?: ('.*'|\".*\"))?(?: on (\S+))?"
)
_DYNAMISM: Final = {words: dynamism for dynamism, words in DYNAMISM.items()}


_T = TypeVar("_T")


def _items(text: str, read: Callable[[str], _T]) -> tuple[_T, ...]:
    inside = text.strip("[]")
    return tuple(map(read, inside.split(", "))) if inside else ()


def _index(text: str) -> int:
    return -1 if text == "none" else int(text.removeprefix("%"))


def _indices(text: str) -> tuple[int, ...]:
    return tuple(int(index) for index in re.findall(r"%(\d+)", text))


_VALUES: Final[dict[str, Callable[[str], Value]]] = {
    "int": lambda text: Int(int(text)),
    "double": lambda text: Double(float(text)),
    "bool": lambda text: Bool(text == "true"),
    "string": lambda text: String(ast.literal_eval(text)),
    "int list": lambda text: IntList(_items(text, _index)),
    "double list": lambda text: DoubleList(_items(text, float)),
    "bool list": lambda text: BoolList(_items(text, "true".__eq__)),
    "tensor list": lambda text: TensorList(_items(text, _index)),
    "optional tensor list": lambda text: OptionalTensorList(_items(text, _index)),
}


def _unquoted(text: str) -> str:
    """A text that is quoted where it is not printable (`delegraph.errors.printable`)."""
    return str(ast.literal_eval(text)) if text[:1] in ("'", '"') and text[-1:] == text[:1] else text
