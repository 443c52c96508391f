"""LSTMs and GRUs -> OpenVINO's sequences, a layer and direction at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from openvino import Output, opset15
from torch.fx import Node

from delegraph.aot.authoring import numpy_dtype
from delegraph_openvino.aot.graph_builder import GraphBuilder, dtype_of, shape_of
from delegraph_openvino.aot.table import converts

_LSTM_GATES: Final = (1, 0, 2, 3)
"""Where torch has the gates that OpenVINO wants in the order f, i, c, o: torch's is i, f, g, o."""
_GRU_GATES: Final = (1, 0, 2)
"""z, r, h of torch's r, z, n."""


def _plain(node: Node, x: Node, *rest: Any) -> str | None:
    dropout, training = rest[-4], rest[-3]
    if len(shape_of(x)) != 3:
        return "its input has no batch"
    return "it drops values" if training and dropout else None


def _unprojected(node: Node, x: Node, states: Sequence[Node], *rest: Any) -> str | None:
    hidden, cell = (shape_of(state)[-1] for state in states)
    return _plain(node, x, *rest) if hidden == cell else "it projects its hidden state"


@converts("lstm.input", check=_unprojected, keep=True)
def lstm(
    g: GraphBuilder, node: Node, x: Node, states: Sequence[Node], weights: Sequence[Node], biases: bool, layers: int,
    dropout: float, training: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Output, ...]:  # fmt: skip
    return _layers(g, "lstm", x, states, weights, biases, layers, bidirectional, batch_first)


@converts("gru.input", check=_plain, keep=True)
def gru(
    g: GraphBuilder, node: Node, x: Node, state: Node, weights: Sequence[Node], biases: bool, layers: int,
    dropout: float, training: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Output, ...]:  # fmt: skip
    return _layers(g, "gru", x, [state], weights, biases, layers, bidirectional, batch_first)


def _layers(
    g: GraphBuilder, kind: str, x: Node, states: Sequence[Node], weights: Sequence[Node], biases: bool, layers: int,
    bidirectional: bool, batch_first: bool,
) -> tuple[Output, ...]:  # fmt: skip
    """Torch has the weights one after the other, layer by layer, forwards before backwards; and states by those."""
    value = g.value(x) if batch_first else g.op("transpose", x, g.vector([1, 0, 2]))
    directions, each = 1 + bidirectional, 4 if biases else 2
    lasts: list[list[Output]] = [[] for _ in states]
    for layer in range(layers):
        results = []
        for direction in range(directions):
            index = layer * directions + direction
            own = weights[index * each : (index + 1) * each]
            initial = [_state(g, state, index) for state in states]
            sequence, *finals = _one_layer(g, kind, value, initial, own, dtype_of(x), direction == 1)
            results.append(sequence)
            for last, final in zip(lasts, finals, strict=True):
                last.append(g.op("transpose", final, g.vector([1, 0, 2])))
        value = g.concat(results, 2)
    outcome = value if batch_first else g.op("transpose", value, g.vector([1, 0, 2]))
    return outcome, *(g.concat(last, 0) for last in lasts)


def _state(g: GraphBuilder, state: Node, index: int) -> Output:
    """The initial state of one layer and direction, batch first."""
    own = g.op("gather", state, g.vector([index]), g.axis(0))
    return g.op("transpose", own, g.vector([1, 0, 2]))


def _one_layer(
    g: GraphBuilder, kind: str, value: Output, initial: Sequence[Output], weights: Sequence[Node], dtype: torch.dtype,
    reverse: bool,
) -> tuple[Output, ...]:  # fmt: skip
    hidden = shape_of(weights[1])[1]
    gates = _LSTM_GATES if kind == "lstm" else _GRU_GATES
    w, r = (_ordered(g, weight, gates, hidden) for weight in weights[:2])
    shape = g.shape(value)
    batch, length = (g.op("gather", shape, g.vector(place), g.axis(0)) for place in ([0], [1]))
    lengths = g.op("broadcast", length, batch)
    direction = "reverse" if reverse else "forward"
    bias = _bias(g, weights[2:], gates, hidden, dtype)
    if kind == "lstm":
        made = opset15.lstm_sequence(value, *initial, lengths, w, r, bias, hidden, direction)
    else:
        made = opset15.gru_sequence(value, *initial, lengths, w, r, bias, hidden, direction, linear_before_reset=True)
    sequence, *finals = made.outputs()
    return g.op("squeeze", sequence, g.vector([1])), *finals


def _bias(g: GraphBuilder, biases: Sequence[Node], gates: Sequence[int], hidden: int, dtype: torch.dtype) -> Output:
    """The sum of both; a GRU's of the new gate are apart, for the reset gate is multiplied in between."""
    if not biases:
        return g.tensor(np.zeros((1, 4 * hidden), numpy_dtype(dtype)))
    of_input, of_state = (_ordered(g, bias, gates, hidden) for bias in biases)
    if len(gates) == 4:
        return g.op("add", of_input, of_state)
    both = g.op("add", of_input, of_state)
    first = _cut(g, both, 0, 2 * hidden)
    return g.concat([first, _cut(g, of_input, 2 * hidden, 3 * hidden), _cut(g, of_state, 2 * hidden, 3 * hidden)], 1)


def _cut(g: GraphBuilder, value: Output, start: int, end: int) -> Output:
    return g.op("slice", value, g.vector([start]), g.vector([end]), g.vector([1]), axes=g.vector([1]))


def _ordered(g: GraphBuilder, weight: Node, gates: Sequence[int], hidden: int) -> Output:
    """The rows by gates in OpenVINO's order, with a dim for the direction in front."""
    rows = [gate * hidden + row for gate in gates for row in range(hidden)]
    return g.op("unsqueeze", g.op("gather", weight, g.vector(rows), g.axis(0)), g.vector([0]))
