"""LSTM and GRU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring import named_arguments
from delegraph_onnx.converters.not_a_number import has_nan
from delegraph_onnx.converters.table import aten, convert_with, used_results
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.node_facts import rank_of

__all__ = ["LSTM_GATES", "Layers"]

# ONNX's order of the gates, as indices into torch's: LSTM i o f c from i f g o; GRU z r h from r z n.
LSTM_GATES = (0, 3, 1, 2)
GRU_GATES = (1, 0, 2)

ZEROS: Final = frozenset({aten("full"), aten("zeros")})
"""Operators of torch's default states, which are zeros."""


def _all_weights(node: Node, input: Node, *_: object) -> str | None:
    told = named_arguments(node)
    if told["train"] and told["dropout"]:
        return "dropout in training"
    if rank_of(input) != 3:
        return "an input without a batch dim"
    expected = told["num_layers"] * (1 + told["bidirectional"]) * (4 if told["has_biases"] else 2)
    return None if len(told["params"]) == expected else "projections"


@convert_with("lstm.input", check=_all_weights, keep=True, needs_elements=True)
def lstm(g: GraphBuilder, node: Node, *_: object) -> Sequence[ir.Value | None]:
    return Layers(g, node, LSTM_GATES).run("LSTM")


@convert_with("gru.input", check=_all_weights, keep=True, needs_elements=True)
def gru(g: GraphBuilder, node: Node, *_: object) -> Sequence[ir.Value | None]:
    return Layers(g, node, GRU_GATES).run("GRU", linear_before_reset=1)


