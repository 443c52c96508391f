"""Passes that bring a graph to the execution dialect: out variants, views, write-backs.

Delegraph's lowering does all that when it emits; this is for code that goes through ExecuTorch's passes one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputSpec
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from delegraph.aot import ResolvedSignature, graph_modules
from delegraph.errors import MissingOutVariant
from delegraph_executorch.exir import memory
from delegraph_executorch.exir.dialect_ops import is_inplace_variant, is_out_variant, to_out_variant
from delegraph_executorch.exir.error import InternalError
from delegraph_executorch.exir.passes.executorch_prim_ops_registry import is_sym_op
from delegraph_executorch.exir.tensor import (
    eval_shape_upper_bound,
)


class ToOutVarPass(PassBase):
    """Replaces every call of a functional operator, those in bodies too, in place.

    `ignore_to_out_var_failure` leaves those that have no out variant as they are. Raises `MissingOutVariant`, which
    lists all of them.
    """

    def __init__(self, ignore_to_out_var_failure: bool = False) -> None:
        self.ignore_to_out_var_failure = ignore_to_out_var_failure

    def call(self, graph_module: GraphModule) -> PassResult:
        """Replace the calls."""
        missing: dict[str, None] = {}
        for _, module in graph_modules(graph_module):
            for node in list(module.graph.nodes):
                if _is_functional(node):
                    try:
                        _replace(module, node)
                    except MissingOutVariant as cause:
                        logging.info("%s", cause)
                        missing[str(node.target._schema.name)] = None
            module.recompile()
        if missing and not self.ignore_to_out_var_failure:
            raise MissingOutVariant(f"Missing out variants: {', '.join(missing)}")
        return PassResult(graph_module, True)


def make_alloc_node(graph_module: GraphModule, val: Any, tensor_meta: Any = None) -> Node:
    """A node that allocates `val`, a fake tensor or a list of them, at its upper bounds; `tensor_meta` in their place.

    It stands where the graph inserts nodes. Raises `InternalError` where nothing is known of a tensor.
    """
    if isinstance(val, (list, tuple)):
        metas = tensor_meta or [None] * len(val)
        spec: Any = [_alloc_spec(v if v is not None else meta) for v, meta in zip(val, metas, strict=True)]
    else:
        spec = _alloc_spec(val if val is not None else tensor_meta)
    alloc = graph_module.graph.call_function(memory.alloc, (spec,))
    alloc.meta = {"val": val, "tensor_meta": tensor_meta}
    return alloc


def _alloc_spec(tensor: Any) -> tuple[tuple[int, ...], torch.dtype]:
    if tensor is None:
        raise InternalError('nothing is known of a tensor to allocate: its node has no meta["val"]')
    return tuple(eval_shape_upper_bound(tensor.shape)), tensor.dtype


def _is_functional(node: Node) -> bool:
    op = node.target
    if not isinstance(op, OpOverload) or is_sym_op(op) or not op._schema.returns:
        return False
    name, overload = op._schema.name, op._schema.overload_name
    return not is_inplace_variant(name, overload) and not is_out_variant(name, overload)


def _replace(module: GraphModule, node: Node) -> None:
    """Let `node` call the out variant, on memory allocated before it."""
    op = node.target
    assert isinstance(op, OpOverload)
    out, names = to_out_variant(op)
    kept = {a.name: node.kwargs[a.name] for a in out._schema.arguments if a.name in node.kwargs}
    value = node.meta["val"]
    results = [value] if len(names) == 1 else list(value)
    with module.graph.inserting_before(node):
        outs = {
            name: None if result is None else _alloc_with_spec(module, node, result, len(names), number)
            for number, (name, result) in enumerate(zip(names, results, strict=True))
        }
    node.target, node.kwargs = out, {**kept, **outs}
    if not out._schema.returns:
        node.replace_all_uses_with(outs[names[0]], delete_user_cb=lambda user: user is not node)  # type: ignore[arg-type]


def _alloc_with_spec(module: GraphModule, node: Node, result: Any, count: int, number: int) -> Node:
    alloc = make_alloc_node(module, result)
    if (spec := node.meta.get("spec")) is not None:
        alloc.meta["spec"] = spec if count == 1 else spec[number]
    return alloc


def copied_back(ep: ExportedProgram, is_there: Callable[[Node, Node], bool]) -> list[OutputSpec]:
    """The output specs, after a `copy_` was put in the graph for each new value of a buffer or an input.

    `is_there(source, target)` says that a value is where it belongs without.
    """
    output = ep.graph.output_node()
    values = list(output.args[0])
    targets = {write_back.source: write_back.target for write_back in ResolvedSignature.of(ep).write_backs}
    specs = list(ep.graph_signature.output_specs)
    for i, spec in enumerate(specs):
        target = targets.get(values[i]) if spec.kind.name.endswith("_MUTATION") else None
        if target is None or is_there(values[i], target):
            continue
        with ep.graph.inserting_before(output):
            values[i] = ep.graph.call_function(torch.ops.aten.copy_.default, (target, values[i]))
        values[i].meta = {key: target.meta[key] for key in ("val", "spec") if key in target.meta}
        specs[i] = replace(spec, arg=replace(spec.arg, name=values[i].name))
    output.args = (tuple(values),)
    return specs
