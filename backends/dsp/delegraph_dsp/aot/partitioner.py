"""The partitioner that users name "dsp": takes every node that has kernels and whose tiles fit in the TCM.

A node is tried by converting it alone, as the compiler will: the answer is the compiler's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from delegraph.aot import condensed_order, graph_modules
from delegraph.aot.authoring import (
    Constants,
    Granularity,
    Quantizations,
    numpy_dtype,
    operator_name,
    quantize_call,
    tensors_of,
    used_results,
)
from delegraph.errors import InvalidArgument
from delegraph.interfaces import CompileSpec, Partitioner, PartitionResult
from delegraph_dsp.aot import converters
from delegraph_dsp.aot.kernel_calls import Value, View
from delegraph_dsp.aot.kernel_graph import CODE_DTYPES, KernelGraph, Unsupported, is_move
from delegraph_dsp.aot.lowering import DEFAULT_DEVICE, DEVICE, DTYPE
from delegraph_dsp.aot.tiling import smallest_footprint
from delegraph_dsp.device import Device, device_named, device_text
from delegraph_dsp.program import BACKEND_ID, DTYPES
from delegraph_partitioners import CapabilityBasedPartitioner

__all__ = ["DspPartitioner", "Support", "dsp_partitioner"]

MOST_DIMS = 7
"""The most dims of a tensor: a kernel's space has one axis more."""


def dsp_partitioner(
    *,
    device: str = DEFAULT_DEVICE,
    tcm_nbytes: int | None = None,
    dtype: str | None = None,
    minimum_nodes: int = 1,
) -> Partitioner:
    """A partitioner for `DspBackend`.

    `device` is a preset, or the path of a TOML file that describes one; `tcm_nbytes` replaces the size of its memory.
    With `dtype="float16"` float32 is computed as float16; without, it is left. A delegate has at least `minimum_nodes`
    calls.

    Raises `InvalidArgument` for an unknown device, or another dtype.
    """
    if dtype not in (None, "float16"):
        raise InvalidArgument(f"dtype is {dtype!r}; what is float32 can be computed as 'float16', or be left")
    return DspPartitioner(device_named(device, tcm_nbytes), dtype == "float16", minimum_nodes)


