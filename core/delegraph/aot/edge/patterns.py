"""A pattern of calls -> each way in which a node of a graph is one: which nodes stand for its calls, what is captured.

    x, epsilon = captured("x epsilon")
    squares = op(aten.mean.dim, op(aten.pow.Tensor_Scalar, x, 2)).where(is_over_the_last_dim)
    norm = op(aten.mul.Tensor, x, op(aten.rsqrt, op(aten.add.Tensor, squares, epsilon, alpha=1)))

    for match in matches(norm, node): match["x"], match["epsilon"], match.nodes

Patterns are `Op`s and `Capture`s, `either` of several, lists of patterns, and values to be equal to; what a graph has
as a constant in place of a number equals that number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import torch
from torch._ops import OpOverload
from torch.fx import Node

from delegraph.aot.edge.tensor_operands import lifted_number, number_overload
from delegraph.aot.graph.schema_binding import named_arguments, schema_arguments

__all__ = ["ANY", "Bindings", "Capture", "Op", "behind", "captured", "either", "matches", "op"]

Operator: TypeAlias = Callable[..., object]
"""`torch.ops.aten.add` for every overload, `torch.ops.aten.add.Tensor` for one."""

Condition: TypeAlias = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Capture:
    """Stands for any argument for which `condition` holds, and the same one wherever the same name stands."""

    name: str
    condition: Condition | None = field(default=None, compare=False)


def captured(names: str) -> list[Capture]:
    """Captures of nodes, and of no numbers, lists or the like, by their names with spaces between."""
    return [Capture(name, lambda argument: isinstance(argument, Node)) for name in names.split()]


ANY: Final = Capture("")
"""Stands for any argument, another one each time."""


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """A call of one of `operators`. One `Op` used twice is one node.

    Arguments are in the order of the operator's schema, its defaults filled in; those beyond `args`, and those that
    `kwargs` does not name, may be anything. The two operands of a sum, a product, and of other operators that commute
    are tried in both orders.
    """

    operators: tuple[Operator, ...]
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    condition: Condition | None = None

    def where(self, condition: Callable[[Node], bool]) -> Op:
        """The same, of a node for which `condition` holds."""
        return replace(self, condition=condition)

    def calls(self, node: Node) -> bool:
        """Whether `node` calls one of the operators; with a number for operand, its overload for numbers counts too."""
        if node.op != "call_function":
            return False
        names = [node.target, getattr(node.target, "overloadpacket", None)]
        if isinstance(node.target, OpOverload) and any(
            lifted_number(read) is not None for read in node.all_input_nodes
        ):
            names.append(number_overload(node.target))
        return any(o in names for o in self.operators) and (self.condition is None or self.condition(node))


def op(operators: Operator | tuple[Operator, ...], *args: object, **kwargs: object) -> Op:
    """An `Op`, written as a call."""
    return Op(operators if isinstance(operators, tuple) else (operators,), args, kwargs)


@dataclass(frozen=True, slots=True, eq=False)
class _Either:
    patterns: tuple[object, ...]


def either(*patterns: object) -> _Either:
    """Stands for what one of `patterns` stands for, tried in order."""
    return _Either(patterns)


@dataclass(frozen=True, slots=True, eq=False)
class _Behind:
    is_passed: Callable[[Node], bool]
    pattern: object


def behind(is_passed: Callable[[Node], bool], pattern: object) -> _Behind:
    """Stands for what `pattern` stands for, or what any number of calls for which `is_passed` make of that, each of its
    first argument."""
    return _Behind(is_passed, pattern)


@dataclass(frozen=True, slots=True)
class Bindings:
    """Nodes stand for `Op`s, arguments for the names of `Capture`s; `between` are the nodes that `behind` passed."""

    calls: Mapping[Op, Node] = field(default_factory=dict)
    captures: Mapping[str, Any] = field(default_factory=dict)
    between: tuple[Node, ...] = ()

    def __getitem__(self, name: str) -> Any:
        """The argument for which the capture of that name stands. Raises KeyError where the pattern has none."""
        return self.captures[name]

    @property
    def nodes(self) -> frozenset[Node]:
        """The calls of which the match consists."""
        return frozenset([*self.calls.values(), *self.between])


def matches(pattern: object, argument: object, bindings: Bindings = Bindings()) -> Iterator[Bindings]:
    """Each way in which `argument`, a node or a value, is what `pattern` says, where `bindings` hold already."""
    match pattern:
        case Op():
            if isinstance(argument, Node):
                yield from _of_call(pattern, argument, bindings)
        case Capture():
            yield from _of_capture(pattern, argument, bindings)
        case _Either():
            for each in pattern.patterns:
                yield from matches(each, argument, bindings)
        case _Behind():
            yield from _of_chain(pattern, argument, bindings)
        case list() | tuple():
            if isinstance(argument, (list, tuple)) and len(pattern) == len(argument):
                yield from _of_all(pattern, argument, bindings)
        case _:
            number = lifted_number(argument) if isinstance(argument, Node) else None
            if is_same(pattern, argument if number is None else number):
                yield bindings


def is_same(a: object, b: object) -> bool:
    """Whether two arguments are the same node, or equal values of the same type."""
    if isinstance(a, Node) or isinstance(b, Node):
        return a is b
    return type(a) is type(b) and bool(a == b)


def _of_capture(capture: Capture, argument: object, bindings: Bindings) -> Iterator[Bindings]:
    if capture.condition is not None and not capture.condition(argument):
        return
    if not capture.name:
        yield bindings
    elif capture.name not in bindings.captures:
        yield replace(bindings, captures={**bindings.captures, capture.name: argument})
    elif is_same(bindings.captures[capture.name], argument):
        yield bindings


def _of_chain(chain: _Behind, argument: object, bindings: Bindings) -> Iterator[Bindings]:
    yield from matches(chain.pattern, argument, bindings)
    if isinstance(argument, Node) and argument.op == "call_function" and chain.is_passed(argument):
        yield from _of_chain(chain, argument.args[0], replace(bindings, between=(*bindings.between, argument)))


def _of_call(call: Op, node: Node, bindings: Bindings) -> Iterator[Bindings]:
    if call in bindings.calls:
        if bindings.calls[call] is node:
            yield bindings
        return
    if node in bindings.calls.values() or not call.calls(node):
        return
    arguments = schema_arguments(node)
    named = (named_arguments(node) or node.kwargs) if call.kwargs else {}
    if len(arguments) < len(call.args) or not call.kwargs.keys() <= named.keys():
        return
    values = [*call.args, *call.kwargs.values()]
    bound = replace(bindings, calls={**bindings.calls, call: node})
    for operands in _orders(node, arguments[: len(call.args)]):
        yield from _of_all(values, [*operands, *(named[name] for name in call.kwargs)], bound)


def _of_all(patterns: Sequence[object], arguments: Sequence[object], bindings: Bindings) -> Iterator[Bindings]:
    if not patterns:
        yield bindings
        return
    for bound in matches(patterns[0], arguments[0], bindings):
        yield from _of_all(patterns[1:], arguments[1:], bound)


def _orders(node: Node, operands: Sequence[object]) -> Iterator[Sequence[object]]:
    yield operands
    commutes = getattr(node.target, "overloadpacket", None) in _COMMUTE and "alpha" not in node.kwargs
    if commutes and len(operands) >= 2 and operands[0] is not operands[1]:
        yield [operands[1], operands[0], *operands[2:]]


_COMMUTE: Final = frozenset(
    getattr(torch.ops.aten, name)
    for name in (
        *("add", "mul", "maximum", "minimum", "eq", "ne", "logical_and", "logical_or", "logical_xor"),
        *("bitwise_and", "bitwise_or", "bitwise_xor"),
    )
)
