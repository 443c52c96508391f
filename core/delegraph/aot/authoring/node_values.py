"""A node -> its operator's name, the tensors that go into it and come out of it, their sizes, the results in use."""

from __future__ import annotations

import operator

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot.graph.tensor_spec import Bounds

__all__ = ["operator_name", "symbolic_shape", "tensors_of", "upper_bounds", "used_results"]


def operator_name(node: Node) -> str:
    """`namespace::name.overload` of the operator that `node` calls, without `.default`; "" if it calls none."""
    return node.target.name() if isinstance(node.target, OpOverload) else ""


def tensors_of(node: Node) -> list[torch.Tensor]:
    """The (fake) tensors that go into and come out of `node`; of several results those that are used."""
    values = [source.meta.get("val") for source in node.all_input_nodes]
    results = node.meta.get("val")
    values += [results[i] for i in used_results(node)] if isinstance(results, tuple | list) else [results]
    return [value for value in values if isinstance(value, torch.Tensor)]


def used_results(node: Node) -> list[int]:
    """Which results of a node with several are picked, in order."""
    picks = [user for user in node.users if user.target is operator.getitem and user.users]
    return sorted({index for pick in picks if isinstance(index := pick.args[1], int)})


def symbolic_shape(node: Node) -> tuple[int | str, ...]:
    """The sizes of a node's tensor; those that change by their text, `s0` or `2*s0`: equal sizes have equal texts."""
    return tuple(size if isinstance(size, int) else str(size) for size in node.meta["val"].shape)


def upper_bounds(program: ExportedProgram, node: Node) -> tuple[int, ...]:
    """The largest sizes of a node's tensor. Raises `UnboundedDimension` where there is no limit."""
    bounds = Bounds.of_program(program)
    return tuple(bounds.upper(size, node, dim) for dim, size in enumerate(node.meta["val"].shape))
