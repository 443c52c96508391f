"""Method -> MethodContract: what torch.export assumed of the inputs, in a form that a runtime without torch checks.

    x: (2*s0, 3), s0 in 1..16    ──>  inputs [[2..32, 3]]
    y: (4*s0, 3)                      relations x.shape[0] % 2 == 0, y.shape[0] == x.shape[0] // 2 * 4
    guard L['x'].size()[0] >= 4       relations x.shape[0] >= 4

Sources: `ExportedProgram.range_constraints`, the symbolic sizes of its placeholders, and its guards, which torch keeps
as Python text (`torch/export/_unlift.py` checks the same when it runs the program).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import Argument
from torch.utils import _pytree as pytree

from delegraph.aot.export import DIM_NAMES
from delegraph.aot.graph.fake_values import fake_tensor
from delegraph.aot.torch_internals import CleanDiv, FloorDiv, Max, Min, Mod, PythonMod, ValueRanges
from delegraph.program.contract import ARITHMETIC, DimRange, Dims, Expression, MethodContract
from delegraph.program.schema import Tensor, Value

__all__ = ["method_contract"]


def method_contract(
    program: ExportedProgram, inputs: Mapping[Node, Value], outputs: Sequence[tuple[Argument, Value]]
) -> MethodContract:
    """The contract of a method; the values are those emitted for its inputs and outputs, their sizes upper bounds."""
    nodes, names = list(inputs), _names_of_symbols(inputs)
    dims, results = (
        tuple(_dims(node, record, program.range_constraints, names) for node, record in pairs)
        for pairs in (inputs.items(), outputs)
    )
    parameters = _parameters(program)
    if not any(isinstance(dim, DimRange) for shape in dims for dim in shape or ()):
        return MethodContract(parameters)
    unchecked: list[str] = []
    relations = [*_relations_of_sizes(nodes, dims, unchecked)]
    sources = _sources(program, parameters)
    for guard in program._guards_code:
        try:
            relation = _condition(ast.parse(guard, mode="eval").body, sources)
        except _Inexpressible:
            unchecked.append(guard)
        else:
            relations.append(relation)
    in_order = tuple(dict.fromkeys(relation for relation in relations if not _implied(relation, dims)))
    return MethodContract(parameters, dims, results, in_order, tuple(unchecked))


def _parameters(program: ExportedProgram) -> tuple[str, ...]:
    """The names of the model's positional parameters; empty where torch has not kept them."""
    signature = program.module_call_graph[0].signature if program.module_call_graph else None
    in_spec = program.call_spec.in_spec
    if signature is None or signature.forward_arg_names is None or in_spec is None:
        return ()
    return tuple(signature.forward_arg_names[: in_spec.child(0).num_children])


# ---- ranges ----------------------------------------------------------------------------------------


def _names_of_symbols(inputs: Iterable[Node]) -> dict[sympy.Expr, str]:
    """The user's names of the dims, by the expressions that they became."""
    return {
        node.meta["val"].shape[position].node.expr: name
        for node in inputs
        for position, name in node.meta.get(DIM_NAMES, {}).items()
        if isinstance(node.meta["val"].shape[position], torch.SymInt)
    }


def _dims(
    node: Argument,
    record: Value,
    ranges: Mapping[sympy.Symbol, ValueRanges[sympy.Expr]],
    names: Mapping[sympy.Expr, str],
) -> Dims | None:
    if not isinstance(record, Tensor):
        return None
    shape = fake_tensor(node).shape
    return tuple(
        DimRange(names.get(size.node.expr), _low(size, ranges), bound) if isinstance(size, torch.SymInt) else size
        for size, bound in zip(shape, record.sizes, strict=True)
    )


def _low(size: torch.SymInt, ranges: Mapping[sympy.Symbol, ValueRanges[sympy.Expr]]) -> int:
    """The least size. A bound of 2 is 0 here: tracing assumes it of every size, whatever the model needs."""
    limits = ranges.get(size.node.expr)
    lower = limits.lower if limits is not None else sympy.Integer(0)
    return int(lower) if lower.is_Integer and (lower > 2 or lower == 1) else 0


def _implied(relation: Expression, dims: Sequence[Dims | None]) -> bool:
    """Whether the ranges imply `relation`, as `x.shape[0] >= 4` of a dim in 4..16."""
    if isinstance(relation, int) or len(relation) != 3:
        return False
    compare, left, bound = relation
    if not isinstance(bound, int) or not isinstance(left, tuple) or left[0] != "size":
        return False
    dim = (dims[left[1]] or ())[left[2]]
    if isinstance(dim, int):
        return False
    return (compare == ">=" and dim.low >= bound) or (compare == "<=" and dim.high is not None and dim.high <= bound)


# ---- relations between the symbolic sizes ----------------------------------------------------------


