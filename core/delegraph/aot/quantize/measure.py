"""What a model computes in float, and quantized, on one batch -> how far each layer is off, by itself and in all.

    float       x ── conv1 ── y1 ── conv2 ── y2
                                                    every call is given the float model's values: what is off there,
    by itself   x ── conv1' ─ y1'   y1 ── conv2' ─ y2'    this layer alone has added
    in all      x ── conv1' ─ y1' ─ conv2' ─ y2''         as it will run

The measure is SQNR, signal to quantization noise, `10 log10(Σ y² / Σ (y - y')²)` in dB: 20 dB is a tenth of the signal
off, 40 dB a hundredth.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

__all__ = ["Measured", "Recorded", "measured", "recorded", "sqnr"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Values that the float model gave on one batch: of calls by name, the first of several; and in the end."""

    values: Mapping[str, torch.Tensor]
    outputs: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """SQNR in dB of calls by name, each by itself and in all, and of the outputs together."""

    alone: Mapping[str, float] = field(default_factory=dict)
    in_all: Mapping[str, float] = field(default_factory=dict)
    outputs: float = math.inf


def recorded(module: GraphModule, inputs: Sequence[Any], names: Collection[str]) -> Recorded:
    """Run the float `module` on the flat `inputs`, and keep what the calls of these names give."""
    run = _Run(module, names)
    return Recorded(run.seen, pytree.tree_leaves(run.outputs(inputs)))


def measured(module: GraphModule, inputs: Sequence[Any], wanted: Recorded) -> Measured:
    """Run the quantized `module` twice, whose calls have the names of the float one's, and compare."""
    alone = _Run(module, wanted.values, instead=wanted.values)
    alone.outputs(inputs)
    in_all = _Run(module, wanted.values)
    outputs = pytree.tree_leaves(in_all.outputs(inputs))
    return Measured(alone.compared(wanted), in_all.compared(wanted), sqnr(*_pairs(wanted.outputs, outputs)))


def sqnr(*pairs: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Of pairs (in float, quantized), all together, in dB; infinite where they are equal."""
    signal = sum(float(wanted.double().square().sum()) for wanted, _ in pairs)
    noise = sum(float((wanted.double() - got.double()).square().sum()) for wanted, got in pairs)
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal and math.isfinite(noise) else -math.inf


class _Run(Interpreter):
    """Runs a graph and keeps the values of `names`, or, where a value stands `instead`, how far its own is off."""

    def __init__(
        self, module: GraphModule, names: Collection[str], instead: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        super().__init__(module, garbage_collect_values=True)
        self.seen: dict[str, torch.Tensor] = {}
        self._names, self._instead = names, instead or {}
        self._alone: dict[str, float] = {}

    def outputs(self, inputs: Sequence[Any]) -> Any:
        """Run on the flat inputs."""
        with torch.no_grad():
            return self.run(*inputs, enable_io_processing=False)

    def run_node(self, n: Node) -> Any:
        """Of a call with several results (an LSTM, a bag of embeddings), the first is what counts."""
        value = super().run_node(n)
        several = isinstance(value, tuple | list) and len(value) > 0
        first, *rest = value if several else (value,)
        if n.name not in self._names or not _is_float(first):
            return value
        if n.name not in self._instead:
            self.seen[n.name] = first.detach()
            return value
        self._alone[n.name] = sqnr((self._instead[n.name], first))
        return (self._instead[n.name], *rest) if several else self._instead[n.name]

    def compared(self, wanted: Recorded) -> dict[str, float]:
        """SQNR by name."""
        seen = {name: sqnr((wanted.values[name], value)) for name, value in self.seen.items() if name in wanted.values}
        return self._alone or seen


def _pairs(wanted: Sequence[Any], got: Sequence[Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for one, other in zip(wanted, got, strict=True):
        if _is_float(one):
            yield one, other


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
