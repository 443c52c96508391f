"""A partition's edge program -> `ir.Graph`: quantize and dequantize calls folded into operators on integers.

    q(relu(convolution(dq(x), dq(w), b)))   becomes   y = convolution [0, 127] (x)   with w, b and scales as attributes

Each call is converted by its row of the table in `operators.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot import schema_arguments, user_location
from delegraph.aot.authoring import Constants, Quantizations, numpy_dtype
from delegraph.errors import UnsupportedOperator
from delegraph_npu.aot import ir
from delegraph_npu.aot.calls import Grid, QuantizedCall, call_at, grid_of, head_of, is_dequantize, operator_name
from delegraph_npu.aot.ir import Laid, Order
from delegraph_npu.aot.layout import IMAGES, keeps_place, move, placed, rows

__all__ = ["Folding", "alone", "fold", "unsupported"]


def fold(program: ExportedProgram, converters: Mapping[str, Any]) -> ir.Graph:
    """The graph of a partition. Raises `UnsupportedOperator`, with the node, for a call that no converter takes."""
    folding = Folding(program)
    inputs = [node for node in program.graph.nodes if node.op == "placeholder" and folding.content(node) is None]
    for node in inputs:
        folding.begin_input(node)
    for node in program.graph.nodes:
        if node.op == "call_function" and not is_dequantize(node) and head_of(node) is node:
            _convert(folding, node, converters)
    outputs = [folding.values[node] for node in program.graph.output_node().args[0]]
    return ir.Graph(
        tuple(folding.values[node] for node in inputs),
        tuple(folding.operators),
        tuple(outputs),
        tuple(folding.values.values()),
    )


def alone(folding: Folding, call: QuantizedCall, converters: Mapping[str, Any]) -> Sequence[ir.Operator]:
    """The operators that one call of the program becomes, on the results of earlier calls that were converted so.
    Raises as `fold`."""
    folding.operators.clear()
    for source in (value.args[0] for value in call.dequantizes):
        assert isinstance(source, Node)
        if source not in folding.values and folding.content(source) is None:
            folding.begin_input(source)
    _convert(folding, call.head, converters)
    return tuple(folding.operators)


def _convert(folding: Folding, node: Node, converters: Mapping[str, Any]) -> None:
    call = call_at(node)
    converter = converters.get(operator_name(node))
    reason = call if isinstance(call, str) else "the NPU has no such operator" if converter is None else None
    if reason is not None or isinstance(call, str) or converter is None:
        raise unsupported(node, f"{reason}")
    folding.begin(call)
    laid = converter(folding, call, *schema_arguments(node))
    for result in call.results:
        folding.values[result] = laid


def unsupported(node: Node, reason: str) -> UnsupportedOperator:
    """The error for a node that cannot be compiled."""
    return UnsupportedOperator(
        f"NpuBackend cannot compile {node.target}: {reason}", node=node.name, location=user_location(node)
    )


MOST_STEPS: Final = 2**30
"""The most steps of a bias: half the range of the machine's sums, so that there is room for the products."""


