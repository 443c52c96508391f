"""What tests of the compiler share: a model quantized and lowered for the NPU, run, and compared in steps of a grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import delegraph
from delegraph.aot import schema_arguments

__all__ = ["Outcome", "lower_and_run"]


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
