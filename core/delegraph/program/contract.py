"""bytes <-> the contract of a method's inputs, for which ExecuTorch's schema has no place: names, ranges, relations.

A program carries it as named data under `CONTRACT_KEY`, JSON that ExecuTorch ignores:

    {"version": 1, "methods": {"forward": {
        "parameters": ["x", "mask"],                                  the positional ones, for calls by keyword
        "inputs": [[{"name": "batch", "min": 1, "max": 16}, 8], …],   the dims of each tensor, null for other inputs
        "outputs": [[{"name": "batch", "min": 1, "max": 16}, 8]],     the same, for people to read
        "relations": [["==", ["%", ["size", 0, 0], 2], 0]],           further assumptions of the export
        "unchecked": ["…"]}}}                                         assumptions that can't be said in this form

Sizes in a relation are `["size", input, dim]`; operators are those of `ARITHMETIC`, `COMPARISONS` and `LOGIC`.
Nothing of it is evaluated as code: it is checked against this grammar and bound to functions.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from delegraph.errors import InvalidProgram
from delegraph.lazy_dataclass import dataclass
from delegraph.program.buffers import byte_view
from delegraph.program.schema import Buffer, Program

__all__ = [
    "CONTRACT_KEY",
    "DimRange",
    "Dims",
    "Expression",
    "MethodContract",
    "contracts_of",
    "read_contracts",
    "relation_text",
    "write_contracts",
]

CONTRACT_KEY: Final = "delegraph.contract"
VERSION: Final = 1
MAX_DEPTH: Final = 32
"""Relations that torch writes are some five deep; a file's must not exhaust the stack."""

Expression: TypeAlias = "int | tuple[Any, ...]"
"""A number, `("size", input, dim)`, or an operator and its operands."""

ARITHMETIC: Final[Mapping[str, Callable[[int, int], int]]] = MappingProxyType(
    {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "//": operator.floordiv,
        "%": operator.mod,
        "min": min,
        "max": max,
    }
)
COMPARISONS: Final[Mapping[str, Callable[[int, int], bool]]] = MappingProxyType(
    {
        "==": operator.eq,
        "!=": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    }
)
LOGIC: Final = ("and", "or", "not")


@dataclass(frozen=True, slots=True)
class DimRange:
    """A dynamic dim: its name, if it has one, and the sizes that it may have, both ends included; None: no end."""

    name: str | None = None
    low: int = 0
    high: int | None = None

    def __contains__(self, size: int) -> bool:
        return self.low <= size and (self.high is None or size <= self.high)

    @property
    def allowed(self) -> str:
        """`1..16`."""
        return f"{self.low}..{'' if self.high is None else self.high}"

    def __str__(self) -> str:
        """`batch in 1..16`, or `1..16`."""
        return self.allowed if self.name is None else f"{self.name} in {self.allowed}"


Dims: TypeAlias = "tuple[int | DimRange, ...]"
"""The dims of a tensor: an int is a static one."""


@dataclass(frozen=True, slots=True)
class MethodContract:
    """The sizes and relations that a method's inputs have to have.

    `parameters` are the names of its positional parameters. `inputs` and `outputs` have the dims of each flattened one,
    None for those that are not tensors; they are empty where no input is dynamic. `relations` are comparisons that
    hold between sizes, `unchecked` is the text of those that can't be expressed.
    """

    parameters: tuple[str, ...] = ()
    inputs: tuple[Dims | None, ...] = ()
    outputs: tuple[Dims | None, ...] = ()
    relations: tuple[Expression, ...] = ()
    unchecked: tuple[str, ...] = ()


# ---- writing ---------------------------------------------------------------------------------------


def write_contracts(contracts: Mapping[str, MethodContract]) -> bytes:
    """The contracts of all methods, by name, as JSON. Equal contracts give equal bytes."""
    methods = {name: _written(contract) for name, contract in sorted(contracts.items())}
    return json.dumps({"version": VERSION, "methods": methods}, separators=(",", ":")).encode()


def _written(contract: MethodContract) -> dict[str, object]:
    fields = {
        "parameters": contract.parameters,
        "inputs": list(map(_written_dims, contract.inputs)),
        "outputs": list(map(_written_dims, contract.outputs)),
        "relations": contract.relations,
        "unchecked": contract.unchecked,
    }
    return {name: value for name, value in fields.items() if value}


def _written_dims(dims: Dims | None) -> list[object] | None:
    return None if dims is None else [_written_dim(dim) for dim in dims]


