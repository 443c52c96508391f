"""ExportedProgram -> text: one line per node, stable from run to run, to read and to compare.

    inputs
      %p_weight : f32[4, 2]  # parameter 'weight'
      %x : f32[s0, 4]
    graph
      %permute : f32[2, 4] = aten.permute_copy.default(%p_weight, [1, 0])
      %mm : f32[s0, 2] = aten.mm.default(%x, %permute)
    outputs
      %mm

Symbolic sizes are numbered in the order in which they appear, whatever torch calls them. Bodies of control flow and
the programs of delegates stand indented under the node that refers to them. Values are those of `meta["val"]`; what a
pass decided about memory (`memory_use.py`, `devices.py`) follows as a remark. Nothing reads the text back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node

from delegraph.aot.graph.bodies import output_values, referenced
from delegraph.aot.graph.devices import device_of
from delegraph.aot.graph.dtypes import short_name
from delegraph.aot.graph.memory_use import MemoryUse, memory_use, part_of, piece_offsets
from delegraph.program.devices import CPU

__all__ = ["graph_text", "program_text"]


_SYMBOL: Final = re.compile(r"\b([su])\d+\b")


def program_text(program: ExportedProgram) -> str:
    """The signature and graph of `program`."""
    return "\n".join(_Writer().program(program)) + "\n"


def graph_text(module: GraphModule) -> str:
    """The graph of `module`, without what its placeholders and outputs stand for."""
    return "\n".join(_Writer().graph(module)) + "\n"


@dataclass(slots=True)
class _Writer:
    """Writes lines; remembers what it calls each symbol."""

    symbols: dict[str, str] = field(default_factory=dict)

    def program(self, program: ExportedProgram) -> Iterator[str]:
        signature = program.graph_signature
        inputs = {
            spec.arg.name: "" if spec.kind is InputKind.USER_INPUT else f"{_words(spec.kind)} {spec.target!r}"
            for spec in signature.input_specs
        }
        outputs = [
            "" if spec.kind is OutputKind.USER_OUTPUT else f"new value of {_words(spec.kind)} {spec.target!r}"
            for spec in signature.output_specs
        ]
        yield from self.graph(program.graph_module, inputs, outputs)

    def graph(
        self, module: GraphModule, inputs: Mapping[str, str] | None = None, outputs: Iterable[str] = ()
    ) -> Iterator[str]:
        """`inputs` by name and `outputs` in order: what they stand for."""
        yield "inputs"
        for node in module.graph.find_nodes(op="placeholder"):
            yield f"  %{node.name}{self._type(node)}{_remark((inputs or {}).get(node.name, '') or _memory(node))}"
        yield "graph"
        yield from _indented(self._calls(module))
        yield "outputs"
        remarks = iter(outputs)
        for value in output_values(module.graph):
            yield f"  {_value(value)}{_remark(next(remarks, ''))}"

    def _calls(self, module: GraphModule) -> Iterator[str]:
        for node in module.graph.nodes:
            if node.op in ("call_function", "call_module", "call_method"):
                call = f"{_target(node)}({_arguments(node)})"
                yield f"%{node.name}{self._type(node)} = {call}{_remark(_memory(node))}"
            elif node.op == "get_attr":
                attribute = referenced(module, node)
                yield f"%{node.name}{self._type(node)} = {_held(attribute)} {node.target}"
                yield from _indented(self._contents(attribute))

    def _contents(self, attribute: object) -> Iterator[str]:
        if isinstance(attribute, GraphModule):
            yield from self.graph(attribute)
        elif isinstance(original := getattr(attribute, "original_module", None), ExportedProgram):
            yield from self.program(original)

    def _type(self, node: Node) -> str:
        kind = self._kind(node.meta.get("val"))
        return f" : {kind}" if kind else ""

    def _kind(self, value: object) -> str:
        """`f32[2, s0]`, `int s0` for a symbolic number, `(f32[2], f32[2])` for several; strides if not the usual."""
        if isinstance(value, torch.Tensor):
            unusual = value.layout is torch.strided and not value.is_contiguous()
            strides = f" strides [{self._sizes(value.stride())}]" if unusual else ""
            return f"{short_name(value.dtype)}[{self._sizes(value.shape)}]{strides}"
        if isinstance(value, (list, tuple)):
            return f"({', '.join(self._kind(item) or 'none' for item in value)})"
        numbers = ((torch.SymBool, "bool"), (torch.SymInt, "int"), (torch.SymFloat, "float"))
        return next((f"{name} {self._sizes([value])}" for kind, name in numbers if isinstance(value, kind)), "")

    def _sizes(self, sizes: Iterable[object]) -> str:
        return ", ".join(_SYMBOL.sub(self._symbol, str(size)) for size in sizes)

    def _symbol(self, symbol: re.Match[str]) -> str:
        """`s0`, `s1` … in order; those that depend on data keep their `u`."""
        return self.symbols.setdefault(symbol[0], f"{symbol[1]}{len(self.symbols)}")


# ---- words -----------------------------------------------------------------------------------------


def _words(kind: InputKind | OutputKind) -> str:
    """`constant tensor` for CONSTANT_TENSOR, `buffer` for BUFFER and BUFFER_MUTATION."""
    return kind.name.removesuffix("_MUTATION").replace("_", " ").lower()


def _held(attribute: object) -> str:
    if isinstance(attribute, GraphModule):
        return "body"
    backend = getattr(attribute, "backend_id", None)
    if backend is not None:
        return f"delegate of {backend}"
    return "constant" if isinstance(attribute, torch.Tensor) else type(attribute).__name__


def _memory(node: Node) -> str:
    use, device = memory_use(node), device_of(node)
    if (part := part_of(node)) is not None:
        whole = f", {MemoryUse.WHOLE.value} {_value(node.args[0])}" if use is MemoryUse.WHOLE else ""
        return f"{MemoryUse.PART.value} the memory of %{part[0]}, from byte {part[1]} on{whole}"
    if use is MemoryUse.PIECE:
        return f"{use.value} {_value(node.args[0])}, from byte {', '.join(map(str, piece_offsets(node)))} on"
    if use is not None:
        return f"{use.value} {_value(node.args[0])}"
    return f"on {device}" if device != CPU else ""


def _target(node: Node) -> str:
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return str(target if isinstance(target, str) else getattr(target, "__name__", target))


def _arguments(node: Node) -> str:
    named = (f"{name}={_value(value)}" for name, value in node.kwargs.items())
    return ", ".join([*map(_value, node.args), *named])


def _value(value: object) -> str:
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


def _remark(text: str) -> str:
    return f"  # {text}" if text else ""


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
