"""The sizes and guards of a program as text -> sympy's expressions, and text again; nothing is evaluated.

    s77, 2*s77 + 1, Mul(Integer(2), Symbol('s77', positive=True, integer=True))      sizes
    L['x'].size()[0] % 4 == 0                                                         guards, which torch runs

Python's own parser gives the tree; of its nodes these few are taken, each by what stands in a table here.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import sympy

from delegraph.aot.torch_internals import sympy_functions

__all__ = ["is_guard", "read_guard", "read_size"]

LONGEST: Final = 4096
"""Characters; torch writes some hundred."""
DEEPEST: Final = 40
HIGHEST: Final = 4
"""The power to which anything is raised; more makes sympy's common divisors slow, and numbers long."""

_SYMBOL: Final = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
_COUNTED: Final = re.compile(r"\D*\d{0,6}")


def _is_symbol(name: str) -> bool:
    """Whether `name` is one of a symbol: torch counts up to the number at its end, of which there are so many."""
    return bool(_SYMBOL.fullmatch(name)) and bool(_COUNTED.fullmatch(name))


def _parsed(text: str) -> ast.expr:
    """The tree of `text`. Raises `ValueError` if it is none, or too large."""
    if len(text) > LONGEST:
        raise ValueError(f"{len(text)} characters, of which at most {LONGEST} are read")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"no expression: {error}") from error
    if _depth(tree) > DEEPEST:
        raise ValueError(f"more than {DEEPEST} operations in one another")
    return tree


def _depth(tree: ast.AST) -> int:
    """How many nodes are in one another; no recursion, which the text could exhaust."""
    level: list[ast.AST] = [tree]
    depth = 0
    while level:
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        depth += 1
    return depth


# ---- sizes -----------------------------------------------------------------------------------------


def read_size(text: str) -> sympy.Basic:
    """The expression of symbols in `text`, as sympy has it. Raises `ValueError` if it is not of the grammar above."""
    try:
        value = _size(_parsed(text))
    except (TypeError, AttributeError, ArithmeticError, AssertionError, RecursionError) as error:  # of sympy
        raise ValueError(f"no expression of sizes: {error}") from error
    if value.has(sympy.zoo, sympy.nan, sympy.oo, -sympy.oo, sympy.I):
        raise ValueError(f"its value is {value}")
    return value


def _size(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=bool() as truth):
            return sympy.true if truth else sympy.false
        case ast.Constant(value=int() as number) if abs(number) < 2**63:
            return sympy.Integer(number)
        case ast.Constant(value=float() as number):
            return sympy.Float(number)
        case ast.Name(id="true" | "false" as word):
            return sympy.true if word == "true" else sympy.false
        case ast.Name(id=name) if _is_symbol(name):
            return sympy.Symbol(name, integer=True)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_size(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_size(left), _size(right))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return _COMPARE[type(op)](_size(left), _size(right))
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str() as name)]) if _is_symbol(name):
            _expect_flags(node)
            return sympy.Symbol(name, integer=True)
        case ast.Call(func=ast.Name(id="Float"), args=[ast.Constant(value=str() as digits)]):
            _expect_flags(node)
            return sympy.Float(float(digits))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _CALLS:
            function, least, most = _CALLS[name]
            if least <= len(arguments) <= most:
                return function(*map(_size, arguments))
    raise ValueError(f"{ast.unparse(node)!r:.80} is none of sizes")


def _expect_flags(call: ast.Call) -> None:
    """Raise unless these are torch's assumptions of a symbol, which are not kept: ranges say them again."""
    if not all(isinstance(flag.value, ast.Constant) and flag.arg in _FLAGS for flag in call.keywords):
        raise ValueError(f"{ast.unparse(call)!r:.80} assumes what sizes do not")


_FLAGS: Final = frozenset({"integer", "positive", "nonnegative", "real", "precision"})


def _power(base: Any, exponent: Any) -> Any:
    if not (exponent.is_Integer and abs(int(exponent)) <= HIGHEST) or base.has(sympy.Pow):
        raise ValueError(f"a power higher than {HIGHEST}")
    return base**exponent