def _relations_of_sizes(
    inputs: Sequence[Node], dims: Sequence[Dims | None], unchecked: list[str]
) -> Iterator[Expression]:
    """Equal symbols are equal sizes; an expression of symbols is a size that follows from others.

    A symbol that is no size itself, `s0` of `2*s0`, is solved for: size % 2 == 0, s0 = size // 2. Relations that cannot
    be expressed are added to `unchecked`.
    """
    sizes = [
        (("size", index, position), inputs[index].meta["val"].shape[position].node.expr)
        for index, shape in enumerate(dims)
        for position, dim in enumerate(shape or ())
        if isinstance(dim, DimRange)
    ]
    known: dict[sympy.Symbol, Expression] = {}
    # sizes that are a symbol by themselves come first, so that the others are computed from them
    for size, expression in sorted(sizes, key=lambda item: not item[1].is_Symbol):
        missing = [symbol for symbol in expression.free_symbols if symbol not in known]
        if not missing:
            try:
                yield ("==", size, _of_sympy(expression, known))
            except _Inexpressible:
                unchecked.append(f"{inputs[size[1]].name}.shape[{size[2]}] == {expression}")
        elif expression.is_Symbol:
            known[expression] = size
        elif len(missing) == 1 and (line := _line(expression, missing[0])) is not None:
            factor, offset = line  # size = factor * symbol + offset
            rest: Expression = ("-", size, offset) if offset else size
            if factor != 1:
                yield ("==", ("%", rest, factor), 0)
            known[missing[0]] = ("//", rest, factor) if factor != 1 else rest


def _line(expression: sympy.Expr, symbol: sympy.Symbol) -> tuple[int, int] | None:
    """The integers (factor, offset) of `factor * symbol + offset`, or None if it is something else."""
    if not expression.is_polynomial(symbol) or sympy.degree(expression, symbol) != 1:
        return None
    factor, offset = expression.coeff(symbol, 1), expression.coeff(symbol, 0)
    return (int(factor), int(offset)) if factor.is_Integer and offset.is_Integer else None


def _of_sympy(expression: sympy.Expr, known: Mapping[sympy.Symbol, Expression]) -> Expression:
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol:
        return known[expression]
    name = next((name for kind, name in _SYMPY.items() if isinstance(expression, kind)), None)
    if name is None:
        raise _Inexpressible
    operands = [_of_sympy(argument, known) for argument in expression.args]
    return _joined(name, operands)


def _joined(name: str, operands: Sequence[Expression]) -> Expression:
    first, *rest = operands
    for operand in rest:
        first = (name, first, operand)
    return first


_SYMPY: Final[Mapping[type[sympy.Basic], str]] = {
    sympy.Add: "+",
    sympy.Mul: "*",
    FloorDiv: "//",
    CleanDiv: "//",
    Mod: "%",
    PythonMod: "%",
    Max: "max",
    Min: "min",
}


# ---- guards ----------------------------------------------------------------------------------------


class _Inexpressible(Exception):
    """A guard has no form in a contract."""


def _sources(program: ExportedProgram, parameters: Sequence[str]) -> dict[str, int]:
    """How torch's guards write each input, `L['x'][0]`, and its position among the flattened inputs."""
    in_spec = program.call_spec.in_spec
    if in_spec is None:
        return {}
    numbered = pytree.tree_unflatten(range(in_spec.num_leaves), in_spec)
    sources: dict[str, int] = {}
    for (_, root, *rest), index in pytree.tree_flatten_with_path(numbered)[0]:
        name = dict(enumerate(parameters)).get(getattr(root, "idx", -1), getattr(root, "key", None))
        sources[f"L[{name!r}]{pytree.keystr(tuple(rest))}"] = index
    return sources


def _condition(node: ast.expr, sources: Mapping[str, int]) -> Expression:
    match node:
        case ast.Compare(left, operators, comparators):
            operands = [left, *comparators]
            parts = [
                (_symbol(operator), _number(operands[i], sources), _number(operands[i + 1], sources))
                for i, operator in enumerate(operators)
            ]
            return parts[0] if len(parts) == 1 else ("and", *parts)
        case ast.BoolOp(operator, values):
            return (_symbol(operator), *(_condition(value, sources) for value in values))
        case ast.UnaryOp(ast.Not(), operand):
            return ("not", _condition(operand, sources))
    raise _Inexpressible


def _number(node: ast.expr, sources: Mapping[str, int]) -> Expression:
    match node:
        case ast.Constant(int(value)) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(ast.USub(), operand):
            return ("-", 0, _number(operand, sources))
        case ast.BinOp(left, operator, right):
            return (_symbol(operator), _number(left, sources), _number(right, sources))
        case ast.Call(ast.Name("min" | "max" as name), arguments):
            return _joined(name, [_number(argument, sources) for argument in arguments])
        case ast.Subscript(ast.Call(ast.Attribute(tensor, "size"), []), ast.Constant(int(position))):
            index = sources.get(ast.unparse(tensor))
            if index is not None:
                return ("size", index, position)
    raise _Inexpressible


def _symbol(operator: ast.AST) -> str:
    try:
        return _AST[type(operator)]
    except KeyError:
        raise _Inexpressible from None


_AST: Final[Mapping[type[ast.AST], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.And: "and",
    ast.Or: "or",
}
assert set(_SYMPY.values()) <= set(ARITHMETIC)
