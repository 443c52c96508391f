"""Module -> exported, decomposed, converted, loaded, run: what the tests of this distribution share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
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


def arguments_of(program: ExportedProgram, name: str) -> set[int]:
    """The numbers of the arguments that a node is computed from."""
    todo = [node for node in program.graph.nodes if node.name == name]
    seen = set(todo)
    while todo:
        new = [source for source in todo.pop().all_input_nodes if source not in seen]
        seen.update(new)
        todo += new
    names = {node.name for node in seen}
    return {number for number, argument in enumerate(program.graph_signature.user_inputs) if argument in names}


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


class Functions(torch.nn.Module):
    """Functions of so many tensors each as one module, whose results are lists."""

    def __init__(self, functions: Sequence[Callable[..., Any]], counts: Sequence[int]) -> None:
        super().__init__()
        self.functions = list(functions)
        self.counts = counts
        self.modules_among_them = torch.nn.ModuleList(f for f in functions if isinstance(f, torch.nn.Module))

    def forward(self, *args: torch.Tensor) -> Any:
        rest = iter(args)
        return [function(*islice(rest, count)) for function, count in zip(self.functions, self.counts, strict=True)]


class Batches:
    """Functions of tensors, with arguments, by name: lowered several at a time, as an export takes as long for one."""

    def __init__(self, cases: Mapping[str, tuple[Callable[..., Any], Sequence[torch.Tensor]]], size: int = 16) -> None:
        self.cases, self.size = cases, size
        self._results: dict[str, list[NDArray[Any]]] = {}
        self._failed: set[int] = set()

    def run(self, name: str) -> list[NDArray[Any]]:
        """As `run` of the function: by itself if it could not be lowered with those around it."""
        batch = list(self.cases).index(name) // self.size
        if name not in self._results and batch not in self._failed:
            names = list(self.cases)[batch * self.size : (batch + 1) * self.size]
            try:
                self._results |= self._run_together(names)
            except Exception:  # whose it is shows where each is lowered by itself
                self._failed.add(batch)
        if name in self._results:
            return self._results[name]
        function, args = self.cases[name]
        return run(function, *args)

    def _run_together(self, names: Sequence[str]) -> dict[str, list[NDArray[Any]]]:
        functions, arguments = zip(*(self.cases[name] for name in names), strict=True)
        together = Functions(functions, [len(args) for args in arguments])
        flat = [arg.clone() for args in arguments for arg in args]
        sizes = [len(torch.utils._pytree.tree_leaves(results)) for results in together.eval()(*flat)]
        program = edge(together, [arg.clone() for args in arguments for arg in args])
        assert declined(program) == {}
        results = iter(Lowered(program)(*(arg for args in arguments for arg in args)))
        return {name: list(islice(results, size)) for name, size in zip(names, sizes, strict=True)}
