"""A partition's edge program -> kernel calls on values and views; the same conversion tells whether a node can go on
the DSP.

A quantized value is represented by its codes: a dequantize call becomes the same view, marked with its grid; a result
is written on the grid of the quantize call behind it, limited by the activation between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring import (
    ConverterTable,
    Granularity,
    GraphConverter,
    Quantization,
    Quantizations,
    QuantizeCall,
    clamp_limits,
    numpy_dtype,
    operator_name,
    quantize_call,
)
from delegraph_dsp.aot.kernel_calls import KernelCall, Use, Value, View
from delegraph_dsp.program import Operator

__all__ = ["CODE_DTYPES", "MOVES", "TABLE", "KernelGraph", "Unsupported", "is_move", "shape_of"]

TABLE: Final = ConverterTable("the DSP")
"""Filled by `converters/`: rows are `(graph, node, *schema arguments) -> View`, and raise `Unsupported`."""

CODE_DTYPES: Final = {torch.int8: "int8", torch.int16: "int16"}

HALF: Final = "float16"


class Unsupported(Exception):
    """The reason why a converter cannot take a node."""


class KernelGraph(GraphConverter[View]):
    """Collects kernel calls. `half_for_float`: float32 is computed as float16."""

    table: ClassVar[ConverterTable] = TABLE

    def __init__(self, half_for_float: bool = False) -> None:
        super().__init__()
        self.half_for_float = half_for_float
        self.calls: list[KernelCall] = []
        self.operators: list[Operator] = []
        self.handles: list[tuple[int, ...]] = []
        self.results: dict[int, View] = {}
        """The results of the model's calls, by operator; also those of calls behind it that leave it as it is."""
        self.inputs: list[Value] = []
        self._operator_nodes: list[Node | None] = []

    @property
    def quantizations(self) -> Quantizations:
        """The quantizations of the program's integers."""
        return Quantizations(self.constants)

    # ---- placeholders ------------------------------------------------------------------------------

    def input(self, node: Node) -> View:
        """An argument of the call; float32 is converted where it is computed as float16."""
        tensor = node.meta["val"]
        value = Value(str(numpy_dtype(tensor.dtype)), tuple(tensor.shape), source=len(self.inputs))
        self.inputs.append(value)
        return self._as_half(View.of(value))

    def constant(self, node: Node, array: NDArray[Any]) -> View:
        """A weight; float32 is rounded to float16 where it is not quantized."""
        return self.known(array.astype(np.float16) if array.dtype == np.float32 else array)

    def number(self, number: complex) -> View:
        """A number, as float16."""
        return self.known(np.array(number, np.float16))

    def known(self, array: NDArray[Any]) -> View:
        """A constant."""
        return View.of(Value(str(array.dtype), array.shape, lambda: array))

    # ---- calls -------------------------------------------------------------------------------------

    def convert_call(self, node: Node) -> None:
        """Note which operator's result a call's value is."""
        super().convert_call(node)
        view = self.values[node]
        if not isinstance(view, View) or not view.value.is_made:
            return
        if self._operator_nodes and self._operator_nodes[-1] is node:
            self.results[len(self.operators) - 1] = view
            return
        for number in (number for number, result in self.results.items() if result.is_at(view)):
            self.handles[number] = tuple(dict.fromkeys((*self.handles[number], *self.debug_handles())))

    def call(self, node: Node) -> View | Sequence[View | None]:
        """Converted by the table, or here if it quantizes or dequantizes."""
        quantization = quantize_call(node)
        if quantization is None:
            return super().call(node)
        return self._quantized(quantization) if quantization.quantizes else self._dequantized(quantization)

    def _quantized(self, call: QuantizeCall) -> View:
        source, grid = self.value(call.source), self.quantizations.of_call(call)
        if grid is None:
            raise Unsupported("its scale and zero point are chosen at run time")
        if source.grid is not None:
            # the operator before has written codes already
            return source if source.grid == grid else self.regrid(source, grid)
        if call.granularity is not Granularity.TENSOR or call.dtype not in CODE_DTYPES:
            raise Unsupported(f"quantizes to {call.dtype} {call.granularity.value} by {call.granularity.value}")
        out = self.made(CODE_DTYPES[call.dtype], source.shape, grid)
        integers = (int(grid.zero_point), grid.qmin, grid.qmax)
        return self.pointwise("quantize", [source], out, integers, (float(np.float32(1) / np.float32(grid.scale)),))

    def _dequantized(self, call: QuantizeCall) -> View:
        grid = self.quantizations.of_call(call)
        if grid is None:
            raise Unsupported("its scale and zero point are chosen at run time")
        return self.value(call.source).on(grid)

    # ---- what converters call ----------------------------------------------------------------------

    def real(self, argument: Any) -> View:
        """The value of an argument as float16; codes are dequantized."""
        return self.as_real(self.value(argument))

    def as_real(self, view: View, dtype: str = HALF) -> View:
        """A view as floats."""
        if view.grid is None:
            if "float" not in view.dtype:
                raise Unsupported(f"computes {view.dtype} that no scale belongs to: the DSP's integers are codes")
            return view
        if view.grid.granularity is not Granularity.TENSOR or view.dtype not in CODE_DTYPES.values():
            raise Unsupported("reads a quantized weight in float")
        out = self.made(dtype, view.shape)
        return self.pointwise(
            "dequantize", [view], out, (int(view.grid.zero_point),), (float(np.float32(view.grid.scale)),)
        )

    def codes(self, argument: Any) -> View | None:
        """The value of an argument if it is codes, of int8 or int16 on one grid; None for others."""
        if not isinstance(argument, Node):
            return None
        view = self.value(argument)
        if view.grid is None or view.grid.granularity is not Granularity.TENSOR:
            return None
        return view if view.dtype in CODE_DTYPES.values() else None

    def wanted(self, node: Node) -> Quantization | None:
        """The grid on which the result of `node` is to be written, also if it is moved before; limited by the
        activation behind it."""
        grid = self.quantizations.wanted(node)
        if grid is None and len(node.users) == 1:
            follower = next(iter(node.users))
            limits = clamp_limits(follower)
            if limits is not None or is_move(follower):
                grid = self.wanted(follower)
            if grid is not None and limits is not None:
                grid = limited(grid, *limits)
        if grid is None or grid.dtype not in CODE_DTYPES or grid.granularity is not Granularity.TENSOR:
            return None
        return grid

    def grid_of(self, node: Node) -> Quantization:
        """As `wanted`. Raises `Unsupported` where there is none."""
        grid = self.wanted(node)
        if grid is None:
            raise Unsupported("its inputs are quantized and its result is not")
        return grid

    def made(self, dtype: str, shape: Sequence[int], grid: Quantization | None = None) -> View:
        """A value that a kernel will write."""
        return View.of(Value(dtype, tuple(shape)), grid)

    def on_grid(self, grid: Quantization, shape: Sequence[int]) -> View:
        """A value of codes that a kernel will write."""
        return self.made(CODE_DTYPES[grid.dtype], shape, grid)

    def add(
        self,
        kernel: str,
        space: Sequence[int],
        splits: Sequence[int],
        uses: Sequence[Use],
        integers: Sequence[int] = (),
        reals: Sequence[float] = (),
    ) -> View:
        """Call a kernel; returns the value that it writes."""
        call = KernelCall(
            kernel, tuple(space), tuple(splits), tuple(uses), tuple(map(int, integers)), tuple(map(float, reals)),
            self._operator(),
        )  # fmt: skip
        self.calls.append(call)
        return call.output.view

    def pointwise(
        self,
        kernel: str,
        inputs: Sequence[View],
        out: View,
        integers: Sequence[int] = (),
        reals: Sequence[float] = (),
        extras: Sequence[View] = (),
    ) -> View:
        """Call a kernel on elements; `inputs` broadcast to `out`; `extras`, operands between them, are whole in each
        tile."""
        rank = len(out.shape)
        uses = []
        for view in inputs:
            spread = view if len(view.shape) == rank else view.expand((1,) * (rank - len(view.shape)) + view.shape)
            axes = [axis if size == out.shape[axis] else None for axis, size in enumerate(spread.shape)]
            uses.append(Use(spread, tuple(axes)))
        uses += [Use(view, (None,) * len(view.shape)) for view in extras]
        uses.append(Use(out, tuple(range(rank))))
        return self.add(kernel, out.shape, range(rank), uses, integers, reals)

    def dense(self, view: View) -> View:
        """The same elements, densely in memory."""
        return view if view.is_whole else self.copy(view, self.made(view.dtype, view.shape, view.grid))

    def copy(self, view: View, out: View) -> View:
        """Copy elements into `out`, which may be a part of a value."""
        return self.pointwise("copy", [view], out)

    def reshaped(self, view: View, shape: Sequence[int]) -> View:
        """The same elements in another shape, copied if necessary."""
        result = view.reshape(shape)
        if result is None:
            result = self.dense(view).reshape(shape)
        assert result is not None
        return result

    def regrid(self, view: View, grid: Quantization, out: View | None = None) -> View:
        """Codes on another grid; into `out` if there is one."""
        from delegraph_dsp.aot.grids import output_integers

        assert view.grid is not None
        target = self.on_grid(grid, view.shape) if out is None else out
        scale = float(view.grid.scale) / float(grid.scale)
        return self.pointwise("rescale", [view], target, (int(view.grid.zero_point), *output_integers(scale, grid)))

    def finished(self, view: View, node: Node, others: Sequence[Value]) -> Value:
        """The value of an output of the partition, in memory of its own and with the dtype of `node`."""
        dtype = str(numpy_dtype(node.meta["val"].dtype))
        if dtype in ("float32", "float16") and view.grid is not None:
            view = self.as_real(view, dtype)
        if dtype != view.dtype:
            view = self.pointwise("convert", [view], self.made(dtype, view.shape))
        is_own = view.value.is_made and view.is_whole and view.value not in others
        return view.value if is_own else self.copy(view, self.made(view.dtype, view.shape)).value

    def _as_half(self, view: View) -> View:
        if view.dtype != "float32" or not self.half_for_float:
            return view
        return self.pointwise("convert", [view], self.made(HALF, view.shape))

    def _operator(self) -> int:
        """The number of the operator that is being converted."""
        if not self._operator_nodes or self._operator_nodes[-1] is not self.node:
            self._operator_nodes.append(self.node)
            name = "arguments" if self.node is None else self.node.name
            self.operators.append(Operator(name, "convert" if self.node is None else operator_name(self.node)))
            self.handles.append(self.debug_handles())
        return len(self._operator_nodes) - 1


MOVES: Final[set[Any]] = set()
"""Operators whose result is a view of their first argument, or a copy of it; `converters/views.py` fills it."""


def is_move(node: Node) -> bool:
    """Whether `node` only moves elements of its first argument."""
    return node.target in MOVES or operator_name(node) in MOVES


def shape_of(node: Node) -> tuple[int, ...]:
    """The shape of a node's result."""
    return tuple(node.meta["val"].shape)


# ---- activations behind an operator -------------------------------------------------------------------------------


def limited(grid: Quantization, low: float, high: float) -> Quantization:
    """The grid with its codes limited to those of `low` to `high`."""
    codes = grid.quantize(np.array([low, high], np.float32)).astype(int)
    return Quantization(grid.scale, grid.zero_point, int(codes[0]), int(codes[1]), grid.dtype)