def _written_dim(dim: int | DimRange) -> object:
    if isinstance(dim, int):
        return dim
    fields = {"name": dim.name, "min": dim.low, "max": dim.high}
    return {name: value for name, value in fields.items() if value is not None}


# ---- reading ---------------------------------------------------------------------------------------


def contracts_of(program: Program) -> dict[str, MethodContract]:
    """The contracts in `program`, by method; none in one that ExecuTorch wrote. Raises `InvalidProgram` if damaged."""
    named = program.named_data.get(CONTRACT_KEY)
    return {} if named is None else read_contracts(named.data)


def read_contracts(data: Buffer) -> dict[str, MethodContract]:
    """The contracts by method. Those of a later version are not read: none. Raises `InvalidProgram` if damaged."""
    try:
        content = json.loads(bytes(byte_view(data)))
        if _integer(content["version"]) > VERSION:
            return {}
        return {str(name): _read(method) for name, method in content["methods"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidProgram(f"the named data {CONTRACT_KEY!r} is damaged: {error!r:.200}") from error


def _read(method: Mapping[str, object]) -> MethodContract:
    inputs = tuple(map(_read_dims, _list(method.get("inputs", []))))
    return MethodContract(
        parameters=tuple(map(_text, _list(method.get("parameters", [])))),
        inputs=inputs,
        outputs=tuple(map(_read_dims, _list(method.get("outputs", [])))),
        relations=tuple(_read_condition(relation, inputs) for relation in _list(method.get("relations", []))),
        unchecked=tuple(map(_text, _list(method.get("unchecked", [])))),
    )


def _read_dims(dims: object) -> Dims | None:
    return None if dims is None else tuple(map(_read_dim, _list(dims)))


def _read_dim(dim: object) -> int | DimRange:
    if not isinstance(dim, dict):
        return _integer(dim)
    name, high = dim.get("name"), dim.get("max")
    return DimRange(
        None if name is None else _text(name), _integer(dim.get("min", 0)), None if high is None else _integer(high)
    )


def _read_condition(node: object, inputs: Sequence[Dims | None], depth: int = 0) -> Expression:
    """A comparison, or several of them joined. Raises `ValueError` for anything else."""
    name, operands = _within_depth(node, depth)
    if name in LOGIC and (len(operands) == 1 if name == "not" else operands):
        return (name, *(_read_condition(operand, inputs, depth + 1) for operand in operands))
    if name in COMPARISONS and len(operands) == 2:
        return (name, *(_read_number(operand, inputs, depth + 1) for operand in operands))
    raise ValueError(f"{name!r:.40} with {len(operands)} operands is not a condition")


def _read_number(node: object, inputs: Sequence[Dims | None], depth: int) -> Expression:
    if not isinstance(node, list):
        return _integer(node)
    name, operands = _within_depth(node, depth)
    if name == "size" and len(operands) == 2:
        index, dim = map(_integer, operands)
        dims = inputs[index] if 0 <= index < len(inputs) else None
        if dims is None or not 0 <= dim < len(dims):
            raise ValueError(f"there is no size {dim} of input {index}")
        return ("size", index, dim)
    if name in ARITHMETIC and len(operands) == 2:
        return (name, *(_read_number(operand, inputs, depth + 1) for operand in operands))
    raise ValueError(f"{name!r:.40} with {len(operands)} operands is not a number")


def _within_depth(node: object, depth: int) -> tuple[str, list[object]]:
    if depth > MAX_DEPTH:
        raise ValueError(f"a relation is more than {MAX_DEPTH} deep")
    name, *operands = _list(node) or [None]
    if not isinstance(name, str):
        raise ValueError("a relation begins with its operator")
    return name, operands


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, not {type(value).__name__}")
    return value


def _integer(value: object) -> int:
    """Of 64 bits, as sizes are."""
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise TypeError(f"expected an integer of 64 bits, not {value!r:.40}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, not {type(value).__name__}")
    return value


# ---- as people read it -----------------------------------------------------------------------------


def relation_text(node: Expression, names: Sequence[str], nested: bool = False) -> str:
    """`x.shape[0] % 8 == 0`, with the inputs' names."""
    if isinstance(node, int):
        return str(node)
    name, *operands = node
    if name == "size":
        return f"{names[operands[0]]}.shape[{operands[1]}]"
    parts = [relation_text(operand, names, nested=name not in COMPARISONS) for operand in operands]
    if name in ("min", "max"):
        return f"{name}({', '.join(parts)})"
    text = f"not {parts[0]}" if name == "not" else f" {name} ".join(parts)
    return f"({text})" if nested else text
