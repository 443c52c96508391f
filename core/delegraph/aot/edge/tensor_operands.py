"""Calls on numbers, or on tensors of several dtypes -> on tensors of one dtype, as edge programs of ExecuTorch have it.

    before                           after
    a = mul.Tensor(x, 2)             c = constant 2.0                        in the dtype that `mul` computes in
                                     a = mul.Tensor(x, c)
    b = mul.Tensor(i, 0.5)           f = _to_copy(i, dtype=float32)          i: int64
                                     b = mul.Tensor(f, d)                    d = constant 0.5
    s = mul.Tensor(x, n)             t = scalar_tensor(n, dtype=float32)     n: a symbolic number
                                     s = mul.Tensor(x, t)

Equal constants are one. A body of control flow cannot have constants, and fills a tensor instead: `full([], 2)`.
ExecuTorch (`exir/passes/scalar_to_tensor_pass.py`, `remove_mixed_type_operators.py`) casts its constants in the graph;
here they are made in the dtype of the computation. `passes.number_operands` undoes this for calls that stay on kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node
from torch.fx.node import Argument

from delegraph.aot.graph.provenance import OPERAND, SOURCE, source_of

__all__ = [
    "ONE_DTYPE",
    "SYMBOLS",
    "TensorOperands",
    "constant_of",
    "lifted_number",
    "number_overload",
    "python_kind",
]

aten = torch.ops.aten

ONE_DTYPE: Final = frozenset(
    {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.div.Tensor_mode, aten.minimum.default}
)
"""Operators whose operands are brought to the dtype that they compute in, which is their result's."""

_WITH_NUMBER: Final[dict[OpOverload, OpOverload]] = {
    packet.Tensor: packet.Scalar
    for packet in (
        *(aten.add, aten.sub, aten.mul, aten.div, aten.remainder, aten.fmod),
        *(aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge),
        *(aten.bitwise_and, aten.bitwise_or, aten.bitwise_xor),
    )
} | {
    aten.div.Tensor_mode: aten.div.Scalar_mode,
    aten.bitwise_left_shift.Tensor: aten.bitwise_left_shift.Tensor_Scalar,
    aten.bitwise_right_shift.Tensor: aten.bitwise_right_shift.Tensor_Scalar,
    aten.pow.Tensor_Tensor: aten.pow.Tensor_Scalar,
}

