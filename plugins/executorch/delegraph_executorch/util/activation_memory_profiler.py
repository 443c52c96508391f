"""A lowered program -> its memory plan as a trace for Chrome: which tensors are alive at each step, and where they lie.

The horizontal axis is bytes, a process is a memory (`mem_id`), a thread is a step of the method.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from delegraph_executorch.exir import ExecutorchProgramManager, memory
from delegraph_executorch.exir.memory_planning import get_node_tensor_specs, update_all_tensors_lifetime
from delegraph_executorch.exir.tensor import TensorSpec

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
    for step in range(max(spec.lifetime[1] for _, spec in planned) + 1):
        end = 0
        for node, spec in planned:
            if spec.lifetime[0] <= step <= spec.lifetime[1]:
                start = spec.mem_offset if enable_memory_offsets else end
                arguments = {} if ommit_metadata else _metadata(node, spec)
                events.append(_event(node.name, start, spec, step, arguments))
                end += _size(spec)
    Path(chrome_trace_filename).write_text(json.dumps({"traceEvents": events}, indent=2), encoding="ascii")


def _planned_tensors(graph: torch.fx.Graph) -> Iterator[tuple[torch.fx.Node, TensorSpec]]:
    """Each tensor that memory is planned for, with the first node that gives it."""
    seen: set[int] = set()
    for node in graph.nodes:
        named = node.op != "output" and node.target not in (memory.alloc, memory.view)
        for spec in get_node_tensor_specs(node) if named else ():
            is_planned = spec is not None and not spec.const and None not in (spec.mem_id, spec.mem_offset)
            if is_planned and id(spec) not in seen:
                seen.add(id(spec))
                yield node, spec


def _size(spec: TensorSpec) -> int:
    return spec.nbytes()


def _metadata(node: torch.fx.Node, spec: TensorSpec) -> dict[str, Any]:
    modules = list(node.meta.get("nn_module_stack", {}).values())
    return {
        "op_name": str(node.target),
        "Memory ID": spec.mem_id,
        "fqn": modules[-1][0] if modules else "",
        "source": str(node.meta.get("stack_trace")),
        "bytes": _size(spec),
    }


def _event(name: str, start: int, spec: TensorSpec, step: int, arguments: dict[str, Any]) -> dict[str, Any]:
    """One tensor at one step: a complete event ("X") of Chrome's trace event format."""
    where = {"ts": start, "dur": _size(spec), "pid": spec.mem_id, "tid": step}
    return {"name": name, "cat": "memory_allocation", "ph": "X", **where, "args": arguments}
