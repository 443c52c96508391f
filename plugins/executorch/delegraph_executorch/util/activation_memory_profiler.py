"""A lowered program -> its memory plan as a trace for Chrome: which tensors are alive at each step, and where they lie.

The horizontal axis is bytes, a process is a memory (`mem_id`), a thread is a step of the method.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from delegraph_executorch.exir import ExecutorchProgramManager, memory
from delegraph_executorch.exir.memory_planning import get_node_tensor_specs, update_all_tensors_lifetime

__all__ = ["generate_memory_trace"]


def generate_memory_trace(
    executorch_program_manager: ExecutorchProgramManager,
    chrome_trace_filename: str,
    enable_memory_offsets: bool = False,
    method_name: str = "forward",
    ommit_metadata: bool = False,
) -> None:
    """Write the trace of a method. With `enable_memory_offsets` a tensor is drawn where it lies, else behind the
    others of its step; `ommit_metadata` leaves out each tensor's operator, module and line.

    Raises `ValueError` for what `to_executorch` did not give, and for a method without planned tensors.
    """
    if not isinstance(executorch_program_manager, ExecutorchProgramManager):
        given = type(executorch_program_manager).__name__
        raise ValueError(f"generate_memory_trace takes what to_executorch() returns, not a {given}")
    program = executorch_program_manager.exported_program(method_name)
    update_all_tensors_lifetime(program.graph_module, program.graph_signature)
    planned = list(_planned_tensors(program.graph))
    if not planned:
        raise ValueError(f"method {method_name!r} has no planned tensors; give to_executorch() a memory planning pass")
    events = []
    for step in range(max(tensor.last for tensor in planned) + 1):
        end = 0
        for tensor in planned:
            if tensor.first <= step <= tensor.last:
                start = tensor.offset if enable_memory_offsets else end
                events.append(_event(tensor, start, step, {} if ommit_metadata else _metadata(tensor)))
                end += tensor.nbytes
    Path(chrome_trace_filename).write_text(json.dumps({"traceEvents": events}, indent=2), encoding="ascii")


@dataclass(frozen=True, slots=True)
class _Planned:
    """A tensor of `nbytes` at `offset` of memory `memory_id`, alive from step `first` to step `last`."""

    node: torch.fx.Node
    memory_id: int
    offset: int
    nbytes: int
    first: int
    last: int


def _planned_tensors(graph: torch.fx.Graph) -> Iterator[_Planned]:
    """Each tensor that memory is planned for, with the first node that gives it."""
    seen: set[int] = set()
    for node in graph.nodes:
        named = node.op != "output" and node.target not in (memory.alloc, memory.view)
        for spec in get_node_tensor_specs(node) if named else ():
            if spec is None or spec.const or id(spec) in seen or spec.mem_id is None or spec.mem_offset is None:
                continue
            seen.add(id(spec))
            first, last = spec.lifetime
            assert first is not None and last is not None  # of every tensor that has a place
            yield _Planned(node, spec.mem_id, spec.mem_offset, spec.nbytes(), first, last)


def _metadata(tensor: _Planned) -> dict[str, Any]:
    modules = list(tensor.node.meta.get("nn_module_stack", {}).values())
    return {
        "op_name": str(tensor.node.target),
        "Memory ID": tensor.memory_id,
        "fqn": modules[-1][0] if modules else "",
        "source": str(tensor.node.meta.get("stack_trace")),
        "bytes": tensor.nbytes,
    }


def _event(tensor: _Planned, start: int, step: int, arguments: dict[str, Any]) -> dict[str, Any]:
    """One tensor at one step: a complete event ("X") of Chrome's trace event format."""
    where = {"ts": start, "dur": tensor.nbytes, "pid": tensor.memory_id, "tid": step}
    return {"name": tensor.node.name, "cat": "memory_allocation", "ph": "X", **where, "args": arguments}
