"""Module -> exported, decomposed, converted, loaded, run: what the tests of this distribution share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram

from delegraph.runtime.backends import BackendInitContext
from delegraph_cpu.aot.convert import support
from delegraph_cpu.aot.converters import CONVERTERS
from delegraph_cpu.aot.preprocess import CpuLowering
from delegraph_cpu.runtime.backend import CpuBackend

KEPT = [target for target, converter in CONVERTERS.items() if converter.keep]


@dataclass
class Context:
    """A method's context over arrays whose last dims may be used in part."""

    method_name: str = "forward"
    event_tracer: None = None
    resized: list[tuple[int, ...]] = field(default_factory=list)

    def resize(self, out: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        self.resized.append(shape)
        return out.reshape(-1)[: int(np.prod(shape))].reshape(shape)

    def allocate_temp(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        return np.empty(shape, dtype)


def edge(module: torch.nn.Module, args: Sequence[Any], dynamic_shapes: Any = None) -> ExportedProgram:
    """The module decomposed as the edge stage does it: all but the operators that this backend keeps."""
    exported = torch.export.export(module.eval(), tuple(args), dynamic_shapes=dynamic_shapes)
    table = torch.export.default_decompositions()
    for target in KEPT:
        table.pop(target, None)
    decomposed = exported.run_decompositions(table)
    for node in reversed(decomposed.graph.nodes):
        if node.op == "call_function" and not node.users:  # assertions and results that nobody takes
            decomposed.graph.erase_node(node)
    return decomposed


def declined(program: ExportedProgram) -> dict[str, str]:
    """Node -> reason, for every operator of the program that cannot be converted."""
    reasons = {n.name: support(n) for n in program.graph.nodes if n.op == "call_function"}
    return {name: reason for name, reason in reasons.items() if reason is not None}


class Lowered:
    """A whole program as one delegate."""

    def __init__(self, program: ExportedProgram, specs: Mapping[str, bool | int | str] | None = None) -> None:
        self.backend = CpuBackend()
        self.processed = CpuLowering.preprocess(program, []).processed_bytes
        self.handle = self.backend.init(BackendInitContext("forward", {}, specs or {}), self.processed, [])
        self.outputs = next(n for n in program.graph.nodes if n.op == "output").args[0]

    def __call__(self, *args: Any) -> list[NDArray[Any]]:
        arrays = [a.detach().numpy() if isinstance(a, torch.Tensor) else a for a in args]
        outs = [
            np.full([d if isinstance(d, int) else 64 for d in info.shape], 7).astype(info.dtype)
            for info in self.handle.outputs
        ]
        context = Context()
        self.backend.execute(context, self.handle, [*arrays, *outs])
        shapes = iter(context.resized)
        return [o if i.is_static else context.resize(o, next(shapes)) for i, o in zip(self.handle.outputs, outs)]
