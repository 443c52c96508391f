"""A call that sets a mode for its body (no_grad, autocast) -> the body as it is without the mode, and its operands.

`torch.export` keeps such regions as higher-order operators (`wrap_with_set_grad_enabled`, `wrap_with_autocast`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import Argument

from delegraph.aot.functional.decompose import fresh
from delegraph.aot.graph.bodies import referenced
from delegraph.aot.graph.fake_values import fake_values

__all__ = ["is_mode_region", "without_mode"]

_NO_GRAD = torch.ops.higher_order.wrap_with_set_grad_enabled
_AUTOCAST = torch.ops.higher_order.wrap_with_autocast


def is_mode_region(node: Node) -> bool:
    """Whether `node` is a call of a body under some mode."""
    return node.target in (_NO_GRAD, _AUTOCAST)


def without_mode(node: Node, module: GraphModule, mode: FakeTensorMode) -> tuple[GraphModule, Sequence[Argument]]:
    """The body of the region `node` of `module`'s graph, with the casts that autocast makes as calls; the operands."""
    if node.target is _NO_GRAD:
        _, body, *operands = node.args
        return _body(module, body), operands
    device_type, dtype, enabled, _, body, *operands = node.args
    region = _body(module, body)
    if not enabled:
        return region, operands
    with mode, torch.autocast(str(device_type), dtype=dtype, cache_enabled=False):  # type: ignore[arg-type]
        traced = make_fx(region, tracing_mode="real")(*(fresh(value) for value in fake_values(operands)))
    for inner in traced.graph.nodes:
        inner.meta.update((key, node.meta[key]) for key in ("stack_trace", "nn_module_stack") if key in node.meta)
    return traced, operands


def _body(module: GraphModule, reference: Argument) -> GraphModule:
    assert isinstance(reference, Node)
    body: GraphModule = referenced(module, reference)
    return body
