"""The partitioner that users name "npu": takes the calls that the table of operators computes on integers, with a
reason for every node that it leaves.

For each call, in this order: has the NPU the operator; is everything around it quantized, to integers that the NPU has;
are its sizes fixed and of up to four dims; is it within the operator's own limits; can its sums be rescaled, which is
tried by converting it alone, as the compiler will. Quantize calls in front of a partition and dequantize calls behind
it stay outside: the inputs and outputs are integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from delegraph.aot import condensed_order, graph_modules, lifted_number
from delegraph.aot.authoring import Constants
from delegraph.errors import InvalidArgument, UnsupportedOperator
from delegraph.interfaces import Partitioner, PartitionResult
from delegraph_machines.fixed_point import quantized_multiplier
from delegraph_npu.aot import ir
from delegraph_npu.aot.calls import (
    Grid,
    QuantizedCall,
    call_at,
    dtype_of,
    grid_of,
    head_of,
    is_dequantize,
    is_quantize,
    operator_name,
)
from delegraph_npu.aot.folding import Folding, alone
from delegraph_npu.aot.operators import CONVERTERS, OPERATORS, Annotate, Row, row_of
from delegraph_npu.aot.options import DEFAULT_DEVICE, Options
from delegraph_npu.aot.scheduling import too_large
from delegraph_npu.aot.storage import lay_out
from delegraph_npu.aot.weight_blocks import WeightBlocks
from delegraph_npu.aot.work import Work, work_of
from delegraph_npu.blob import BACKEND_ID
from delegraph_npu.device import Device, device_text, read_device
from delegraph_partitioners import CapabilityBasedPartitioner

__all__ = ["NpuPartitioner", "npu_partitioner", "reason_to_leave"]

FUSED_TABLE: Final = 256
"""Bytes of the int8 table of a function."""

KEPT_WHOLE: Final = list(dict.fromkeys(overload for row in OPERATORS.values() for overload in row.keep))
"""Operators that edge lowering is asked not to decompose."""


def npu_partitioner(
    *,
    device: str = DEFAULT_DEVICE,
    optimize: str = "performance",
    rounding: str = "single",
    compress_weights: bool = True,
    take_all: bool = False,
    other_devices: str = "",
) -> Partitioner:
    """A partitioner for `NpuBackend`. `device` is a preset, or the path of a description, which ends in `.toml`;
    `other_devices` are further ones, with spaces between: delegates have a blob for each, and the first is run that is
    for the device that is there. `Options` explains the others.

    Partitions that do not pay, by their estimated cycles on the NPU and on a host beside it, are left, unless
    `take_all`.

    Raises `InvalidArgument` for an unknown value of an option, and for a device that cannot be read.
    """
    (text, where), *others = [device_text(name) for name in (device, *other_devices.split())]
    options = Options(text, optimize, rounding, compress_weights, tuple(text for text, _ in others))
    devices = [read_device(*described) for described in ((text, where), *others)]
    if len({described.name for described in devices}) < len(devices):
        raise InvalidArgument(f"npu: two of the devices {device} and {other_devices} have one name")
    return NpuPartitioner(options, devices, take_all)


class NpuPartitioner(CapabilityBasedPartitioner):
    """Takes whole calls, from dequantize to quantize; see `npu_partitioner`."""

    def __init__(self, options: Options, devices: Sequence[Device], take_all: bool = False) -> None:
        super().__init__(BACKEND_ID, self._why_left, options.specs(), keep_whole=KEPT_WHOLE, allow_trivial=True)
        self.device, *self._other_devices = devices
        self.take_all = take_all
        self._torn: dict[Node, str] = {}
        self._bodies: frozenset[Graph] = frozenset()
        self._constant: frozenset[Node] = frozenset()
        self._foldings: dict[Graph, Folding] = {}
        self._alone: dict[Node, Sequence[ir.Operator] | str] = {}

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag the partitions; see `CapabilityBasedPartitioner`."""
        self._bodies = frozenset(part.graph for path, part in graph_modules(exported_program.graph_module) if path)
        self._constant = _constant_calls(exported_program)
        self._foldings = {
            exported_program.graph: Folding(exported_program),
            **{graph: Folding() for graph in self._bodies},
        }
        self._alone.clear()
        result = super().partition(exported_program)
        self._foldings.clear()
        self._alone.clear()
        return result

    def _why_left(self, node: Node) -> str | None:
        head = head_of(node)
        if head in self._constant and not is_dequantize(head):
            return "reads nothing of the run: what it gives is there ahead of time"
        reason = reason_to_leave(node) or self._torn.get(head)
        reason = reason or (_why_left_in_a_body(head) if head.graph in self._bodies else None)
        if reason is not None or is_dequantize(head) or head.graph not in self._foldings:
            return reason
        operators = self._operators(head)
        return operators if isinstance(operators, str) else None

    def _operators(self, head: Node) -> Sequence[ir.Operator] | str:
        """The operators of a call, converted once, or the reason why its sums cannot be rescaled, or do not fit
        there."""
        if head not in self._alone:
            operators = _converted_alone(head, self._foldings[head.graph])
            devices = () if isinstance(operators, str) else (self.device, *self._other_devices)
            reason = next(filter(None, (_too_large(operators, device) for device in devices)), None)  # type: ignore[arg-type]
            self._alone[head] = operators if reason is None else reason
        return self._alone[head]

    def work(self, group: Sequence[Node]) -> Work:
        """The work of taken calls of the partitioned program, in graph order."""
        heads = [node for node in group if head_of(node) is node and not is_dequantize(node)]
        return work_of([operator for head in heads for operator in self._taken(head)], self.device)

    def _taken(self, head: Node) -> Sequence[ir.Operator]:
        operators = self._operators(head)
        assert not isinstance(operators, str)
        return operators

    def units(self, graph: Graph) -> Sequence[Sequence[Node]]:
        """The quantized calls that are taken, and every other node by itself."""
        owner = {node: head_of(node) for node in graph.nodes if node.op == "call_function" and not self._why_left(node)}
        return [nodes for _, nodes in condensed_order(graph, lambda node: owner.get(node, node))]

    def groups(self, graph: Graph) -> tuple[list[list[Node]], dict[Node, str]]:
        """The partitions that pay, and that no float enters or leaves."""
        self._torn.clear()
        while True:
            groups, reasons = super().groups(graph)
            torn = _torn_calls(groups)
            if not torn:
                break
            self._torn.update(torn)
        if self.take_all:
            return groups, reasons
        paying = []
        for group in groups:
            work = self.work(group)
            if work.npu < work.host:
                paying.append(group)
            else:
                taken = f"{work.npu:.0f} cycles on the NPU, and {work.host:.0f} on the host"
                reasons.update(dict.fromkeys(group, f"its partition would take about {taken}"))
        return paying, reasons


