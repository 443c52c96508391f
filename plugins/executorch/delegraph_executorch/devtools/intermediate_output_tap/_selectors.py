"""Which nodes are tapped: functions (node) -> bool, and ways to combine them.

`select_any(select_by_op_type("aten.linear.default"), select_by_module_path("layers.*.attention"))`
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from torch.fx import Node

__all__ = [
    "NodeSelector",
    "select_all",
    "select_all_call_function",
    "select_any",
    "select_by_module_class",
    "select_by_module_path",
    "select_by_op_type",
    "select_not",
]

NodeSelector: TypeAlias = Callable[[Node], bool]


def select_all_call_function(exclude: tuple[str, ...] = ("getitem",)) -> NodeSelector:
    """Every call but those of functions that `exclude` names."""
    excluded = set(exclude)
    return lambda node: (
        node.op == "call_function"
        and getattr(node.target, "__name__", str(node.target)) not in excluded
        and str(node.target) not in excluded
    )


def select_by_op_type(*op_targets: str) -> NodeSelector:
    """Calls of operators whose name ends with one of these ("aten.linear.default"). Raises `ValueError` without any."""
    if not op_targets:
        raise ValueError("select_by_op_type requires at least one op target")
    return lambda node: node.op == "call_function" and str(node.target).endswith(op_targets)


def select_by_module_path(*patterns: str, output_only: bool = True) -> NodeSelector:
    """Calls in modules whose path fits a pattern of the shell's ("layers.*"); of each only what leaves the module,
    unless `output_only` is False. Raises `ValueError` without patterns."""
    if not patterns:
        raise ValueError("select_by_module_path requires at least one pattern")

    def fits(entry: Any) -> bool:
        path = module_path(entry)
        return path is not None and any(fnmatchcase(path, pattern) for pattern in patterns)

    return _in_module(fits, output_only)


def select_by_module_class(*class_names: str, output_only: bool = True) -> NodeSelector:
    """Calls in modules of a class with one of these names ("RMSNorm"); of each only what leaves the module, unless
    `output_only` is False. Raises `ValueError` without names."""
    if not class_names:
        raise ValueError("select_by_module_class requires at least one class name")
    return _in_module(lambda entry: module_class(entry) in class_names, output_only)


def select_any(*selectors: NodeSelector) -> NodeSelector:
    """What one of them selects; nothing without any."""
    return lambda node: any(selector(node) for selector in selectors)


def select_all(*selectors: NodeSelector) -> NodeSelector:
    """What all of them select; everything without any."""
    return lambda node: all(selector(node) for selector in selectors)


def select_not(selector: NodeSelector) -> NodeSelector:
    """What it does not select."""
    return lambda node: not selector(node)


def module_path(entry: Any) -> str | None:
    """The path in an entry of a node's `nn_module_stack`: (path, class), or a path."""
    if isinstance(entry, tuple):
        return entry[0] if entry else None
    return None if entry is None else str(entry)


def module_class(entry: Any) -> str | None:
    """The bare name of the class in an entry of a node's `nn_module_stack`, which has the class or its full name."""
    if not isinstance(entry, tuple) or len(entry) < 2:
        return None
    return getattr(entry[1], "__name__", None) or str(entry[1]).rpartition(".")[2].rstrip("'>")


def _in_module(fits: Callable[[Any], bool], output_only: bool) -> NodeSelector:
    def modules(node: Node) -> set[Any]:
        return {key for key, entry in (node.meta.get("nn_module_stack") or {}).items() if fits(entry)}

    def select(node: Node) -> bool:
        own = modules(node)
        goes_on_inside = any(own & set(user.meta.get("nn_module_stack") or {}) for user in node.users)
        return bool(own) and not (output_only and goes_on_inside)

    return select
