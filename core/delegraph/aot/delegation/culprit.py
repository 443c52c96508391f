"""A partition that a backend refuses without naming a node -> the call with which its beginning is refused.

a   b   c   d   e      refused          half of it, and half again: five compilations for thirty calls
a   b                  compiled
a   b   c              refused          so it is c, with what stands before it
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from torch.fx import Node

from delegraph.aot.delegation.compile import compile_or_refuse
from delegraph.aot.delegation.cut import CutPartition, cut_out
from delegraph.aot.delegation.lowered_module import LoweredBackendModule, lowered_modules
from delegraph.aot.delegation.partition import TAG, Partitioned, scheduled, tag_constant_data, tag_mutated_buffer
from delegraph.aot.graph.scalars import is_scalar
from delegraph.errors import PreprocessError
from delegraph.interfaces.lowering import DelegationSpec
from delegraph.plugins.registry import PluginRegistry

__all__ = ["first_refused"]


def first_refused(method: str, partition: CutPartition, plugins: PluginRegistry) -> str:
    """The name of that call in the partition's program; "" if the backend neither compiles nor refuses a beginning, or
    refuses the partition beside others alone."""
    lowered = partition.lowered_module
    calls = _calls(lowered)
    compiled, refused = 0, len(calls)
    if lowered_modules(lowered.original_module.graph_module):
        return ""  # what stands in it is compiled by others first
    try:
        if not _is_refused(lowered, method, plugins):
            return ""
        while refused - compiled > 1:
            middle = (compiled + refused) // 2
            if _is_refused(_beginning(partition, calls[:middle]), method, plugins):
                refused = middle
            else:
                compiled = middle
    except PreprocessError:  # the backend is not made for a part of what it took
        return ""
    return calls[refused - 1] if refused else ""


def _calls(lowered: LoweredBackendModule) -> list[str]:
    return [node.name for node in lowered.original_module.graph.nodes if _is_call(node) and not is_scalar(node)]


def _is_call(node: Node) -> bool:
    return node.op == "call_function" and node.target is not operator.getitem


def _beginning(partition: CutPartition, names: Sequence[str]) -> LoweredBackendModule | None:
    """A delegate of the calls of these names and of the numbers before the last of them."""
    lowered = partition.lowered_module
    program, spec = lowered.program_to_compile(), DelegationSpec(lowered.backend_id, lowered.compile_specs)
    for node in program.graph.nodes:
        if node.op == "call_function":
            node.meta[TAG] = lowered.tag
        if node.name == names[-1]:
            break
    for node in program.graph.find_nodes(op="call_function", target=operator.getitem):
        if TAG in node.args[0].meta:
            node.meta[TAG] = lowered.tag
    tag_constant_data(program)
    tag_mutated_buffer(program)
    chosen = Partitioned(program, partition.partitioner, {lowered.tag: spec}, {}, scheduled(program))
    _, parts = cut_out(chosen)
    return parts[0].lowered_module if parts else None


def _is_refused(lowered: LoweredBackendModule | None, method: str, plugins: PluginRegistry) -> bool:
    return lowered is not None and bool(compile_or_refuse({method: [lowered]}, plugins)[1])
