"""The operators and values that each dialect admits, and the one verifier.

A dialect is a list of rules; a rule looks at one node and answers None or what is wrong. Every dialect holds what the
one before it holds:

    ATEN        what torch.export gives: operator overloads, no module or method calls, every value known
    FUNCTIONAL  no operator changes its arguments ("autograd-safe" programs that are already functional are in it too)
    CORE_ATEN   only operators of the core ATen set, besides those that were asked to be kept
    EDGE        no aliases, no numbers in tensor slots, dtypes that a file can hold, explicit layouts; delegate calls

Rules of plug-ins come behind these (`with_rules`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from delegraph.aot.edge.to_edge_dialect import ASSERTIONS
from delegraph.aot.functional.decompose import is_composite
from delegraph.aot.graph.bodies import all_nodes
from delegraph.aot.graph.dtypes import scalar_type_of
from delegraph.aot.graph.fake_values import fake_value
from delegraph.aot.graph.provenance import MEMORY_FORMAT
from delegraph.aot.graph.result_dtypes import Dtypes, dtypes_of, names_of, result_dtypes
from delegraph.aot.graph.source_location import user_location
from delegraph.aot.graph.view_operators import VIEW_TO_COPY
from delegraph.errors import LoweringError, VerificationError

__all__ = ["ATEN", "CORE_ATEN", "DIALECTS", "EDGE", "FUNCTIONAL", "AddedRule", "Dialect", "verify", "with_rules"]

Rule: TypeAlias = Callable[[Node, Collection[OpOverload]], str | None]
"""(node, operators that were kept whole on purpose) -> what is wrong, or None."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """A name and the rules that its nodes obey."""

    name: str
    rules: tuple[Rule, ...]


def verify(program: ExportedProgram | GraphModule, dialect: Dialect, kept: Collection[OpOverload] = ()) -> None:
    """Check every node of the program, or of a graph, and of its control-flow bodies.

    Raises `VerificationError` that lists each violation with its node, its rule and its line of user code.
    """
    violations = [
        (node, _title(rule), violation)
        for node in all_nodes(program if isinstance(program, GraphModule) else program.graph_module)
        for rule in dialect.rules
        if (violation := rule(node, kept)) is not None
    ]
    if not violations:
        return
    listed = "\n".join(
        f"  {node.name}: {violation} [rule: {rule}]" + (f"\n    at {where}" if (where := user_location(node)) else "")
        for node, rule, violation in violations[:20]
    )
    more = f"\n  … and {len(violations) - 20} more" if len(violations) > 20 else ""
    raise VerificationError(f"not in the {dialect.name} dialect:\n{listed}{more}")


@dataclass(frozen=True, slots=True)
class AddedRule:
    """A rule of a plug-in's: it holds in `first` and the dialects behind it; `title` is what messages call it."""

    title: str
    first: Dialect
    rule: Rule

    def __call__(self, node: Node, kept: Collection[OpOverload]) -> str | None:
        """As every `Rule`."""
        return self.rule(node, kept)


def with_rules(dialect: Dialect, rules: Iterable[AddedRule]) -> Dialect:
    """The dialect with those of `rules` that hold in it; one that is none of `DIALECTS` stays as it is."""
    if dialect not in DIALECTS:
        return dialect
    admitted = DIALECTS[: DIALECTS.index(dialect) + 1]
    return replace(dialect, rules=(*dialect.rules, *(rule for rule in rules if rule.first in admitted)))


def _title(rule: Rule) -> str:
    return rule.title if isinstance(rule, AddedRule) else rule.__name__.replace("_", " ")


# ---- rules -----------------------------------------------------------------------------------------

_ALIAS_FREE = frozenset(VIEW_TO_COPY.values())

_SYMBOLIC = frozenset(
    {
        *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod),
        *(
            operator.neg,
            operator.abs,
            operator.pow,
            operator.eq,
            operator.ne,
            operator.lt,
            operator.le,
            operator.gt,
            operator.ge,
        ),
        *(operator.and_, operator.or_, operator.not_, operator.getitem),
        *(torch.sym_int, torch.sym_float, torch.sym_max, torch.sym_min, torch.sym_not, torch.sym_ite, torch.sym_sum),
    }
)


def only_operators_are_called(node: Node, _kept: Collection[OpOverload]) -> str | None:
    if node.op in ("call_module", "call_method"):
        return f"{node.op} of {node.target}"
    if node.op != "call_function" or isinstance(node.target, (OpOverload, HigherOrderOperator)):
        return None
    if node.target in _SYMBOLIC or getattr(node.target, "__module__", "") in ("math", "builtins"):
        return None
    return f"call of {node.target}, which is not an operator"


def every_value_is_known(node: Node, _kept: Collection[OpOverload]) -> str | None:
    known = node.op not in ("call_function", "placeholder") or "val" in node.meta
    returns_nothing = isinstance(node.target, OpOverload) and not node.target._schema.returns
    return None if known or returns_nothing else 'has no meta["val"]'


def nothing_is_mutated(node: Node, _kept: Collection[OpOverload]) -> str | None:
    if isinstance(node.target, OpOverload) and node.target._schema.is_mutable:
        return f"{node.target} changes its arguments"
    return None


def operators_are_core(node: Node, kept: Collection[OpOverload]) -> str | None:
    op = node.target
    if not isinstance(op, OpOverload) or op.namespace != "aten" or op in kept or op in ASSERTIONS:
        return None
    if torch.Tag.core in op.tags or op in _ALIAS_FREE or not is_composite(op):
        return None
    return f"{op} is not core ATen and has a decomposition"