def _constant_calls(program: ExportedProgram) -> frozenset[Node]:
    """The calls that depend on the program's constants alone."""
    constant = set(Constants.of(program).tensors)
    for node in program.graph.nodes:
        if node.op == "call_function" and node.all_input_nodes and constant.issuperset(node.all_input_nodes):
            constant.add(node)
    return frozenset(constant)


def _converted_alone(head: Node, folding: Folding) -> Sequence[ir.Operator] | str:
    """The operators of a call, or the reason why the NPU cannot rescale its sums."""
    call = call_at(head)
    assert not isinstance(call, str)
    try:
        operators = alone(folding, call, CONVERTERS)
        for operator in operators:
            quantized_multiplier(operator.rescaling)
    except UnsupportedOperator as error:
        return str(error)
    except ValueError as error:
        return f"its scales are too far apart: {error}"
    return operators


def _too_large(operators: Sequence[ir.Operator], device: Device) -> str | None:
    """The reason why the operators of a call do not fit into SRAM, with the table of a function that may be fused.
    Weights count without compression, their largest size."""
    tensors = {tensor for operator in operators for tensor in (*operator.inputs, operator.output)}
    weights = sum(operator.weight.nbytes for operator in operators if isinstance(operator, ir.Convolution))
    if 2 * (sum(tensor.nbytes for tensor in tensors) + weights) < device.sram_nbytes:
        return None
    layout = lay_out(ir.Graph((), tuple(operators), ()))
    return too_large(layout, device, WeightBlocks(device.array.columns, compressed=False), FUSED_TABLE)