def _checked(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def call(base: object, exponent: object) -> Any:
        _power(base, exponent)
        return function(base, exponent)

    return call


_TORCH: Final = sympy_functions
_UNARY: Final[dict[type, Callable[[Any], Any]]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: sympy.Not,
    ast.Not: sympy.Not,
}
_BINARY: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: _TORCH.FloorDiv,
    ast.Mod: _TORCH.Mod,
    ast.Pow: _power,
    ast.BitAnd: sympy.And,
    ast.BitOr: sympy.Or,
}
_COMPARE: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Eq: sympy.Eq,
    ast.NotEq: sympy.Ne,
    ast.Lt: sympy.Lt,
    ast.LtE: sympy.Le,
    ast.Gt: sympy.Gt,
    ast.GtE: sympy.Ge,
}
_MANY: Final = 64
_CALLS: Final[dict[str, tuple[Callable[..., Any], int, int]]] = {
    "Integer": (sympy.Integer, 1, 1),
    "Rational": (sympy.Rational, 2, 2),
    "Add": (sympy.Add, 1, _MANY),
    "Mul": (sympy.Mul, 1, _MANY),
    "Pow": (_power, 2, 2),
    "Max": (_TORCH.Max, 1, _MANY),
    "Min": (_TORCH.Min, 1, _MANY),
    "Abs": (sympy.Abs, 1, 1),
    "floor": (sympy.floor, 1, 1),
    "ceiling": (sympy.ceiling, 1, 1),
    "And": (sympy.And, 1, _MANY),
    "Or": (sympy.Or, 1, _MANY),
    "Not": (sympy.Not, 1, 1),
    **{name: (function, 2, 2) for name, function in (("Eq", sympy.Eq), ("Equality", sympy.Eq))},
    **{name: (function, 2, 2) for name, function in (("Ne", sympy.Ne), ("Unequality", sympy.Ne))},
    "StrictLessThan": (sympy.Lt, 2, 2),
    "LessThan": (sympy.Le, 2, 2),
    "StrictGreaterThan": (sympy.Gt, 2, 2),
    "GreaterThan": (sympy.Ge, 2, 2),
    **{
        name: (getattr(_TORCH, name), 1, 1)
        for name in ("CeilToInt", "FloorToInt", "TruncToInt", "TruncToFloat", "RoundToInt", "ToFloat", "Identity")
    },
    "OpaqueUnaryFn_sqrt": (_TORCH.OpaqueUnaryFn_sqrt, 1, 1),
    **{
        name: (getattr(_TORCH, name), 2, 2)
        for name in (
            "FloorDiv",
            "CleanDiv",
            "CeilDiv",
            "Mod",
            "PythonMod",
            "IntTrueDiv",
            "FloatTrueDiv",
            "RoundDecimal",
        )
    },
    **{name: (_checked(getattr(_TORCH, name)), 2, 2) for name in ("PowByNatural", "FloatPow", "LShift", "RShift")},
    "ModularIndexing": (_TORCH.ModularIndexing, 3, 3),
    "Where": (_TORCH.Where, 3, 3),
}
"""A function -> what makes it, the least and the most arguments."""


# ---- guards ----------------------------------------------------------------------------------------


def read_guard(text: str) -> str:
    """`text` written again, a comparison of the sizes of inputs. Raises `ValueError` if it is anything else.

    torch puts guards into the source of a function that `ExportedProgram.module()` compiles.
    """
    tree = _parsed(text)
    for node in _nodes(tree):
        if not _is_of_guards(node):
            raise ValueError(f"{ast.unparse(node)!r:.80} is none of guards")
    return ast.unparse(tree)


def is_guard(text: str) -> bool:
    """Whether `read_guard` takes it."""
    try:
        read_guard(text)
    except ValueError:
        return False
    return True


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """`tree` and all below it that is no operator; a call counts with the name of its function."""
    if isinstance(tree, ast.operator | ast.unaryop | ast.cmpop | ast.boolop | ast.expr_context):
        return
    yield tree
    for child in ast.iter_child_nodes(tree):
        if not (isinstance(tree, ast.Call) and child is tree.func):
            yield from _nodes(child)
        elif isinstance(child, ast.Attribute):
            yield from _nodes(child.value)


def _is_of_guards(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="max" | "min"), args=[_, *_], keywords=[]):
            return True
        case ast.Call(func=ast.Attribute(attr="size" | "stride" | "storage_offset"), args=[], keywords=[]):
            return True
        case ast.Constant(value=str() as text):
            return text.isprintable() and not {*text} & {*"'\"\\"}
        case ast.Constant(value=int() | float() | None) | ast.Name(id="L") | ast.Subscript():
            return True
        case ast.BinOp(op=op):
            return type(op) in _BINARY and not isinstance(op, ast.Pow)
        case ast.UnaryOp(op=op):
            return type(op) in _UNARY
    return isinstance(node, ast.Compare | ast.BoolOp)
