"""ExecuTorch's `executorch.exir.lowered_backend_module`: lowered modules in a graph.

`delegraph.aot.to_backend` cuts them out by itself; the functions that cut by hand are ExecuTorch's own, from its wheel.
"""

from __future__ import annotations

from torch._higher_order_ops.executorch_call_delegate import executorch_call_delegate as executorch_call_delegate
from torch._higher_order_ops.executorch_call_delegate import get_lowered_module_name as get_lowered_module_name
from torch.fx import GraphModule, Node

from delegraph.aot import LoweredBackendModule as LoweredBackendModule
from delegraph.aot import get_lowered_module, is_delegate_call
from delegraph_executorch.finding import wheel_names

__getattr__ = wheel_names(
    __name__,
    "arrange_graph_outputs",
    "arrange_graph_placeholders",
    "create_exported_program_from_submodule",
    "create_submodule_from_nodes",
)


def get_lowered_submodules(graph_module: GraphModule) -> list[tuple[str, LoweredBackendModule, Node]]:
    """(name, lowered module, call) of the delegate calls in the module's own graph."""
    return [
        (_name(call), get_lowered_module(graph_module, call), call)
        for call in graph_module.graph.nodes
        if is_delegate_call(call)
    ]


def get_lowered_backend_modules(graph_module: GraphModule) -> list[LoweredBackendModule]:
    """The lowered modules that the module's own graph calls."""
    return [lowered for _, lowered, _ in get_lowered_submodules(graph_module)]


def _name(call: Node) -> str:
    reference = call.args[0]
    assert isinstance(reference, Node)
    return str(reference.target)
