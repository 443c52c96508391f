"""The user's program in float and quantized, on one batch -> how far each layer is off, by itself and in all.

    float       x ── conv1 ── y1 ── conv2 ── y2
                                                    every call is given the float model's values: what is off there,
    by itself   x ── conv1' ─ y1'   y1 ── conv2' ─ y2'    this layer alone has added
    in all      x ── conv1' ─ y1' ─ conv2' ─ y2''         as it will run

Float is the program as the user gave it, before anything was folded or rewritten, so that wrong folding shows. A call
that has no counterpart there, such as a product that an attention was cut into, is compared with the value that the
edited module computes in float from the user's values.

The measure is SQNR, signal to quantization noise, `10 log10(Σ y² / Σ (y - y')²)` in dB: 20 dB is a tenth of the signal
off, 40 dB a hundredth.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeGuard

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.node import Argument, Target
from torch.utils import _pytree as pytree

from delegraph.aot.graph.bodies import graph_modules, referenced
from delegraph.aot.quantize.annotations import is_written

__all__ = ["Measured", "Recorded", "first_inputs", "measured", "recorded", "sqnr"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Values in float on one batch: of quantized calls by name, the first of several; and in the end. `inputs` are what
    the graphs were given, by path: its own, and those of the bodies that were entered, for the first time."""

    values: Mapping[str, torch.Tensor]
    outputs: Sequence[object]
    inputs: Mapping[str, Sequence[object]]


@dataclass(frozen=True, slots=True)
class Measured:
    """SQNR in dB of calls by name, each by itself and in all, and of the outputs together: None where none is float."""

    alone: Mapping[str, float] = field(default_factory=dict)
    in_all: Mapping[str, float] = field(default_factory=dict)
    outputs: float | None = None


def recorded(
    model: GraphModule,
    functional: GraphModule,
    prepared: GraphModule,
    inputs: Sequence[object],
    counterparts: Mapping[str, str],
) -> Recorded:
    """Values in float for the flat `inputs`: `model` is the user's program, `functional` the same without mutation.
    `counterparts` maps the name of each call that will be quantized to that of the call of `functional` that it stands
    for; a call without one is found by its own name in `prepared`, which is `functional` edited."""
    outputs = pytree.tree_leaves(_Run(model, ()).outputs(inputs))
    with first_inputs(functional) as body_inputs:
        run = _Run(functional, set(counterparts.values()))
        run.outputs(inputs)
    entered = {"": inputs, **body_inputs}
    seen = run.seen | _seen_in_bodies(functional, entered, run)
    values = {name: seen[counterpart] for name, counterpart in counterparts.items() if counterpart in seen}
    parts = counterparts.keys() - values.keys()
    if parts:
        for graph, own in _graphs(prepared, entered):
            edited = _Run(graph, counterparts, instead=values)
            edited.outputs(own)
            values = values | {name: value for name, value in edited.seen.items() if name in parts}
    return Recorded(values, outputs, entered)


def measured(module: GraphModule, inputs: Sequence[object], reference: Recorded) -> Measured:
    """Run the quantized `module` twice and compare its calls by name."""
    alone: dict[str, float] = {}
    for graph, own in _graphs(module, reference.inputs):
        run = _Run(graph, reference.values, instead=reference.values)
        run.outputs(own)
        alone |= run.alone
    with first_inputs(module) as body_inputs:
        whole = _Run(module, reference.values)
        outputs = pytree.tree_leaves(whole.outputs(inputs))
    seen = whole.seen | _seen_in_bodies(module, body_inputs, whole)
    in_all = {name: sqnr((reference.values[name], value)) for name, value in seen.items()}
    pairs = [(exact, got) for exact, got in zip(reference.outputs, outputs, strict=True) if _is_float(exact)]
    return Measured(alone, in_all, sqnr(*pairs) if pairs else None)


@contextmanager
def first_inputs(module: GraphModule) -> Iterator[dict[str, Sequence[object]]]:
    """By path, the first inputs of each body of `module` that is entered while this is open."""
    by_path: dict[str, Sequence[object]] = {}
    hooks = [
        body.register_forward_pre_hook(lambda _body, inputs, path=path: by_path.setdefault(path, inputs) and None)
        for path, body in graph_modules(module)
        if body is not module
    ]
    try:
        yield by_path
    finally:
        for hook in hooks:
            hook.remove()


def _graphs(module: GraphModule, inputs: Mapping[str, Sequence[object]]) -> list[tuple[GraphModule, Sequence[object]]]:
    """The graphs of `module` at the paths that there are inputs for."""
    return [(graph, inputs[path]) for path, graph in graph_modules(module) if path in inputs]


def _seen_in_bodies(
    module: GraphModule, body_inputs: Mapping[str, Sequence[object]], whole: _Run
) -> dict[str, torch.Tensor]:
    """The values of the calls in the bodies of `module`, for the names that `whole` keeps."""
    seen: dict[str, torch.Tensor] = {}
    for graph, own in _graphs(module, {path: inputs for path, inputs in body_inputs.items() if path}):
        run = _Run(graph, whole.names)
        run.outputs(own)
        seen |= run.seen
    return seen


def sqnr(*pairs: tuple[torch.Tensor, torch.Tensor]) -> float:
    """The SQNR of pairs (in float, quantized), all together, in dB; infinite where they are equal. Elements that are
    the same infinity, or NaN, in both do not count."""
    signal = noise = 0.0
    for expected, actual in pairs:
        exact, off = expected.double(), expected.double() - actual.double()
        if not torch.isfinite(off.sum()):
            same = (expected == actual) | (expected.isnan() & actual.isnan())
            exact, off = exact.masked_fill(same & ~exact.isfinite(), 0), off.masked_fill(same, 0)
        signal += float(exact.square().sum())
        noise += float(off.square().sum())
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal and math.isfinite(noise) else -math.inf


class _Run(Interpreter):
    """Runs a graph, past its observers, and keeps the values of `names` in `seen`. Where `instead` has a value for a
    call, that goes on in place of the call's own, and `alone` gets the SQNR of the call's own."""

    def __init__(
        self, module: GraphModule, names: Collection[str], instead: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        super().__init__(module, garbage_collect_values=True)
        self.seen: dict[str, torch.Tensor] = {}
        self.alone: dict[str, float] = {}
        self.names, self._instead = names, instead or {}

    def outputs(self, inputs: Sequence[object]) -> object:
        """Run on the flat inputs. Afterwards they and the module's buffers are as before; random numbers are the same
        in every run."""
        buffers = [(tensor, tensor.clone()) for tensor in _written(self.module, self.graph)]
        own = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
        with torch.no_grad(), torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            results = self.run(*own, enable_io_processing=False)
            for tensor, before in buffers:
                tensor.copy_(before)
        return results

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, object]) -> Argument:
        """An observer returns its input."""
        return args[0]

    def run_node(self, n: Node) -> object:
        """Of a call with several results (an LSTM, a bag of embeddings), the first is what counts."""
        value = super().run_node(n)
        several = isinstance(value, tuple | list) and len(value) > 0
        first, *rest = value if several else (value,)
        if n.name not in self.names or not _is_float(first):
            return value
        if n.name not in self._instead:
            self.seen[n.name] = first.detach()
            return value
        self.alone[n.name] = sqnr((self._instead[n.name], first))
        return (self._instead[n.name], *rest) if several else self._instead[n.name]


def _written(module: torch.nn.Module, graph: Graph) -> Iterator[torch.Tensor]:
    for node in graph.find_nodes(op="get_attr"):
        if is_written(node):
            yield referenced(module, node)


def _is_float(value: object) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
