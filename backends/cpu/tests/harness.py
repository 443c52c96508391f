"""Module -> exported, decomposed, converted, loaded, run: what the tests of this distribution share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram

from delegraph.aot import edge_program
from delegraph.interfaces import BackendInitContext, CompileSpec
from delegraph_cpu.aot.graph import TABLE
from delegraph_cpu.aot.partitioner import cpu_partitioner
from delegraph_cpu.aot.preprocess import CpuLowering
from delegraph_cpu.runtime.backend import CpuBackend
from delegraph_cpu.runtime.ort_values import numpy_dtype

LARGEST = 32
"""What stands for a dynamic dim's upper bound in the outputs' memory."""


@dataclass
class Context:
    """A method's context over arrays whose last dims may be used in part."""

    method_name: str = "forward"
    event_tracer: None = None
    views: dict[int, NDArray[Any]] = field(default_factory=dict)

    def resize(self, out: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        if out.shape != shape:
            self.views[id(out)] = out.reshape(-1)[: int(np.prod(shape))].reshape(shape)
        return self.views.get(id(out), out)

    def allocate_temp(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        return np.empty(shape, dtype)


def edge(module: torch.nn.Module, args: Sequence[Any], dynamic_shapes: Any = None) -> ExportedProgram:
    """The module in the edge dialect, as the cpu partitioner asks for it."""
    exported = torch.export.export(module.eval(), tuple(args), dynamic_shapes=dynamic_shapes)
    return edge_program(exported, cpu_partitioner())


def declined(program: ExportedProgram) -> dict[str, str]:
    """Node -> reason, for every operator of the program that cannot be converted."""
    reasons = {n.name: TABLE.support(n) for n in program.graph.nodes if n.op == "call_function"}
    return {name: reason for name, reason in reasons.items() if reason is not None}


class Lowered:
    """A whole program as one delegate."""

    def __init__(
        self,
        program: ExportedProgram,
        specs: Mapping[str, bool | int | str] | None = None,
        compile_specs: Sequence[CompileSpec] = (),
    ) -> None:
        self.backend = CpuBackend()
        self.processed = CpuLowering.preprocess(program, list(compile_specs)).processed_bytes
        self.handle = self.backend.init(BackendInitContext("forward", {}, specs or {}), self.processed, [])

    def __call__(self, *args: Any) -> list[NDArray[Any]]:
        arrays = [as_array(a) if isinstance(a, torch.Tensor) else a for a in args]
        outs = [
            np.full([d if isinstance(d, int) else LARGEST for d in info.shape], 7).astype(numpy_dtype(info.dtype))
            for info in self.handle.blob.outputs
        ]
        context = Context()
        self.backend.execute(context, self.handle, [*arrays, *outs])
        return [context.views.get(id(out), out) for out in outs]


def as_array(tensor: torch.Tensor) -> NDArray[Any]:
    """The tensor as NumPy has it; bfloat16 is ml_dtypes'."""
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def run(function: Callable[..., Any], *args: torch.Tensor, dynamic_shapes: Any = None) -> list[NDArray[Any]]:
    """Lower a function of tensors as one delegate, and call it; every operator must be supported."""
    program = edge(Function(function), args, dynamic_shapes)
    assert declined(program) == {}
    return Lowered(program)(*args)


class Function(torch.nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        if isinstance(function, torch.nn.Module):
            function.eval()

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)
