"""LSTMs with int8 weights whose input is quantized at run time: DynamicQuantizeLSTM.

It also rounds the hidden state, at each step to 8 bits of its own range, as torch's dynamically quantized LSTM does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import onnx_ir as ir
from torch.fx import Node

from delegraph_cpu.aot.graph import CONTRIB, CpuGraph
from delegraph_cpu.aot.quantized.table import integers_for
from delegraph_cpu.aot.quantized.weights import KnownWeight, float_bias, symmetric_weight
from delegraph_onnx.converters.quantization import chosen_as_it_comes
from delegraph_onnx.converters.recurrent import LSTM_GATES, Layers
from delegraph_onnx.graph_builder import Converted


@integers_for("lstm.input")
def lstm(g: CpuGraph, node: Node, input: Node, *_: object) -> Converted | None:
    source = chosen_as_it_comes(input) or (input if g.int8_inputs else None)
    layers = _Int8Layers(g, node, LSTM_GATES)
    if source is None or not layers.fit():
        return None
    layers.input = source
    return layers.run("DynamicQuantizeLSTM")


class _Int8Layers(Layers):
    """Layers whose matrices are constants of int8, with a scale for each row."""

    domain = CONTRIB

    def fit(self) -> bool:
        """Whether all weights are of that form."""
        parts = chain.from_iterable(map(self._matrices, range(self.num_layers)))
        biases = [p for i, p in enumerate(self.params) if i % self.per_direction >= 2]
        return all(part is not None for part in parts) and all(float_bias(self.g, b) is not None for b in biases)

    def weights(self, layer: int) -> Sequence[ir.Value | None]:
        """[directions, inputs, gates of hidden units]; the scales and zero points of columns behind the states."""
        name, matrices = f"recurrent_{layer}", self._matrices(layer)
        parts = [part for part in matrices if part is not None]
        (w, *of_w), (r, *of_r) = (self._stacked(f"{name}.{n}", parts[i::2]) for i, n in enumerate("WR"))
        return [w, r, self._biases(name, layer), None, *of_w, *of_r]  # None: no peepholes

    def _matrices(self, layer: int) -> list[KnownWeight | None]:
        """The matrices of the input and of the hidden state, for each direction."""
        return [symmetric_weight(self.g, p, 0) for params in self.of_directions(layer) for p in params[:2]]

    def _stacked(self, name: str, parts: Sequence[KnownWeight]) -> tuple[ir.Value, ir.Value, ir.Value]:
        columns = np.stack([self.reordered(part.content).T for part in parts])
        scales = np.stack([self.reordered(part.scale) for part in parts])
        zero_points = self.g.weight(f"{name}.zero_points", np.zeros(scales.shape, np.int8))
        return self.g.weight(name, columns), self.g.constant(scales), zero_points

    def _biases(self, name: str, layer: int) -> ir.Value | None:
        if self.per_direction == 2:
            return None
        biases = [[float_bias(self.g, p) for p in params[2:4]] for params in self.of_directions(layer)]
        rows = [np.concatenate([self.reordered(b) for b in pair if b is not None]) for pair in biases]
        return self.g.weight(f"{name}.B", np.stack(rows))