class DspPartitioner(Partitioner):
    """See `dsp_partitioner`."""

    def __init__(self, device: Device, half_for_float: bool = False, minimum_nodes: int = 1) -> None:
        super().__init__()
        self._device, self._half_for_float, self._minimum_nodes = device, half_for_float, minimum_nodes

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag the nodes that the DSP takes, with a reason for each node that it leaves."""
        return self._partitioner(exported_program).partition(exported_program)

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """The operators with kernels, where they can be taken."""
        return self._partitioner(ep).ops_to_not_decompose(ep)

    def _partitioner(self, program: ExportedProgram) -> CapabilityBasedPartitioner:
        specs = [CompileSpec(DEVICE, device_text(self._device).encode())]
        if self._half_for_float:
            specs.append(CompileSpec(DTYPE, b"float16"))
        support = Support.of(program, self._device, self._half_for_float)
        return WholeCalls(support, specs, self._minimum_nodes)


class WholeCalls(CapabilityBasedPartitioner):
    """Cuts a graph at codes, or at values without a grid: a float between a dequantize call and a quantize call is read
    in the partition in which it is computed."""

    def __init__(self, support: Support, specs: Sequence[CompileSpec], minimum_nodes: int) -> None:
        super().__init__(
            BACKEND_ID, support, specs, keep_whole=converters.TABLE.kept_whole, minimum_nodes=minimum_nodes
        )
        self._codes = support

    def units(self, graph: Graph) -> Sequence[Sequence[Node]]:
        """Each dequantize call with its only reader, and each quantize call with the call before it."""
        return [nodes for _, nodes in condensed_order(graph, self._last)]

    def groups(self, graph: Graph) -> tuple[list[list[Node]], dict[Node, str]]:
        """As `CapabilityBasedPartitioner`; a value that several calls read is in the partition of all of them, or
        left."""
        while True:
            groups, reasons = super().groups(graph)
            torn = self._torn(groups)
            if not torn:
                return groups, reasons
            self._codes.leave(torn)

    def _last(self, node: Node) -> Node:
        """The last of the calls with which `node` is taken: they converge, so that no cycle can arise."""
        source = _producer(node)
        if source is not node and not (self._stands_for_codes(source) and len(source.users) == 1):
            return source
        call = quantize_call(node)
        if call is not None and call.quantizes and len(call.source.users) > 1 and self._takes(node):
            node = call.source if self._stands_for_codes(call.source) else node
        while self._stands_for_codes(node) and len(node.users) == 1 and self._takes(reader := next(iter(node.users))):
            node = reader
        return node

    def _stands_for_codes(self, node: Node) -> bool:
        return self._takes(node) and self._codes.comes_as_codes(node)

    def _takes(self, node: Node) -> bool:
        return node.op == "call_function" and self._codes(_producer(node)) is None

    def _torn(self, groups: Sequence[Sequence[Node]]) -> dict[Node, str]:
        """The calls that would read a float that represents codes from another partition."""
        group_of = {node: number for number, group in enumerate(groups) for node in group}
        return {
            user: f"its input {node.name} stands for codes in another partition"
            for node in group_of
            for user in node.users
            if group_of.get(user, group_of[node]) != group_of[node] and self._codes.comes_as_codes(node)
        }


@dataclass(frozen=True, slots=True)
class Support:
    """Returns the reason why a node of a program is left, or None."""

    device: Device
    half_for_float: bool
    tensors: Mapping[str, torch.Tensor]
    bodies: frozenset[Graph] = frozenset()
    _left: dict[Node, str] = field(default_factory=dict)
    _known: dict[Node, str | None] = field(default_factory=dict)
    _constants: dict[Graph, Constants] = field(default_factory=dict)

    @classmethod
    def of(cls, program: ExportedProgram, device: Device, half_for_float: bool = False) -> Support:
        """Answers for the nodes of `program`, and of the graphs that lowering derives from it: weights are known by the
        names of their placeholders. The arguments of control-flow bodies are not known, whatever their names."""
        tensors = Constants.of(program).tensors
        bodies = frozenset(part.graph for path, part in graph_modules(program.graph_module) if path)
        return cls(device, half_for_float, {node.name: tensor for node, tensor in tensors.items()}, bodies)

    def constants(self, graph: Graph) -> Constants:
        """The known contents of the nodes of a graph."""
        if graph not in self._constants:
            placeholders = [] if graph in self.bodies else graph.find_nodes(op="placeholder")
            named = {node: self.tensors.get(node.name) for node in placeholders}
            self._constants[graph] = Constants({node: tensor for node, tensor in named.items() if tensor is not None})
        return self._constants[graph]

    def __call__(self, node: Node) -> str | None:
        """Checks in order: quantize and dequantize calls go with the calls behind or before them; shapes; dtypes; the
        converter; the TCM."""
        call = quantize_call(node)
        if call is None:
            return self._operator(node)
        reason = self._left.get(node) or _shape_reason(node) or self._converted(node)
        if isinstance(reason, str):
            return reason
        if call.quantizes:
            source = _producer(call.source)
            taken = self._changes_grid(node) or (quantize_call(source) is None and self._operator(source) is None)
            return None if taken else "quantizes what the DSP does not compute"
        if any(self._operator(user) is not None and not self._changes_grid(user) for user in node.users):
            return "is read where the DSP does not compute"
        return None if node.users else "is read by nobody"

    def leave(self, reasons: Mapping[Node, str]) -> None:
        """Give these reasons from now on, and those that follow from them for other nodes."""
        self._left.update(reasons)
        self._known.clear()

    def _changes_grid(self, node: Node) -> bool:
        """Whether `node` quantizes codes that a kernel's dequantize call made floats: they go to another grid."""
        call = quantize_call(node)
        before = None if call is None or not call.quantizes or node in self._left else quantize_call(call.source)
        if call is None or before is None or before.quantizes or quantize_call(before.source) is None:
            return False
        grids = Quantizations(self.constants(node.graph))
        known = [grids.of_call(each) for each in (call, before)]
        return all(
            grid is not None and grid.granularity is Granularity.TENSOR and grid.dtype in CODE_DTYPES for grid in known
        )

    def _operator(self, node: Node) -> str | None:
        """The reason of an operator by itself, with its inputs."""
        if node.op != "call_function" or quantize_call(node) is not None:
            return "is not an operator of the DSP"
        if node not in self._known:
            self._known[node] = self._alone(node) or self._input_reason(node) or self._reader_reason(node)
        return self._known[node]

    def _input_reason(self, node: Node) -> str | None:
        """The reason why an input does not come as the kernel reads it: dequantize calls go to the DSP, and so do
        results on a grid."""
        for source in map(_producer, node.all_input_nodes):
            call = quantize_call(source)
            if call is not None and not call.quantizes and self._read_elsewhere(source):
                return f"its input {source.name} is read where the DSP does not compute"
            if call is None and self.comes_as_codes(source) and self._operator(source) is not None:
                return f"its input {source.name} is not computed by the DSP"
        return None

    def _reader_reason(self, node: Node) -> str | None:
        """The reason why codes with scales by channel that are only moved are left: kernels must read them."""
        if not is_move(node) or (_first_result(node).dtype == torch.float32 and not self.half_for_float):
            return None  # a float32 result is on a grid, or not taken
        grid = _Alone(self.constants(node.graph), self.half_for_float).grid_behind(node)
        if grid is None or grid.granularity is Granularity.TENSOR:
            return None
        elsewhere = any(self._operator(user) is not None for user in node.users)
        return "is a quantized weight that is read where the DSP does not compute" if elsewhere else None

    def comes_as_codes(self, source: Node) -> bool:
        """Whether a float value of the graph is represented by codes on the DSP."""
        is_float = source.op == "call_function" and _first_result(source).dtype == torch.float32
        return is_float and _Alone(self.constants(source.graph), self.half_for_float).grid_behind(source) is not None

    def _read_elsewhere(self, source: Node) -> bool:
        return any(not self._reads_codes(user) for user in source.users)

    def _reads_codes(self, user: Node) -> bool:
        return user.op == "call_function" and (self._changes_grid(user) or self._alone(user) is None)

    def _alone(self, node: Node) -> str | None:
        if node in self._left:
            return self._left[node]
        if converters.TABLE.row(node) is None:
            return f"the DSP has no kernel for {operator_name(node) or node.target}"
        return _shape_reason(node) or self._dtype_reason(node) or self._conversion_reason(node)

    def _dtype_reason(self, node: Node) -> str | None:
        for tensor in tensors_of(node):
            if tensor.dtype == torch.float32 and not self.half_for_float and not self._is_quantized(node):
                return "is float32: the DSP computes in int8, int16 and float16 (or in that, with dtype=float16)"
            if str(numpy_dtype(tensor.dtype)) not in DTYPES:
                return f"is {str(tensor.dtype).removeprefix('torch.')}: the DSP computes in int8, int16 and float16"
        return None

    def _is_quantized(self, node: Node) -> bool:
        """Whether `node` is written on a grid, or reads from one; the converter checks the rest."""
        graph = _Alone(self.constants(node.graph), self.half_for_float)
        return graph.wanted(node) is not None or any(graph.grid_behind(s) is not None for s in node.all_input_nodes)

    def _conversion_reason(self, node: Node) -> str | None:
        converted = self._converted(node)
        if isinstance(converted, str):
            return converted
        graph, result = converted
        if not self.half_for_float and (self._left_in_float(node, result) or not graph.is_written_on_a_grid(node)):
            return "its inputs are quantized and its result is not"
        largest = max(graph.calls, key=smallest_footprint, default=None)
        if largest is not None and smallest_footprint(largest) > self.device.tcm_nbytes:
            return (
                f"one tile of it takes {smallest_footprint(largest)} bytes of TCM, and {self.device.name} has"
                f" {self.device.tcm_nbytes}"
            )
        return None

    def _converted(self, node: Node) -> str | tuple[_Alone, View | Sequence[View | None]]:
        """The conversion of a call by itself; or the reason why it cannot be converted."""
        graph = _Alone(self.constants(node.graph), self.half_for_float)
        try:
            graph.node = node
            return graph, graph.call(node)
        except Unsupported as reason:
            return str(reason)

    def _left_in_float(self, node: Node, result: View | Sequence[View | None]) -> bool:
        """Whether a float32 result would be computed as float16 although nobody asked for it."""
        first = result if isinstance(result, View) else result[0]
        return _first_result(node).dtype == torch.float32 and first is not None and first.grid is None