def nothing_is_aliased(node: Node, kept: Collection[OpOverload]) -> str | None:
    op = node.target
    if not isinstance(op, OpOverload) or op in kept:
        return None
    if op in VIEW_TO_COPY:
        return f"{op} returns a view; the edge dialect has {VIEW_TO_COPY[op]}"
    aliased = any(result.alias_info is not None for result in op._schema.returns)
    return f"{op} returns an alias of its argument" if aliased and op.is_view else None


def tensors_stand_where_the_schema_has_tensors(node: Node, kept: Collection[OpOverload]) -> str | None:
    op = node.target
    if not isinstance(op, OpOverload) or op in kept:
        return None
    for argument, value in zip(op._schema.arguments, node.args, strict=False):
        if isinstance(value, (bool, int, float)) and str(argument.type) == "Tensor":
            return f"argument {argument.name} of {op} is the number {value}, not a tensor"
    return None


def dtypes_fit_the_file(node: Node, _kept: Collection[OpOverload]) -> str | None:
    for leaf in pytree.tree_leaves(node.meta.get("val")):
        if isinstance(leaf, torch.Tensor):
            try:
                scalar_type_of(leaf.dtype)
            except LoweringError as violation:
                return str(violation)
    return None


def results_have_the_dtypes_that_operators_give(node: Node, _kept: Collection[OpOverload]) -> str | None:
    """Later stages plan memory and choose kernels by meta["val"], and never compute it again."""
    if node.op != "call_function" or not all("val" in each.meta for each in node.all_input_nodes):
        return None  # `every_value_is_known` says of the second what is wrong
    said, due = dtypes_of(node.meta.get("val")), _due_dtypes(node)
    if due is None or due == said or len(due) != len(said):
        return None
    return f"{node.target} gives {names_of(due)}, but its value is said to be {names_of(said)}"


def written_values_have_the_dtype_of_the_tensor(node: Node, _kept: Collection[OpOverload]) -> str | None:
    """torch finds this out when it runs; its fake values do not."""
    op = node.target
    position = _WRITTEN.get(op) if isinstance(op, OpOverload) else None
    if position is None or len(node.args) <= position:
        return None
    tensor, value = (
        arg.meta.get("val") if isinstance(arg, Node) else None for arg in (node.args[0], node.args[position])
    )
    if not isinstance(tensor, torch.Tensor) or not isinstance(value, torch.Tensor) or value.dtype == tensor.dtype:
        return None
    return f"{op} writes {names_of((value.dtype,))} into a tensor of {names_of((tensor.dtype,))}; cast it to that"


_aten = torch.ops.aten

_WRITTEN: Final = {
    **dict.fromkeys((_aten.select_scatter.default, _aten.slice_scatter.default), 1),
    **dict.fromkeys((_aten.diagonal_scatter.default, _aten.as_strided_scatter.default), 1),
    **dict.fromkeys((_aten.index_put.default, _aten.put.default, _aten.masked_scatter.default), 2),
    **dict.fromkeys((_aten.scatter.src, _aten.scatter.reduce, _aten.scatter_add.default), 3),
    **dict.fromkeys((_aten.scatter_reduce.two, _aten.index_copy.default, _aten.index_add.default), 3),
}
"""Operators that write a tensor into their first argument, with its position among their arguments."""


def _due_dtypes(node: Node) -> Dtypes | None:
    if isinstance(node.target, OpOverload):
        return result_dtypes(node.target, node.args, node.kwargs)
    if node.target is not operator.getitem or not isinstance(node.args[0], Node):
        return None
    results, index = fake_value(node.args[0]), node.args[1]
    return dtypes_of(results[index]) if isinstance(results, (list, tuple)) and isinstance(index, int) else None


def layouts_are_explicit(node: Node, kept: Collection[OpOverload]) -> str | None:
    op = node.target
    if not isinstance(op, OpOverload) or op in kept:
        return None
    memory_format = node.kwargs.get("memory_format")
    if MEMORY_FORMAT not in node.meta and memory_format not in (None, torch.contiguous_format, torch.preserve_format):
        return f"{op} changes the layout by memory_format; the edge dialect has dim_order_ops"
    return None


_ATEN: tuple[Rule, ...] = (only_operators_are_called, every_value_is_known)
_FUNCTIONAL: tuple[Rule, ...] = (*_ATEN, nothing_is_mutated)
_CORE: tuple[Rule, ...] = (*_FUNCTIONAL, operators_are_core)
_EDGE: tuple[Rule, ...] = (
    *_CORE,
    nothing_is_aliased,
    tensors_stand_where_the_schema_has_tensors,
    dtypes_fit_the_file,
    layouts_are_explicit,
    results_have_the_dtypes_that_operators_give,
    written_values_have_the_dtype_of_the_tensor,
)

ATEN = Dialect("ATen", _ATEN)
"""The dialect of programs as `torch.export` gives them."""
FUNCTIONAL = Dialect("functional ATen", _FUNCTIONAL)
"""ATen, and no operator changes its arguments."""
CORE_ATEN = Dialect("core ATen", _CORE)
"""Functional, and of the core ATen set, but for operators that were kept whole on purpose."""
EDGE = Dialect("edge", _EDGE)
"""Core ATen without aliases and without numbers in the place of tensors, dtypes and layouts as a file has them."""

DIALECTS: Final = (ATEN, FUNCTIONAL, CORE_ATEN, EDGE)
"""Each holds what the one before it holds."""
