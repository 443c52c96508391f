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
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

from delegraph.aot.graph.bodies import graph_modules, referenced

__all__ = ["Measured", "Recorded", "first_inputs", "measured", "recorded", "sqnr"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Values that the float model gave on one batch: of calls by name, the first of several; and in the end. `inputs`
    are what its graphs were given, by path: its own, and those of the bodies that were entered, for the first time."""

    values: Mapping[str, torch.Tensor]
    outputs: Sequence[Any]
    inputs: Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Measured:
    """SQNR in dB of calls by name, each by itself and in all, and of the outputs together."""

    alone: Mapping[str, float] = field(default_factory=dict)
    in_all: Mapping[str, float] = field(default_factory=dict)
    outputs: float = math.inf


def recorded(module: GraphModule, inputs: Sequence[Any], names: Collection[str]) -> Recorded:
    """Run the float `module` on the flat `inputs`, and keep what the calls of these names give, those in bodies too."""
    with first_inputs(module) as given:
        run = _Run(module, names)
        outputs = pytree.tree_leaves(run.outputs(inputs))
    values = run.seen
    for graph, own in _graphs(module, given):
        inner = _Run(graph, names)
        inner.outputs(own)
        values |= inner.seen
    return Recorded(values, outputs, {"": inputs, **given})


def measured(module: GraphModule, inputs: Sequence[Any], wanted: Recorded) -> Measured:
    """Run the quantized `module` twice, whose calls have the names of the float one's, and compare."""
    alone: dict[str, float] = {}
    for graph, own in _graphs(module, wanted.inputs):
        run = _Run(graph, wanted.values, instead=wanted.values)
        run.outputs(own)
        alone |= run.compared(wanted)
    with first_inputs(module) as given:
        whole = _Run(module, wanted.values)
        outputs = pytree.tree_leaves(whole.outputs(inputs))
    in_all = whole.compared(wanted)
    for graph, own in _graphs(module, given):
        run = _Run(graph, wanted.values)
        run.outputs(own)
        in_all |= run.compared(wanted)
    return Measured(alone, in_all, sqnr(*_pairs(wanted.outputs, outputs)))


@contextmanager
def first_inputs(module: GraphModule) -> Iterator[dict[str, Sequence[Any]]]:
    """By path, what the bodies of `module` that are entered while this is open are given, for the first time."""
    given: dict[str, Sequence[Any]] = {}
    hooks = [
        body.register_forward_pre_hook(lambda _body, inputs, path=path: given.setdefault(path, inputs) and None)
        for path, body in graph_modules(module)
        if body is not module
    ]
    try:
        yield given
    finally:
        for hook in hooks:
            hook.remove()


def _graphs(module: GraphModule, inputs: Mapping[str, Sequence[Any]]) -> list[tuple[GraphModule, Sequence[Any]]]:
    """The graphs of `module` at the paths that there are inputs for."""
    return [(graph, inputs[path]) for path, graph in graph_modules(module) if path in inputs]


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
        """Run on the flat inputs. What the module writes into its buffers is as before afterwards."""
        held = [(tensor, tensor.clone()) for tensor in _written(self.module, self.graph)]
        with torch.no_grad():
            results = self.run(*inputs, enable_io_processing=False)
            for tensor, before in held:
                tensor.copy_(before)
        return results

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


def _written(module: torch.nn.Module, graph: Graph) -> Iterator[torch.Tensor]:
    for node in graph.find_nodes(op="get_attr"):
        if any(user.target is torch.ops.aten.copy_.default and user.args[0] is node for user in node.users):
            yield referenced(module, node)


def _pairs(wanted: Sequence[Any], got: Sequence[Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for one, other in zip(wanted, got, strict=True):
        if _is_float(one):
            yield one, other


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