def _why_left_in_a_body(head: Node) -> str | None:
    """The reason why a call in a body of control flow is left: its constants are arguments there."""
    row = row_of(head)
    if row is not None and row.annotate is Annotate.LAYER:
        return "its weight is given to a body of control flow: the NPU's are compressed ahead of time"
    if any(lifted_number(operand) is not None for operand in head.all_input_nodes):
        return "its number is a tensor of floats in a body of control flow: the NPU is given integers"
    return None


def _torn_calls(groups: Sequence[Sequence[Node]]) -> dict[Node, str]:
    """Calls that share a dequantized operand with a call outside their partition: the float cannot cross its border."""
    torn: dict[Node, str] = {}
    for group in groups:
        inside = set(group)
        for shared in (node for node in group if is_dequantize(node)):
            outside = [user for user in shared.users if user not in inside]
            for head in {head_of(user) for user in shared.users} if outside else ():
                torn[head] = (
                    f"its operand {shared.name} is dequantized for {outside[0].name} too, not on the NPU with it"
                )
            if outside:
                torn[shared] = f"is dequantized for {outside[0].name} too, which is not on the NPU with the others"
    return torn


# ---- one node -------------------------------------------------------------------------------------------------------


def reason_to_leave(node: Node) -> str | None:
    """None if the NPU computes the call to which `node` belongs, else the reason."""
    head = head_of(node)
    if is_dequantize(head):
        readers = [user for user in head.users if user.op == "call_function"]
        reasons = [reason for user in readers if (reason := reason_to_leave(user)) is not None]
        if readers and not reasons:
            return None
        return "dequantizes what leaves the NPU's integers: stays behind them"
    row = row_of(head)
    if row is None:
        return _of(node, head, f"the NPU has no {operator_name(head) or head.target}")
    call = call_at(head)
    if isinstance(call, str):
        if is_quantize(head):
            return "quantizes what is float: stays in front of the NPU"
        return _of(node, head, call)
    if node not in call.nodes:
        return f"{head.name} is computed without it"
    reason = next((answer for check in CHECKS if (answer := check(row, call)) is not None), None)
    return None if reason is None else _of(node, head, reason)


def _shared(row: Row, call: QuantizedCall) -> str | None:
    """Floats that others read too can be on the NPU only if these others are."""
    for value in call.dequantizes:
        for user in value.users:
            head = head_of(user)
            if head is not call.head and (row_of(head) is None or isinstance(call_at(head), str)):
                return f"its operand {value.name} is dequantized for {head.name} too, which is left"
    return None


def _of(node: Node, head: Node, reason: str) -> str:
    return reason if node is head else f"goes with {head.name}, which is left: {reason}"


def _integers(row: Row, call: QuantizedCall) -> str | None:
    """The NPU's integers: int8, or, where an operator has it, int16 about zero."""
    values = call.dequantizes[:1] if row.annotate is Annotate.LAYER else call.dequantizes
    grids = [grid_of(value) for value in values]
    if any(grid is None for grid in grids):
        return "an operand has a scale for each channel, or one that is not known ahead of time"
    for grid in (*(grid for grid in grids if grid is not None), call.out):
        reason = _unfit(row, grid)
        if reason is not None:
            return reason
    dtypes = {dtype_of(value.args[0]) for value in values} | {call.out.dtype}  # type: ignore[arg-type]
    if len(dtypes) > 1 and not is_quantize(call.head):
        return f"integers of {' and '.join(sorted(map(str, dtypes)))}: the NPU's operators have one width"
    return None


def _unfit(row: Row, grid: Grid) -> str | None:
    if grid.dtype not in row.dtypes:
        why = "" if row.narrow is None else f"; {row.narrow}"
        return f"integers of {grid.dtype}: here the NPU has {' and '.join(sorted(map(str, row.dtypes)))}{why}"
    if grid.dtype == torch.int16 and grid.zero_point != 0:
        return f"int16 with zero point {grid.zero_point}: the NPU's are about zero"
    if not grid.scale > 0:
        return f"a scale of {grid.scale}"
    return None


def _own_limits(row: Row, call: QuantizedCall) -> str | None:
    return row.reason(call.head)


CHECKS: Final[tuple[Callable[[Row, QuantizedCall], str | None], ...]] = (_integers, _own_limits, _shared)
"""The checks in their order; the first reason is reported."""