class Folding:
    """The state of a conversion: the integers of every node so far, and the operators."""

    def __init__(self, program: ExportedProgram | None = None) -> None:
        """A folding of a program, whose constants are known; or of a body of control flow, which has none."""
        self.constants = Constants() if program is None else Constants.of(program)
        self.quantizations = Quantizations(self.constants)
        self.values: dict[Node, Laid] = {}
        self.operators: list[ir.Operator] = []
        self._moved: dict[tuple[ir.Tensor, tuple[int, int, int, int]], ir.Tensor] = {}
        self._inputs: dict[ir.Tensor, Node] = {}  # inputs whose order is not chosen yet
        self._call: QuantizedCall | None = None
        self._names: dict[str, int] = {}

    # ---- what goes in -----------------------------------------------------------------------------------------------

    def begin_input(self, node: Node) -> None:
        """The integers of an input, on the grid on which they are dequantized first. Four dims are taken for an image
        until the first reader needs another order."""
        value = node.meta["val"]
        shape = tuple(value.shape)
        grid = next((grid_of(user) for user in node.users if is_dequantize(user)), None)
        scale, zero_point = (grid.scale, grid.zero_point) if grid is not None else (1.0, 0)
        order = IMAGES[4] if len(shape) == 4 else rows(len(shape))
        tensor = ir.Tensor(self.name(node.name), placed(shape, order), numpy_dtype(value.dtype), scale, zero_point)
        self.values[node] = Laid(tensor, shape, order)
        self._inputs[tensor] = node

    def content(self, node: Node) -> NDArray[Any] | None:
        """A constant's elements; None if `node` is no constant."""
        return self.constants.array(node) if node.op == "placeholder" else None

    # ---- operands ---------------------------------------------------------------------------------------------------

    def operand(self, node: Node) -> Laid:
        """The integers of the dequantized operand `node`, in their order; a constant's become a tensor of the graph."""
        source, grid = node.args[0], grid_of(node)
        assert isinstance(source, Node) and grid is not None
        laid = self.values[source] if source in self.values else self._constant(source, grid)
        if (laid.tensor.scale, laid.tensor.zero_point) == (grid.scale, grid.zero_point):
            return laid
        regridded = replace(laid.tensor, name=self.name(node.name), scale=grid.scale, zero_point=grid.zero_point)
        # a reshape in place reads the input's bytes as they lie: no later reader may choose another order for it
        self._inputs.pop(laid.tensor, None)
        self.add(ir.Reshape("reshape", (laid.tensor,), regridded, *regridded.bounds))
        return replace(laid, tensor=regridded)

    def _constant(self, node: Node, grid: Grid) -> Laid:
        content = self.content(node)
        assert content is not None
        order = rows(content.ndim)
        shape = placed(content.shape, order)
        tensor = ir.Tensor(node.name, shape, content.dtype, grid.scale, grid.zero_point, content.reshape(shape))
        return Laid(tensor, content.shape, order)

    def image(self, node: Node, order: Order) -> ir.Tensor:
        """The integers of the dequantized operand `node`, in `order`."""
        return self.ordered(self.operand(node), order).tensor

    def settled(self, node: Node) -> Laid:
        """As `operand`, in the order in which it lies, which no later reader changes."""
        laid = self.operand(node)
        return self.ordered(laid, laid.order)

    def ordered(self, laid: Laid, order: Order) -> Laid:
        """`laid` with its dims in `order`, by an operator that moves them if any has to move. An input takes the order
        of its first reader."""
        if laid.order == order:
            self._inputs.pop(laid.tensor, None)
            return laid
        key = (laid.tensor, move(laid.order, order))  # permuted views of a tensor share its moves
        if key not in self._moved:
            self._moved[key] = self._in_order(*key)
        return Laid(self._moved[key], laid.shape, order)

    def _in_order(self, source: ir.Tensor, moved: tuple[int, int, int, int]) -> ir.Tensor:
        n, h, w, c = (source.shape[axis] for axis in moved)
        if source.content is not None:
            return replace(source, shape=(n, h, w, c), content=source.content.transpose(moved))
        node = self._inputs.pop(source, None)
        if node is not None:
            target, outside = replace(source, shape=(n, h, w, c)), self.values[node]
            # in its own dims: `laid` may have more, to be broadcast, or permuted ones
            of_n, of_h, of_w, of_c = (outside.order[axis] for axis in moved)
            self.values[node] = Laid(target, outside.shape, (of_n, of_h, of_w, of_c))
            return target
        target = replace(source, name=self.name(source.name), shape=(n, h, w, c))
        if keeps_place(source.shape, moved):
            self.add(ir.Reshape("reshape", (source,), target, *target.bounds))
        else:
            self.add(ir.Transpose("transpose", (source,), target, *target.bounds, moved))
        return target

    def weight(self, node: Node) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """A constant int8 operand: its integers, and its scale, or a scale for each channel."""
        weight = self.quantizations.weight(node)
        if weight is None:
            raise unsupported(node, "its weight is not known ahead of time")
        if not weight.quantization.is_symmetric:
            raise unsupported(node, "its weight has zero points that are not 0")
        return weight.integers, weight.quantization.scale.reshape(-1)

    def bias(
        self, node: Node | None, input_scale: float, kernels: NDArray[np.int8], steps: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int8], NDArray[np.float64]]:
        """A float or dequantized bias in integers of the sums' steps; the kernels [out, …]; and their steps by channel,
        which are larger where a bias beside tiny weights would not fit in 32 bits."""
        real = np.broadcast_to(np.zeros(1) if node is None else self._real(node), len(kernels))
        larger = np.maximum(steps, np.abs(real) / (MOST_STEPS * input_scale))
        if (larger > steps).any():
            shrunk = kernels * (steps / larger).reshape(-1, *[1] * (kernels.ndim - 1))
            kernels = np.rint(shrunk).astype(kernels.dtype)
        return np.rint(real / (input_scale * larger)).astype(np.int64), kernels, larger

    def _real(self, node: Node) -> NDArray[np.float64]:
        content = self.content(node)
        if content is not None:
            return content.astype(np.float64)
        stored = self.quantizations.weight(node)
        if stored is None:
            raise unsupported(node, "its bias is not known ahead of time")
        scale, zero_point = stored.quantization.parameters(stored.shape)
        return np.asarray((stored.integers - zero_point) * scale)

    # ---- results ----------------------------------------------------------------------------------------------------

    def begin(self, call: QuantizedCall) -> None:
        """Let the operators that follow belong to `call`."""
        self._call = call

    def name(self, base: str) -> str:
        """`base`, with a number behind it where it is taken."""
        count = self._names[base] = self._names.get(base, -1) + 1
        return f"{base}.{count}" if count else base

    def result(self, call: QuantizedCall, order: Order, shape: Sequence[int] | None = None) -> Laid:
        """A tensor for the result of `call`, in `order`."""
        outside = tuple(call.head.meta["val"].shape if shape is None else shape)
        grid = call.out
        name, dtype = self.name(call.head.name), numpy_dtype(grid.dtype)
        return Laid(ir.Tensor(name, placed(outside, order), dtype, grid.scale, grid.zero_point), outside, order)

    def between(self, name: str, shape: ir.Shape, dtype: type, scale: float = 1.0, zero_point: int = 0) -> ir.Tensor:
        """A tensor between the operators of a call."""
        return ir.Tensor(self.name(f"{self._head.name}.{name}"), shape, np.dtype(dtype), scale, zero_point)

    def part(self, name: str, shape: ir.Shape, like: ir.Tensor) -> ir.Tensor:
        """As `between`, on the grid of `like`."""
        return self.between(name, shape, like.dtype.type, like.scale, like.zero_point)

    def constant(self, name: str, content: NDArray[Any], scale: float = 1.0) -> ir.Tensor:
        """A constant of four dims."""
        n, h, w, c = content.shape
        return ir.Tensor(self.name(f"{self._head.name}.{name}"), (n, h, w, c), content.dtype, scale, content=content)

    @property
    def _head(self) -> Node:
        assert self._call is not None
        return self._call.head

    def add(self, operator: ir.Operator) -> None:
        """Append `operator`, which is part of the call that is being converted."""
        handles = () if self._call is None else _handles(self._call)
        self.operators.append(replace(operator, debug_handles=handles))


def _handles(call: QuantizedCall) -> tuple[int, ...]:
    handles = (node.meta.get("debug_handle") for node in dict.fromkeys((call.head, *call.clamps, *call.results)))
    return tuple(handle for handle in handles if isinstance(handle, int))