class _Alone(KernelGraph):
    """Converts one node, whose inputs are values as other calls would leave them."""

    def __init__(self, constants: Constants, half_for_float: bool) -> None:
        super().__init__(half_for_float)
        self.constants = constants

    def value(self, argument: Any) -> View:
        if not isinstance(argument, Node):
            return self.number(argument)
        if argument not in self.values:
            self.values[argument] = self._as_it_comes(argument)
        view: View = self.values[argument]  # type: ignore[assignment]
        return view

    def is_written_on_a_grid(self, node: Node) -> bool:
        """Whether a float32 result is written on a grid."""
        value = node.meta["val"]
        return not isinstance(value, torch.Tensor) or value.dtype != torch.float32 or self.wanted(node) is not None

    def _as_it_comes(self, node: Node) -> View:
        tensor, grid = node.meta["val"], self.grid_behind(node)
        content = self.constants.array(node)
        if content is not None and grid is None:
            return self.constant(node, content)
        weight = self.quantizations.weight(node)
        if weight is not None and weight.packed is None and weight.quantization == grid:
            return self.known(weight.integers).on(grid)
        dtype = tensor.dtype if grid is None else grid.dtype
        name = "float16" if dtype == torch.float32 else str(numpy_dtype(dtype))
        return View.of(Value(name, tuple(tensor.shape), source=0), grid)

    def grid_behind(self, node: Node) -> Any:
        """The grid of the codes that will represent `node`: that of a dequantize call, also if moved; or that on which
        an operator's result is written, behind an activation or moves."""
        node = _producer(node)
        grid = self.quantizations.of(node)
        if grid is None and node.op == "call_function" and quantize_call(node) is None:
            source = node.args[0] if is_move(node) else None
            grid = self.wanted(node) if source is None else self.grid_behind(source)  # type: ignore[arg-type]
        return grid


def _producer(node: Node) -> Node:
    """The call whose result `node` is, or of whose results it is an element."""
    return node.args[0] if node.target is operator.getitem else node  # type: ignore[return-value]


def _shape_reason(node: Node) -> str | None:
    results = node.meta["val"]
    used = [results[i] for i in used_results(node)] if isinstance(results, tuple | list) else [results]
    for tensor in [*tensors_of(node), *used]:
        if not isinstance(tensor, torch.Tensor):
            return "gives what is not a tensor"
        if not all(isinstance(size, int) for size in tensor.shape):
            return "its shape is known only when it runs"
        if tensor.dim() > MOST_DIMS:
            return f"has {tensor.dim()} dims; the DSP has up to {MOST_DIMS}"
        if tensor.numel() == 0:
            return "has no elements"
    return None


def _first_result(node: Node) -> Any:
    value = node.meta["val"]
    return value[0] if isinstance(value, tuple | list) else value
