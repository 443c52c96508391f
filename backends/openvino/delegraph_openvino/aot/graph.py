"""The graph that is made for OpenVINO: weights as they are stored, and OpenVINO's own operations where they matter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.fx import Graph, Node

from delegraph.aot.authoring import Constants, as_array, debug_handles
from delegraph_onnx.dtypes import HALVES
from delegraph_onnx.graph_builder import GraphBuilder, initializer
from delegraph_onnx.ir_values import nodes_within
from delegraph_onnx.node_facts import dtype_of
from delegraph_openvino.aot.known_products import known_products
from delegraph_openvino.aot.operators import DOMAIN
from delegraph_openvino.aot.packed_weights import PackedWeight, packed_weights
from delegraph_openvino.aot.rounded_values import roundings_before_jumps
from delegraph_openvino.aot.target import OPENVINO

__all__ = ["CODES_OF", "OpenVinoGraph"]

CODES_OF: Final = ":codes"
"""The suffix of the name of a weight whose bytes are read as codes of 4 bits, two to a byte."""


class OpenVinoGraph(GraphBuilder):
    """`tensors` are the program's constants, by placeholder. `packed` are the weights of 4 bits, `known` the results of
    products that are computed ahead of time. The calls in `to_the_bit` need exact grid values, 0 where the grid has 0.
    `rounded` counts the products with dequantized weights whose other operand is rounded at run time, `exact` the
    others. Nodes are named after the call that they are made for; `debug_handle_map` has its debug handles."""

    def __init__(self) -> None:
        super().__init__(OPENVINO)
        self.tensors: dict[Node, torch.Tensor] = {}
        self.packed: dict[Node, PackedWeight] = {}
        self.known: dict[Node, NDArray[Any]] = {}
        self.to_the_bit: set[Node] = set()
        self.rounded, self.exact = 0, 0
        self.debug_handle_map: dict[str, tuple[int, ...]] = {}

    def add_parameter(self, node: Node, tensor: torch.Tensor) -> None:
        """Make the placeholder `node` an initialiser over the memory of `tensor`; a half is cast."""
        self.tensors[node] = tensor
        if tensor.dtype not in HALVES:
            super().add_parameter(node, tensor)
            return
        array = as_array(tensor)
        self.constants.hold(node, array.astype(np.float32))
        self.initializers[node.name] = stored = initializer(node.name, array)
        self.values[node] = self.record(self.cast(stored, dtype_of(node)), array.shape)

    def cast(self, value: ir.Value, dtype: torch.dtype) -> ir.Value:
        """`value` as `dtype`; scales, which torch has in float64, are float32 here."""
        return super().cast(value, torch.float32 if dtype == torch.float64 else dtype)

    def constant(self, array: NDArray[Any]) -> ir.Value:
        """A constant; equal constants share one value."""
        return super().constant(array.astype(np.float32) if array.dtype == np.float64 else array)

    def weight(self, name: str, array: NDArray[Any]) -> ir.Value:
        """An initialiser for a rearranged weight, stored as bfloat16 if it comes from that."""
        if array.dtype != np.float32 or (np.ascontiguousarray(array).view(np.uint32) & 0xFFFF).any():
            return super().weight(name, array)
        return self.cast(super().weight(name, array.astype(ml_dtypes.bfloat16)), torch.float32)

    def transposed_parameter(self, argument: Node) -> ir.Value | None:
        """An initialiser for the transpose of a known weight, as `weight` stores it."""
        content = self.parameter(argument)
        return None if content is None else self.weight(argument.name, content.T)

    def product_with_transposed(self, x: ir.Value, y: ir.Value, rank: int) -> ir.Value:
        """`x @ y.mT` as one operation."""
        return self.op("MatMul", x, y, domain=DOMAIN)

    def prepare(self, graph: Graph) -> None:
        """Collect weights of 4 bits, known products, and the values that must be rounded exactly."""
        self.packed |= packed_weights(graph, self.constants)
        self.known |= known_products(graph, Constants(self.tensors))
        self.to_the_bit |= roundings_before_jumps(graph)

    def unpacked(self, node: Node, weight: PackedWeight) -> ir.Value:
        """A weight of 4 bits in float: see `packed_weights`."""
        zeros = weight.zero_points
        rows, groups, _ = zeros.shape
        name = f"{weight.node.name}{CODES_OF}"
        if name not in self.initializers:
            shape = (rows, groups, weight.shape[1] // groups)
            tensor = ir.PackedTensor(np.array(weight.codes), ir.DataType.UINT4, shape=ir.Shape(shape), name=name)
            self.initializers[name] = initializer(name, tensor)
        codes = self.cast(self.initializers[name], torch.float32)
        zero = self.constant((zeros[:1, :1] if (zeros == zeros.flat[0]).all() else zeros).astype(np.float32))
        scale = self.op("Reshape", self.tensor(weight.scale, torch.float32), self.ints(zeros.shape))
        real = self.op("Mul", self.op("Sub", codes, zero), scale)
        return self.op("Reshape", real, self.ints(weight.shape))

    @contextmanager
    def on_behalf_of(self, *calls: Node) -> Iterator[None]:
        """Name the nodes that the body of the `with` adds after the first of `calls`."""
        before = len(self.nodes)
        with super().on_behalf_of(*calls):
            yield
        name = calls[0].name
        self.debug_handle_map[name] = debug_handles(*calls)
        for node in nodes_within(self.nodes[before:]):
            if node.name is None or "/" not in node.name:  # the profile's reader needs the names of nodes
                node.name = f"{name}/{node.outputs[0].name}"
