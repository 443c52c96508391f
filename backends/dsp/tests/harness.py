"""A function of tensors -> compiled for a device as one partition, run on the machine: what the tests share."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.ao.quantization.fx._decomposed
from numpy.typing import NDArray
from torch.export import ExportedProgram

from delegraph.aot import edge_program
from delegraph.interfaces import BackendInitContext
from delegraph_dsp.aot.lowering import Compiled, compile_program
from delegraph_dsp.aot.partitioner import DspPartitioner, Support
from delegraph_dsp.binary import pack
from delegraph_dsp.device import Device, device_named
from delegraph_dsp.runtime.backend import DspBackend, DspHandle

Q = torch.ops.quantized_decomposed


@lru_cache
def small(tcm_nbytes: int | None = None, preset: str = "hvx-4mb") -> Device:
    """A device, with another TCM."""
    return device_named(preset, tcm_nbytes)


@dataclass
class Context:
    """A method's context."""

    method_name: str = "forward"
    event_tracer: Any = None

    def resize(self, out: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        return out

    def upper_bound(self, argument: NDArray[Any]) -> None:
        return None

    def allocate_temp(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        return np.full(shape, 0xA5, dtype)


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def edge(function: Callable[..., Any], args: Sequence[torch.Tensor], device: Device | None = None) -> ExportedProgram:
    """The program as the partitioner asks for it."""
    module = function if isinstance(function, torch.nn.Module) else Function(function)
    exported = torch.export.export(module.eval(), tuple(args))
    return edge_program(exported, DspPartitioner(device or small()))


def is_operator(node: torch.fx.Node) -> bool:
    """Whether it is a call, and not of an element of a tuple."""
    return node.op == "call_function" and node.target is not operator.getitem


def reasons(program: ExportedProgram, device: Device | None = None, half: bool = False) -> dict[str, str]:
    """Operator -> why it is left."""
    support = Support.of(program, device or small(), half)
    found = {str(n.target): support(n) for n in program.graph.nodes if is_operator(n)}
    return {name: reason for name, reason in found.items() if reason is not None}


class Run:
    """A function compiled as one partition, and called."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[torch.Tensor],
        device: Device | None = None,
        half: bool = False,
    ) -> None:
        self.device = device or small()
        program = edge(function, args, self.device)
        assert reasons(program, self.device, half) == {}
        self.compiled: Compiled = compile_program(program, self.device, half)
        self.backend = DspBackend()
        self.blob = pack(self.compiled.program)
        self.handle: DspHandle = self.backend.init(BackendInitContext("forward"), self.blob, [])

    def __call__(self, *args: torch.Tensor) -> list[NDArray[Any]]:
        outputs = [np.zeros(r.shape, r.dtype) for r in self.compiled.program.outputs]
        arrays = [a.detach().contiguous().numpy() for a in args]
        self.backend.execute(Context(), self.handle, [*arrays, *outputs])
        return outputs


def run(function: Callable[..., Any], *args: torch.Tensor, device: Device | None = None) -> NDArray[Any]:
    """The one result of a function."""
    (out,) = Run(function, args, device)(*args)
    return out


def steps_apart(found: NDArray[Any], expected: torch.Tensor) -> int:
    """By how many codes two results differ at most."""
    assert found.dtype == expected.numpy().dtype and found.shape == tuple(expected.shape)
    return int(np.abs(found.astype(np.int64) - expected.numpy().astype(np.int64)).max())


@dataclass(frozen=True)
class Grid:
    """A scale and a zero point of int8, or of int16 about zero."""

    scale: float
    zero: int = 0
    dtype: torch.dtype = torch.int8

    @property
    def limits(self) -> tuple[int, int]:
        return (-128, 127) if self.dtype is torch.int8 else (-32767, 32767)

    def quantize(self, real: torch.Tensor) -> torch.Tensor:
        return Q.quantize_per_tensor(real, self.scale, self.zero, *self.limits, self.dtype)

    def dequantize(self, codes: torch.Tensor) -> torch.Tensor:
        return Q.dequantize_per_tensor(codes, self.scale, self.zero, *self.limits, self.dtype)

    def codes(self, *shape: int, seed: int = 0) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        low, high = self.limits
        return torch.randint(low, high + 1, shape, generator=generator).to(self.dtype)
