"""Programs and graphs -> text for people (ExecuTorch `exir/print_program.py`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, TextIO

from torch.fx import Graph, Node

from delegraph_executorch.exir.schema import (
    BoolList,
    Chain,
    DelegateCall,
    DoubleList,
    ExecutionPlan,
    Frame,
    FrameList,
    IntList,
    KernelCall,
    Null,
    OptionalTensorList,
    Program,
    Tensor,
    TensorList,
    TensorShapeDynamism,
)

__all__ = ["add_cursor_to_graph", "inspect_node", "pretty_print", "pretty_print_stacktraces", "print_program"]


# ---- programs --------------------------------------------------------------------------------------


def print_program(
    program: Program,
    show_meminfo: bool = True,
    mark_dynamic_shape_tensor: bool = False,
    out: TextIO | None = None,
) -> None:
    """A line for each value and each instruction, to `out` (None: standard output).

    `show_meminfo` tells where tensors lie, `mark_dynamic_shape_tensor` marks those whose sizes are upper bounds.
    """
    for plan in program.execution_plan:
        for line in _plan_lines(plan, show_meminfo, mark_dynamic_shape_tensor):
            print(line, file=out or sys.stdout)


def _plan_lines(plan: ExecutionPlan, show_meminfo: bool, mark_dynamic: bool) -> Iterator[str]:
    yield f"method {plan.name}"
    yield f"  inputs {plan.inputs}, outputs {plan.outputs}, bytes by memory {plan.non_const_buffer_sizes}"
    for index, value in enumerate(plan.values):
        yield f"  %{index} = {_value_text(value.val, show_meminfo, mark_dynamic)}"
    for number, chain in enumerate(plan.chains):
        yield f"  chain {number}"
        yield from (f"    {step}: {text}" for step, text in enumerate(_instruction_texts(plan, chain)))


def _instruction_texts(plan: ExecutionPlan, chain: Chain) -> Iterator[str]:
    for instruction in chain.instructions:
        call = instruction.instr_args
        if isinstance(call, KernelCall):
            operator = plan.operators[call.op_index]
            name = f"{operator.name}.{operator.overload}" if operator.overload else operator.name
            yield f"{name}({_references(call.args)})"
        elif isinstance(call, DelegateCall):
            yield f"delegate {plan.delegates[call.delegate_index].id}({_references(call.args)})"
        else:
            yield repr(call)


def _references(indices: list[int]) -> str:
    return ", ".join(f"%{index}" for index in indices)


def _value_text(value: Any, show_meminfo: bool, mark_dynamic: bool) -> str:
    if isinstance(value, Tensor):
        dynamic = value.shape_dynamism != TensorShapeDynamism.STATIC
        return "".join(
            (
                f"tensor {value.scalar_type.name.lower()} {value.sizes}",
                " (upper bounds)" if mark_dynamic and dynamic else "",
                _memory_text(value) if show_meminfo else "",
            )
        )
    if isinstance(value, (IntList, TensorList, OptionalTensorList)):
        return f"{type(value).__name__} [{_references(value.items)}]"
    if isinstance(value, (BoolList, DoubleList)):
        return f"{type(value).__name__} {value.items}"
    return "None" if isinstance(value, Null) else repr(next(iter(vars(value).values())))


def _memory_text(tensor: Tensor) -> str:
    place = tensor.allocation_info
    if place is not None:
        return f" in memory {place.memory_id} at {place.memory_offset}"
    return f" constant {tensor.data_buffer_idx}" if tensor.data_buffer_idx else " given at run time"


def pretty_print(obj: Any, indent: int = 0, out: TextIO | None = None) -> None:
    """Every field of every record in `obj`, one a line, to `out` (None: standard output)."""
    print("\n".join(_record_lines(obj, indent)), file=out or sys.stdout)


def _record_lines(value: Any, indent: int) -> Iterator[str]:
    pad = "  " * indent
    if isinstance(value, FrameList):
        yield from (pad + line for line in pretty_print_stacktraces(value).splitlines())
    elif is_dataclass(value) and not isinstance(value, type):
        yield f"{pad}{type(value).__name__}"
        for field in fields(value):
            yield from _entry_lines(field.name, getattr(value, field.name), indent + 1)
    elif isinstance(value, (list, tuple)):
        for index, one in enumerate(value):
            yield from _entry_lines(f"[{index}]", one, indent)
    elif isinstance(value, (bytes, memoryview)):
        yield f"{pad}{len(value)} bytes"
    else:
        yield f"{pad}{value!r}"


def _entry_lines(name: str, value: Any, indent: int) -> Iterator[str]:
    nested = is_dataclass(value) or (isinstance(value, (list, tuple)) and any(is_dataclass(one) for one in value))
    if nested:
        yield f"{'  ' * indent}{name}:"
        yield from _record_lines(value, indent + 1)
    else:
        shown = f"{len(value)} bytes" if isinstance(value, (bytes, memoryview)) else repr(value)
        yield f"{'  ' * indent}{name}: {shown}"


def pretty_print_stacktraces(obj: FrameList) -> str:
    """A stack trace as Python prints it."""
    lines = ["Traceback (most recent call last):"]
    for frame in obj.items:
        lines.append(f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}')
        lines.append(f"    {frame.context}")
    return "\n".join(lines) + "\n"


# ---- graphs ----------------------------------------------------------------------------------------

_FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<name>[^\n]*)\n?\s*(?P<context>[^\n]*)')


def add_cursor_to_graph(graph: Graph, finding_node: Node) -> str:
    """The graph as text under a line `graph():`, with an arrow at one of its nodes."""
    lines = [f"{'-->' if node is finding_node else '   '} {node.format_node() or 'return'}" for node in graph.nodes]
    return "\n".join(["graph():", *lines]) + "\n"


def inspect_node(graph: Graph, node: Node) -> str:
    """Where in its graph a node is, and in which lines of the model it comes from."""
    trace = _stacktrace_to_framelist(node.meta.get("stack_trace", ""))
    where = pretty_print_stacktraces(trace) if trace.items else "it comes from no line of the model\n"
    return add_cursor_to_graph(graph, node) + "\n" + where


def _stacktrace_to_framelist(stacktrace: str) -> FrameList:
    found = _FRAME.finditer(stacktrace or "")
    return FrameList(
        [Frame(one["file"], int(one["line"]), one["name"].strip(), one["context"].strip()) for one in found]
    )
