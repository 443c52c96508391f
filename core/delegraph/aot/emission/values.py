"""Arguments of graph nodes -> the value table of a method: scalars and lists once each, tensors with what they ask
of the memory planner.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch

from delegraph.aot.graph.dtypes import scalar_type_of
from delegraph.aot.graph.tensor_spec import TensorSpec
from delegraph.errors import LoweringError
from delegraph.program.devices import CPU, Device
from delegraph.program.schema import (
    Bool,
    BoolList,
    Double,
    DoubleList,
    ExtraTensorInfo,
    Int,
    IntList,
    Null,
    OptionalTensorList,
    ScalarType,
    String,
    Tensor,
    TensorList,
    Value,
)

__all__ = ["ArgumentType", "MethodValues", "PlannedTensor", "argument_types"]

LAYOUT_CODES: Final[dict[torch.layout, int]] = {torch.strided: 0, torch.sparse_coo: 1}
"""ExecuTorch's codes (`c10/core/Layout.h`)."""

MEMORY_FORMAT_CODES: Final[dict[torch.memory_format, int]] = {torch.contiguous_format: 0, torch.preserve_format: 1}
"""The two formats that a runtime takes (`c10/core/MemoryFormat.h`); others are written as dim orders."""


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """The place that a tensor value asks the memory planner for.

    `always_alive`: it keeps its bytes between runs. `shared_name`: it is one with the tensors of that name in other
    methods. `device`: whose memory it lies in; `memory_id` tells memories of the CPU apart.
    """

    nbytes: int
    memory_id: int = 1
    always_alive: bool = False
    shared_name: str | None = None
    device: Device = CPU


@dataclass(frozen=True, slots=True)
class ArgumentType:
    """The parts of an operator's schema that decide how an argument is written."""

    name: str
    kind: str  # "Tensor", "float", "int", "bool", "number", "str"
    is_list: bool
    is_optional: bool
    element_is_optional: bool
    length: int | None
    has_default: bool
    default: object
    is_out: bool


def argument_types(schema: torch.FunctionSchema) -> tuple[ArgumentType, ...]:
    """The arguments of `schema`, in order."""
    return tuple(_argument_type(argument) for argument in schema.arguments)


def _argument_type(argument: torch.Argument) -> ArgumentType:
    kind: Any = argument.type
    is_optional = is_list = element_is_optional = False
    if kind.kind() == "OptionalType":
        is_optional, kind = True, kind.getElementType()
    if kind.kind() == "ListType":
        is_list, kind = True, kind.getElementType()
        if kind.kind() == "OptionalType":
            element_is_optional, kind = True, kind.getElementType()
    return ArgumentType(
        argument.name,
        str(kind),
        is_list,
        is_optional,
        element_is_optional,
        argument.N,  # type: ignore[attr-defined]
        argument.has_default_value(),
        argument.default_value,
        argument.is_out and argument.kwarg_only,
    )


Lookup: TypeAlias = Callable[[torch.fx.Node], "int | tuple[int, ...]"]
"""The value index (or indices) that a graph node became."""