class Layers:
    """The stack of recurrent layers that `node` is, each one ONNX operator."""

    domain = ""

    def __init__(self, g: GraphBuilder, node: Node, gates: Sequence[int]) -> None:
        told = named_arguments(node)
        self.g, self.node, self.gates = g, node, gates
        self.input: Node = told["input"]
        self.states: list[Node] = [told["hx"]] if isinstance(told["hx"], Node) else told["hx"]
        self.params: Sequence[Node] = told["params"]
        self.per_direction = 4 if told["has_biases"] else 2
        self.num_layers: int = told["num_layers"]
        self.directions = 2 if told["bidirectional"] else 1
        self.batch_first: bool = told["batch_first"]

    def run(self, op_type: str, **attributes: Any) -> list[ir.Value | None]:
        """The output, then the final states; None for those that are not used."""
        g = self.g
        value = self._steps_first(g.tensor(self.input, torch.float32))
        states = [g.value(state) for state in self.states]
        finals: list[list[ir.Value]] = [[] for _ in states]
        for layer in range(self.num_layers):
            value, *ends = self._layer(op_type, layer, value, states, attributes)
            for final, end in zip(finals, ends, strict=True):
                final.append(end)
        joined = [ends[0] if len(ends) == 1 else g.op("Concat", *ends, axis=0) for ends in finals]
        return self._with_nan([self._steps_first(value), *joined])

    def _steps_first(self, value: ir.Value) -> ir.Value:
        """Swap the first two dims, batch and steps."""
        return self.g.transpose(value, [1, 0, 2]) if self.batch_first else value

    def _with_nan(self, results: Sequence[ir.Value]) -> list[ir.Value | None]:
        """The used ones of `results`, NaN wherever a NaN of the input or of a state reaches.

        onnxruntime's gates clamp their arguments, which turns NaN into numbers.
        """
        g, used = self.g, used_results(self.node)
        if g.target.recurrent_nan:
            return [result if i in used else None for i, result in enumerate(results)]
        suspects = [g.value(node) for node in (self.input, *self.states) if node.target not in ZEROS]

        def careful() -> list[ir.Value]:
            value = self._steps_first(g.value(self.input))
            output, final = self._reached(value, [g.value(state) for state in self.states])
            over_units = self._over_units(self._steps_first(output), results[0])
            masks = [over_units, *(g.op("Unsqueeze", final, g.ints([-1])) for _ in self.states)]
            return [g.op("Where", masks[i], g.tensor(math.nan, torch.float32), results[i]) for i in used]

        chosen = iter(g.choose(has_nan(g, *suspects), careful, lambda: [results[i] for i in used]))
        return [next(chosen) if i in used else None for i in range(len(results))]

    def _reached(self, value: ir.Value, states: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value]:
        """Where NaN is in the output, as [sequence, batch, direction], and in the final states, as [layers, batch].

        A NaN stays in its row of the batch: from its step on in one direction, everywhere in the layers above where
        there are two.
        """
        g, directions = self.g, self.directions
        now = self._bad_rows(value)  # [sequence, batch]
        start = [self._bad_rows(state) for state in states]  # each [layers * directions, batch]
        # a layer's own initial states: a NaN there is in all of its steps
        own = g.op("Reshape", g.total(start), g.ints([self.num_layers, directions, -1]))
        each_layer = g.op("ReduceSum", own, g.ints([1]), keepdims=1)
        # and in all layers above, which read both directions
        below = g.op("CumSum", each_layer, g.constant(np.array(0)), exclusive=1)
        # final states depend on all steps of the input
        throughout = g.op("ReduceSum", now, g.ints([0]), keepdims=1)
        own = g.op("Add", own, below)  # [layers, directions, batch]
        final = g.op("Reshape", g.op("Add", own, throughout), g.ints([self.num_layers * directions, -1]))
        last = g.transpose(g.op("Gather", own, g.constant(np.array(self.num_layers - 1)), axis=0), [1, 0])
        # the first layer spreads a NaN forwards and backwards, the second one from there to every step
        if directions == 2 and self.num_layers > 1:
            seen = [g.op("Add", g.op("Mul", now, g.tensor(0, torch.int32)), throughout)] * 2
        else:
            # only steps behind the NaN, in the order of the direction
            seen = [g.op("CumSum", now, g.constant(np.array(0)), reverse=reverse) for reverse in range(directions)]
        steps = g.op("Concat", *(g.op("Unsqueeze", counts, g.ints([-1])) for counts in seen), axis=-1)
        return g.cast(g.op("Add", steps, last), torch.bool), g.cast(final, torch.bool)

    def _bad_rows(self, value: ir.Value) -> ir.Value:
        """1 for each row along the last dim that has a NaN, else 0."""
        squares = self.g.op("ReduceSumSquare", value, self.g.ints([-1]), keepdims=0)
        return self.g.cast(self.g.op("IsNaN", squares), torch.int32)

    def _over_units(self, mask: ir.Value, output: ir.Value) -> ir.Value:
        """[sequence, batch, direction] -> [sequence, batch, direction * hidden], as `output` is."""
        g = self.g
        hidden = self.params[1].meta["val"].shape[-1]
        wide = g.op("Expand", g.op("Unsqueeze", mask, g.ints([-1])), g.ints([1, 1, 1, int(hidden)]))
        return g.op("Reshape", wide, g.op("Shape", output))

    def _layer(
        self, op_type: str, layer: int, value: ir.Value, states: Sequence[ir.Value], attributes: dict[str, Any]
    ) -> Sequence[ir.Value]:
        g, directions = self.g, self.directions
        weights, recurrent, biases, *further = self.weights(layer)
        first, last = layer * directions, (layer + 1) * directions
        mine = [g.op("Slice", s, g.ints([first]), g.ints([last]), g.ints([0])) for s in states]
        if self.num_layers == 1:
            mine = list(states)
        output, *finals = g.ops(
            op_type,
            1 + len(states),
            value,
            weights,
            recurrent,
            biases,
            None,
            *mine,
            *further,
            domain=self.domain,
            hidden_size=int(self.params[1].meta["val"].shape[-1]),
            direction="bidirectional" if directions == 2 else "forward",
            **attributes,
        )
        # [sequence, direction, batch, hidden] -> [sequence, batch, direction * hidden]
        if directions == 1:
            flat = g.op("Squeeze", output, g.ints([1]))
        else:
            flat = g.op("Reshape", g.transpose(output, [0, 2, 1, 3]), g.ints([0, 0, -1]))
        return [flat, *finals]

    def weights(self, layer: int) -> Sequence[ir.Value | None]:
        """Input weights, recurrent weights and biases of both directions, in ONNX's order of gates; then inputs that
        an operator has behind its states."""
        name, biases = f"recurrent_{layer}", None
        weights, recurrent = (
            self._of_all_directions(f"{name}.{n}", layer, slice(i, i + 1)) for i, n in enumerate("WR")
        )
        if self.per_direction == 4:
            biases = self._of_all_directions(f"{name}.B", layer, slice(2, 4))
        return weights, recurrent, biases

    def _of_all_directions(self, name: str, layer: int, part: slice) -> ir.Value:
        """This part of the parameters of all directions, stacked, (directions, gates …): a constant if all are known,
        otherwise computed when the session is made if they are known then, or at run time."""
        g, by_direction = self.g, [params[part] for params in self.of_directions(layer)]
        known = {param: array for param in self.params if (array := g.parameter(param)) is not None}
        if known.keys() >= {*self.params}:
            rows = [np.concatenate([self.reordered(known[p]) for p in params]) for params in by_direction]
            return g.weight(name, np.stack(rows))
        ordered = [[self._computed_order(p) for p in params] for params in by_direction]
        joined = [values[0] if len(values) == 1 else g.op("Concat", *values, axis=0) for values in ordered]
        return g.op("Concat", *(g.op("Unsqueeze", value, g.ints([0])) for value in joined), axis=0)

    def of_directions(self, layer: int) -> list[Sequence[Node]]:
        """The parameters of a layer, separately for each direction."""
        n = self.per_direction
        starts = [(layer * self.directions + direction) * n for direction in range(self.directions)]
        return [self.params[start : start + n] for start in starts]

    def reordered(self, array: NDArray[Any]) -> NDArray[Any]:
        """`array`, with torch's gates along the first dim, in ONNX's order."""
        blocks = np.split(array, len(self.gates))
        return np.concatenate([blocks[gate] for gate in self.gates])

    def _computed_order(self, param: Node) -> ir.Value:
        blocks = self.g.ops("Split", len(self.gates), self.g.value(param), axis=0, num_outputs=len(self.gates))
        return self.g.op("Concat", *(blocks[gate] for gate in self.gates), axis=0)