_TENSORS: Final = frozenset({"Tensor", "Optional[Tensor]"})
_NUMBERS: Final = (bool, int, float, complex)
SYMBOLS: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(slots=True)
class TensorOperands:
    """Rewrites the calls of a program. `constants` are the new ones, by name; `mode` that of its fake values."""

    program: ExportedProgram
    mode: FakeTensorMode
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    _lifted: dict[tuple[object, ...], Node] = field(default_factory=dict)
    _casts: dict[tuple[Node, torch.dtype], Node] = field(default_factory=dict)
    _first_input: Node | None = None

    def __post_init__(self) -> None:
        # a program that comes to the edge a second time has its numbers as constants already
        inputs = {s.arg.name for s in self.program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT}
        for node in self.program.graph.find_nodes(op="placeholder"):
            if OPERAND in node.meta:
                self._lifted[_key(node.meta[OPERAND], node.meta["val"].dtype)] = node
            if self._first_input is None and node.name in inputs:
                self._first_input = node

    def fit(self, node: Node, is_body: bool) -> Iterator[Node]:
        """Let `node`, a call in a body of control flow or not, have tensors where its schema has tensors.

        Yields the calls that this takes, each just added before `node`.
        """
        op = node.target
        assert isinstance(op, OpOverload)
        for position, argument in enumerate(op._schema.arguments):
            is_positional = position < len(node.args)
            if str(argument.type) not in _TENSORS or not (is_positional or argument.name in node.kwargs):
                continue
            value = node.args[position] if is_positional else node.kwargs[argument.name]
            operand = self._operand(node, op, argument.name, value, is_body)
            if operand is value:
                continue
            if is_positional:
                node.update_arg(position, operand)
            else:
                node.update_kwarg(argument.name, operand)
            if isinstance(operand, Node) and operand.op == "call_function":
                yield operand

    def _operand(self, node: Node, op: OpOverload, name: str, value: Argument, is_body: bool) -> Argument:
        """The operand for the argument `value`: a constant, a cast, or `value` itself where its dtype is right."""
        # where kernels have one dtype for all operands, they do not promote: the graph does
        dtype = node.meta["val"].dtype if op in ONE_DTYPE else None
        if isinstance(value, _NUMBERS):
            dtype = dtype or _dtype_beside(node, value)
            # a body takes its inputs from its call alone, so that it can read no constant of the program
            return self._filled(node, name, value, dtype) if is_body else self._constant(value, dtype)
        fake = value.meta.get("val") if isinstance(value, Node) else None
        if isinstance(fake, SYMBOLS):
            return self._call(node, name, aten.scalar_tensor.default, (value,), dtype or _dtype_beside(node, fake))
        if isinstance(value, Node) and isinstance(fake, torch.Tensor) and dtype is not None and fake.dtype != dtype:
            return self._cast(node, name, value, dtype)
        return value

    def _constant(self, number: complex, dtype: torch.dtype) -> Node:
        key = _key(number, dtype)
        if key not in self._lifted:  # in front of the first input, where torch's signatures have constants
            name = self._unused_name()
            graph = self.program.graph
            with graph.inserting_before(self._first_input or next(iter(graph.nodes))), self.mode:
                node = graph.placeholder(name)
                value = torch.empty([], dtype=dtype)
            self.constants[name] = constant_of(number, dtype)
            node.meta = {"val": value, "constant_name": name, OPERAND: number, SOURCE: f"number {key}"}
            self._lifted[key] = node
        return self._lifted[key]

    def _unused_name(self) -> str:
        """As ExecuTorch names such constants."""
        taken = {**self.program.constants, **self.constants}
        return next(name for n in count(len(self._lifted)) if (name := f"_lifted_tensor_constant{n}") not in taken)

    def _cast(self, node: Node, name: str, source: Node, dtype: torch.dtype) -> Node:
        """`source` in `dtype`, cast once for all calls behind."""
        cast = self._casts.get((source, dtype))
        if cast is None:
            cast = self._call(node, name, aten._to_copy.default, (source,), dtype)
            self._casts[source, dtype] = cast
        return cast

    def _filled(self, node: Node, name: str, number: complex, dtype: torch.dtype) -> Node:
        filled = self._call(node, name, aten.full.default, ([], number), dtype)
        filled.meta[OPERAND] = number  # a partition that has the tensor for an input still knows the number
        return filled

    def _call(self, node: Node, name: str, op: OpOverload, args: tuple[Argument, ...], dtype: torch.dtype) -> Node:
        """A call of `op` before `node`, for its argument `name`."""
        graph = node.graph
        fakes = torch.fx.node.map_arg(args, lambda argument: argument.meta["val"])
        with graph.inserting_before(node), self.mode:
            call = graph.call_function(op, args, {"dtype": dtype})
            value = op(*fakes, dtype=dtype)
        call.meta = {**node.meta, "val": value, SOURCE: f"{source_of(node)}/{name}", OPERAND: None}
        return call


def number_overload(op: OpOverload) -> OpOverload | None:
    """`mul.Scalar` for `mul.Tensor`: the overload that takes a number for its second tensor; None if there is none."""
    return _WITH_NUMBER.get(op)


def lifted_number(node: Node) -> complex | None:
    """The number that the user wrote where the edge program has the tensor `node`; None for any other node."""
    if OPERAND not in node.meta:
        return None
    number: object = node.meta[OPERAND] if node.op == "placeholder" else None
    if node.target == aten.full.default:
        number = node.args[1]
    return number if isinstance(number, _NUMBERS) else None


def constant_of(number: complex, dtype: torch.dtype) -> torch.Tensor:
    """The constant, without dims, that stands for `number`; an integer that is too large for `dtype` wraps."""
    widest = {float: torch.float64, complex: torch.complex128}.get(type(number))  # by itself a float has 32 bits
    return torch.tensor(number, dtype=widest).to(dtype)


def _key(number: complex, dtype: torch.dtype) -> tuple[object, ...]:
    """1, 1.0 and True are different, and so are 0.0 and -0.0; nan is the same as itself."""
    return type(number), repr(number), dtype


def _dtype_beside(node: Node, number: complex | torch.SymInt | torch.SymFloat | torch.SymBool) -> torch.dtype:
    """The dtype of a number among the tensors that `node` is called on."""
    tensors = [n.meta["val"] for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    plain = python_kind(number)(1) if isinstance(number, SYMBOLS) else number
    return torch.result_type(tensors[0], plain) if tensors else torch.tensor(plain).dtype


def python_kind(symbol: torch.SymInt | torch.SymFloat | torch.SymBool) -> type[complex]:
    """The type of the number that `symbol` will be."""
    return {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(symbol)]
