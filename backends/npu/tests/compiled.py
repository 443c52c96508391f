"""What tests of the compiler share: a model quantized and lowered for the NPU, run, and compared in steps of a grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram

import delegraph
from delegraph.aot import schema_arguments

__all__ = ["Of", "Outcome", "exported", "lower_and_run", "weight"]


class Of(nn.Module):
    """A function as a module, with layers of its own."""

    def __init__(self, function: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*self.children(), *inputs)


def weight(*shape: int, axis: int = 0) -> torch.Tensor:
    """A constant weight as a quantized graph has it: int8, dequantized by channel. It is a constant only where it was
    there before the graph was traced: `exported` calls a function once before."""
    integers, scales, zeros = _constants(shape, axis)
    dequantize = torch.ops.quantized_decomposed.dequantize_per_channel.default
    real: torch.Tensor = dequantize(integers, scales, zeros, axis, -127, 127, torch.int8)
    return real


@cache
def _constants(shape: tuple[int, ...], axis: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    integers = torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8)
    scales = torch.rand(shape[axis], generator=generator) * 0.01 + 0.001
    return integers, scales, torch.zeros(shape[axis], dtype=torch.int64)


def exported(function: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> ExportedProgram:
    """`function` as a program, its weights as constants."""
    function(*inputs)
    return torch.export.export(Of(function), inputs, **options)


@dataclass(frozen=True)
class Outcome:
    """What came out, of the delegate and of the quantized program in torch, and how they were made."""

    lowered: Any
    blob: bytes
    given: Any
    expected: Any
    steps: list[float]

    @property
    def left(self) -> list[str]:
        """Operators that were left to kernels, but for those that quantize in front and dequantize behind."""
        report = self.lowered.report.methods["forward"]
        found = [(entry.operator, dict(entry.reasons)) for entry in report.leftovers]
        return [f"{name}: {reason}" for name, reason in found if not name.startswith("quantized_decomposed::")]

    @property
    def off(self) -> list[float]:
        """By how many steps of its grid each result is off, at most."""
        return [
            float(np.abs(np.asarray(a) - np.asarray(b)).max() / step)
            for a, b, step in zip(_leaves(self.given), _leaves(self.expected), self.steps, strict=True)
        ]


def lower_and_run(
    model: nn.Module, *inputs: torch.Tensor, recipe: str = "int8{observer=minmax}", **options: Any
) -> Outcome:
    """Quantize `model` by the NPU's quantizer with `inputs` as data, lower it with all options, and run it on them."""
    quantized = delegraph.quantize(model.eval(), [inputs], recipe=recipe, backends=["npu"])
    lowered = delegraph.lower(quantized, backends=[("npu", {"take_all": True, **options})])
    with torch.no_grad():
        expected = quantized.program.module()(*inputs)
    blob = bytes(lowered)
    given = delegraph.load(blob)(*[value.numpy() for value in inputs])
    return Outcome(lowered, blob, given, expected, _steps(quantized.program.graph))


def _steps(graph: torch.fx.Graph) -> list[float]:
    """The scales with which the outputs are dequantized."""
    return [float(schema_arguments(value)[1]) for value in graph.output_node().args[0]]  # type: ignore


def _leaves(value: Any) -> list[Any]:
    return [leaf for one in value for leaf in _leaves(one)] if isinstance(value, list | tuple) else [value]
