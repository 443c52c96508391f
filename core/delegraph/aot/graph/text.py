"""ExportedProgram -> text: one line per node, stable from run to run, to read and to compare.

    inputs
      %p_weight : f32[4, 2]  # parameter 'weight'
      %x : f32[s0, 4]
    graph
      %permute : f32[2, 4] = aten.permute_copy.default(%p_weight, [1, 0])
      %mm : f32[s0, 2] = aten.mm.default(%x, %permute)
    outputs
      %mm

Bodies of control flow and the programs of delegates stand indented under the node that refers to them. Values are
those of `meta["val"]`; what a pass decided about memory (`memory_use.py`) follows as a remark. Nothing reads the text
back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Graph, GraphModule, Node

from delegraph.aot.graph.bodies import output_values, referenced
from delegraph.aot.graph.dtypes import short_name
from delegraph.aot.graph.memory_use import memory_use

__all__ = ["graph_text", "program_text"]


def program_text(program: ExportedProgram) -> str:
    """The signature and graph of `program`."""
    return "\n".join(_program(program)) + "\n"


def graph_text(module: GraphModule) -> str:
    """The graph of `module`, without what its placeholders and outputs stand for."""
    return "\n".join(_graph(module)) + "\n"


def _program(program: ExportedProgram) -> Iterator[str]:
    signature = program.graph_signature
    inputs = {
        spec.arg.name: "" if spec.kind is InputKind.USER_INPUT else f"{_words(spec.kind)} {spec.target!r}"
        for spec in signature.input_specs
    }
    outputs = [
        "" if spec.kind is OutputKind.USER_OUTPUT else f"new value of {_words(spec.kind)} {spec.target!r}"
        for spec in signature.output_specs
    ]
    yield from _graph(program.graph_module, inputs, outputs)


def _words(kind: InputKind | OutputKind) -> str:
    """`constant tensor` for CONSTANT_TENSOR, `buffer` for BUFFER and BUFFER_MUTATION."""
    return kind.name.removesuffix("_MUTATION").replace("_", " ").lower()


def _graph(module: GraphModule, inputs: Mapping[str, str] | None = None, outputs: Iterable[str] = ()) -> Iterator[str]:
    graph = module.graph
    yield "inputs"
    for node in graph.find_nodes(op="placeholder"):
        yield f"  %{node.name}{_type(node)}{_remark((inputs or {}).get(node.name, ''))}"
    yield "graph"
    yield from _indented(_calls(module, graph))
    yield "outputs"
    remarks = iter(outputs)
    for value in output_values(graph):
        yield f"  {_value(value)}{_remark(next(remarks, ''))}"


def _calls(module: GraphModule, graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        if node.op in ("call_function", "call_module", "call_method"):
            yield f"%{node.name}{_type(node)} = {_target(node)}({_arguments(node)}){_remark(_memory(node))}"
        elif node.op == "get_attr":
            held = referenced(module, node)
            yield f"%{node.name}{_type(node)} = {_held(held)} {node.target}"
            yield from _indented(_contents(held))


def _held(held: Any) -> str:
    if isinstance(held, GraphModule):
        return "body"
    backend = getattr(held, "backend_id", None)
    if backend is not None:
        return f"delegate of {backend}"
    return "constant" if isinstance(held, torch.Tensor) else type(held).__name__


def _contents(held: Any) -> Iterator[str]:
    if isinstance(held, GraphModule):
        yield from _graph(held)
    elif isinstance(original := getattr(held, "original_module", None), ExportedProgram):
        yield from _program(original)


def _memory(node: Node) -> str:
    use = memory_use(node)
    return f"{use.value} {_value(node.args[0])}" if use is not None else ""


# ---- words -----------------------------------------------------------------------------------------


def _target(node: Node) -> str:
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return str(target if isinstance(target, str) else getattr(target, "__name__", target))


def _arguments(node: Node) -> str:
    named = (f"{name}={_value(value)}" for name, value in node.kwargs.items())
    return ", ".join([*map(_value, node.args), *named])


def _value(value: Any) -> str:
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_value(item)}' for name, item in value.items())}}}"
    if isinstance(value, slice):
        return ":".join("" if part is None else _value(part) for part in (value.start, value.stop, value.step))
    if isinstance(value, torch.dtype):
        return short_name(value)
    return str(value) if isinstance(value, (torch.layout, torch.memory_format, torch.device)) else repr(value)


def _type(node: Node) -> str:
    kind = _kind(node.meta.get("val"))
    return f" : {kind}" if kind else ""


def _kind(value: Any) -> str:
    """`f32[2, s0]`, `int s0` for a symbolic number, `(f32[2], f32[2])` for several; strides if they are not usual."""
    if isinstance(value, torch.Tensor):
        return f"{short_name(value.dtype)}[{', '.join(map(str, value.shape))}]{_strides(value)}"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(_kind(item) or 'none' for item in value)})"
    numbers = ((torch.SymBool, "bool"), (torch.SymInt, "int"), (torch.SymFloat, "float"))
    return next((f"{name} {value}" for kind, name in numbers if isinstance(value, kind)), "")


def _strides(value: torch.Tensor) -> str:
    if value.layout is not torch.strided or value.is_contiguous():
        return ""
    return f" strides [{', '.join(map(str, value.stride()))}]"


def _remark(text: str) -> str:
    return f"  # {text}" if text else ""


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