class MethodValues:
    """The values of one method while it is emitted."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.planned: dict[int, PlannedTensor] = {}
        self.aliases: dict[int, int] = {}
        """Views without memory of their own -> the planned value whose memory they show."""
        self.offsets: dict[int, int] = {}
        """The byte of that memory at which a view begins; 0 for views that are not here."""
        self.specs: dict[int, TensorSpec] = {}
        self._shared: dict[object, int] = {}

    # ---- values ----------------------------------------------------------------------------------------

    def add(self, value: Value) -> int:
        """A new value's index."""
        self.values.append(value)
        return len(self.values) - 1

    def share(self, key: object, value: Value) -> int:
        """The index of the one constant value with this key."""
        index = self._shared.get(key)
        if index is None:
            index = self._shared[key] = self.add(value)
        return index

    def scalar(self, value: object, kind: str = "number") -> int:
        """The index of a constant scalar; of the type that the schema's `kind` asks for."""
        if value is None:
            return self.share(None, Null())
        if isinstance(value, bool):
            return self.share((bool, value), Bool(value))
        if kind == "float" and isinstance(value, int):
            value = float(value)
        if isinstance(value, int):
            return self.share((int, value), Int(int(value)))
        if isinstance(value, float):
            return self.share((float, struct.pack("<d", value)), Double(value))
        if isinstance(value, str):
            return self.share((str, value), String(value))
        return self.scalar(_code_of(value))

    def variable(self, like: object) -> int:
        """A scalar that an instruction will write, of the type of `like` (a symbolic or plain scalar)."""
        if isinstance(like, (torch.SymBool, bool)):
            return self.add(Bool(False))
        if isinstance(like, (torch.SymFloat, float)):
            return self.add(Double(0.0))
        return self.add(Int(0))

    def tensor(
        self,
        spec: TensorSpec,
        planned: PlannedTensor | None = None,
        data_buffer_idx: int = 0,
        extra: ExtraTensorInfo | None = None,
    ) -> int:
        """A new tensor; its place is set once memory has been planned."""
        index = self.add(
            Tensor(
                spec.scalar_type,
                spec.sizes,
                spec.dim_order,
                data_buffer_idx,
                shape_dynamism=spec.dynamism,
                extra_tensor_info=extra,
            )
        )
        self.specs[index] = spec
        if planned is not None:
            self.planned[index] = planned
        return index

    def is_tensor(self, index: int) -> bool:
        """Whether the value is a tensor with data."""
        return index in self.specs

    def is_constant(self, index: int) -> bool:
        """Whether the value is a tensor whose bytes are in this program's constants."""
        record = self.values[index]
        return isinstance(record, Tensor) and record.data_buffer_idx > 0 and self.root(index) not in self.planned

    def twin(self, index: int) -> int:
        """A new value like this one, planned if it is a tensor."""
        spec = self.specs.get(index)
        return self.add(self.values[index]) if spec is None else self.tensor(spec, PlannedTensor(spec.nbytes))

    def alias(self, spec: TensorSpec, base: int, offset: int = 0) -> int:
        """A tensor over the memory, planned or constant, of `base`, from byte `offset` of a planned one on."""
        root, record = self.root(base), self.values[base]
        assert isinstance(record, Tensor)
        if root not in self.planned:
            assert not offset
            return self.tensor(spec, None, record.data_buffer_idx)
        index = self.tensor(spec)
        self.aliases[index] = root
        self.offsets[index] = self.offset(base) + offset
        return index

    def offset(self, index: int) -> int:
        """The byte of its root's memory at which the tensor begins."""
        return self.offsets.get(index, 0)

    def root(self, index: int) -> int:
        """The value whose memory `index` shows."""
        return self.aliases.get(index, index)

    def empty_tensor(self) -> int:
        """The tensor that stands for None where a schema insists on one (ExecuTorch: no bytes, sizes [0])."""
        return self.share("empty", Tensor(ScalarType.BYTE, (0,), (0,)))

    # ---- arguments -------------------------------------------------------------------------------------

    def argument(self, value: object, kind: ArgumentType, lookup: Lookup) -> int:
        """The index of an operator's argument. Raises `LoweringError` for one that a program cannot hold."""
        if isinstance(value, torch.fx.Node):
            emitted = lookup(value)
            return emitted if isinstance(emitted, int) else self.tensor_list(emitted)
        if value is None:
            return self.empty_tensor() if kind.kind == "Tensor" and not kind.is_optional else self.scalar(None)
        if kind.is_list:
            return self.list(value, kind, lookup)
        if kind.kind == "Tensor":
            raise LoweringError(f"argument {kind.name!r} is {value!r}, where the edge dialect has a tensor")
        return self.scalar(value, kind.kind)

    def list(self, value: Any, kind: ArgumentType, lookup: Lookup) -> int:
        """The index of a list argument; a lone number stands for a list of the schema's length."""
        items = list(value) if isinstance(value, (list, tuple)) else [value] * (kind.length or 1)
        if kind.kind == "Tensor":
            indices = tuple(-1 if item is None else self.one(item, lookup) for item in items)
            if kind.element_is_optional:
                return self.share(("optional", indices), OptionalTensorList(indices))
            return self.tensor_list(indices)
        if any(isinstance(item, torch.fx.Node) for item in items) or _holds_ints(items, kind.kind):
            return self.int_list(tuple(self.one(item, lookup) for item in items))
        if kind.kind == "bool":
            return self.share(("bools", tuple(items)), BoolList(tuple(map(bool, items))))
        numbers = tuple(map(float, items))
        return self.share(("doubles", struct.pack(f"<{len(numbers)}d", *numbers)), DoubleList(numbers))

    def one(self, item: object, lookup: Lookup) -> int:
        """The index of a list's item."""
        if not isinstance(item, torch.fx.Node):
            return self.scalar(item)
        index = lookup(item)
        assert isinstance(index, int)
        return index

    def int_list(self, indices: Sequence[int]) -> int:
        """The index of the list of these Int values."""
        return self.share(("ints", tuple(indices)), IntList(tuple(indices)))

    def tensor_list(self, indices: Sequence[int]) -> int:
        """The index of the list of these tensors."""
        return self.share(("tensors", tuple(indices)), TensorList(tuple(indices)))


def _holds_ints(items: Sequence[object], kind: str) -> bool:
    if kind == "number":
        return all(isinstance(item, int) and not isinstance(item, bool) for item in items)
    return kind == "int"


def _code_of(value: object) -> int:
    """The code of a dtype, layout or memory format."""
    if isinstance(value, torch.dtype):
        return int(scalar_type_of(value))
    if isinstance(value, torch.layout) and value in LAYOUT_CODES:
        return LAYOUT_CODES[value]
    if isinstance(value, torch.memory_format) and value in MEMORY_FORMAT_CODES:
        return MEMORY_FORMAT_CODES[value]
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise LoweringError(f"the symbolic value {value} is an argument, but no node of the graph computes it")
    raise LoweringError(f"a program cannot hold {value!r} ({type(value).__name__}) as an argument")
