"""A program's NPU delegates, or one blob -> text: the place of each tensor, and a line for each command.

    python -m delegraph_npu.disassemble m.pte
    python -m delegraph_npu.disassemble m.pte --cost

Nothing is run, and only the fields that a line shows must be sound.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from delegraph.errors import DelegraphError
from delegraph.program import deserialize_program
from delegraph_npu.accesses import operands_of
from delegraph_npu.blob import BACKEND_ID, Blob, IoTensor, NamedWeights, unpack
from delegraph_npu.command_stream import decode_at
from delegraph_npu.commands import (
    IDENTITY_MULTIPLIER,
    IDENTITY_SHIFT,
    Address,
    Block,
    Command,
    Conv,
    Depthwise,
    DmaStart,
    DmaWait,
    Elementwise,
    FeatureMap,
    Geometry,
    Layout,
    MatMul,
    Operand,
    Pool,
    Reduce,
    Requantize,
    Resize,
    Stop,
    Table,
)
from delegraph_npu.cost import Cost, cost_of
from delegraph_npu.device import read_device

__all__ = ["blob_text", "command_text", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m delegraph_npu.disassemble", description=__doc__)
    parser.add_argument("program", type=Path, metavar="m.pte")
    parser.add_argument("--cost", action="store_true", help="show cycles and bytes of each command")
    args = parser.parse_args(argv)
    try:
        program = deserialize_program(args.program.read_bytes())
        for plan in program.execution_plan:
            for index, delegate in enumerate(plan.delegates):
                if delegate.id == BACKEND_ID:
                    print(f"{plan.name}, delegate {index}")
                    print(blob_text(unpack(program.delegate_data[delegate.processed]), cost=args.cost))
    except (DelegraphError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def blob_text(blob: Blob, *, cost: bool = False) -> str:
    """`blob`, a line for each thing in it; with `cost`, cycles and bytes behind each command."""
    device = read_device(blob.device, "the device in a blob of NpuBackend")
    weights = (
        f"{blob.weights.nbytes} bytes, named data {blob.weights.key!r}"
        if isinstance(blob.weights, NamedWeights)
        else f"{memoryview(blob.weights).nbytes} bytes"
    )
    lines = [
        f"  device {device.name}, {blob.rounding} rounding, SRAM {blob.sram_nbytes}, DRAM {blob.dram_nbytes} bytes",
        f"  weights {weights}, tables {memoryview(blob.tables).nbytes} bytes",
        *(
            f"  {name} {_tensor(tensor)}"
            for name, many in (("input", blob.inputs), ("output", blob.outputs))
            for tensor in many
        ),
    ]
    operator = -1
    for word, command in decode_at(blob.stream):
        if not isinstance(command, Stop | DmaWait) and command.operator != operator:
            operator = command.operator
            known = 0 <= operator < len(blob.operators)
            lines.append(f"  {blob.operators[operator] if known else f'operator {operator}'}:")
        behind = f"    ; {_cost(cost_of(command, device))}" if cost and not isinstance(command, Stop | DmaWait) else ""
        lines.append(f"    {word:6}  {command_text(command)}{behind}")
    return "\n".join(lines)


def command_text(command: Command) -> str:
    """A line that says everything about `command`."""
    return _TEXTS[type(command)](command)


# ---- parts -----------------------------------------------------------------------------------------


def _address(place: Address) -> str:
    return f"{place.region.name.lower()}[{place.offset:#x}]"


def _block(block: Block) -> str:
    return f"{block.region.name.lower()}[{block.offset:#x}:{block.offset + block.nbytes:#x}]"


def _map(feature_map: FeatureMap) -> str:
    return _tensor(feature_map) if feature_map.layout is Layout.NHWC else f"{_tensor(feature_map)} bricks"


def _tensor(tensor: FeatureMap | IoTensor) -> str:
    place = _address(Address(tensor.region, tensor.offset))
    return f"{place} {tensor.dtype.name.lower()} {_dims(tensor.shape)} by {_dims(tensor.strides)}"


def _dims(dims: Sequence[int]) -> str:
    return "x".join(map(str, dims))


def _scale(multiplier: int, shift: int) -> str:
    return "" if (multiplier, shift) == (IDENTITY_MULTIPLIER, IDENTITY_SHIFT) else f" * {multiplier} >> {shift}"


def _operand(operand: Operand) -> str:
    zero_point = f" - {operand.zero_point}" if operand.zero_point else ""
    left_shift = f" << {operand.left_shift}" if operand.left_shift else ""
    return f"{_map(operand.feature_map)}{zero_point}{left_shift}{_scale(operand.multiplier, operand.shift)}"


def _geometry(geometry: Geometry) -> str:
    parts = [f"kernel {_dims(geometry.kernel)}"]
    parts += [f"stride {_dims(geometry.stride)}"] if geometry.stride != (1, 1) else []
    parts += [f"dilation {_dims(geometry.dilation)}"] if geometry.dilation != (1, 1) else []
    parts += [f"pads {_dims(geometry.pads)}"] if any(geometry.pads) else []
    parts += [f"upscale {_dims(geometry.upscale)}"] if geometry.upscale != (1, 1) else []
    return ", ".join(parts)


def _stage(stage: Requantize, ofm: FeatureMap) -> str:
    scale = f" scales {_block(stage.scales)}" if stage.scales else _scale(stage.multiplier, stage.shift)
    zero_point = f" + {stage.zero_point}" if stage.zero_point else ""
    table = f" table {_block(stage.table)}" if stage.table else ""
    return f"{scale}{zero_point} in {stage.low}..{stage.high}{table} -> {_map(ofm)}"


def _input(feature_map: FeatureMap, zero_point: int) -> str:
    return _operand(Operand(feature_map, zero_point))


def _cost(cost: Cost) -> str:
    return f"{cost.cycles:.0f} cycles, {cost.macs} MACs, {cost.sram_nbytes} bytes of SRAM, {cost.dram_nbytes} of DRAM"


def _dma(command: DmaStart) -> str:
    source, target = (
        f"{_address(place)} by {_dims(strides)}"
        for place, strides in ((command.source, command.source_strides), (command.target, command.target_strides))
    )
    return f"dma_start {command.channel}: {source} -> {target}, {_dims(command.shape)} bytes"


def _windows(command: Conv | Depthwise) -> str:
    name = "conv" if isinstance(command, Conv) else "depthwise"
    inputs = f"{_input(command.ifm, command.zero_point)}, {_geometry(command.geometry)}"
    return f"{name} {inputs}, weights {_block(command.weights)},{_stage(command.requantize, command.ofm)}"


def _elementwise(command: Elementwise) -> str:
    operands = ", ".join(map(_operand, operands_of(command)))
    return f"{command.kind.name.lower()} {operands},{_stage(command.requantize, command.ofm)}"


def _resize(command: Resize) -> str:
    scales = f"{_dims(command.scale_n)} / {_dims(command.scale_d)} + {_dims(command.offset)}"
    inputs = f"{_input(command.ifm, command.zero_point)}, scale {scales}"
    return f"resize_{command.mode.name.lower()} {inputs},{_stage(command.requantize, command.ofm)}"


_TEXTS: Final[dict[type[Any], Callable[[Any], str]]] = {
    Stop: lambda _: "stop",
    DmaStart: _dma,
    DmaWait: lambda command: f"dma_wait {command.channel}",
    Conv: _windows,
    Depthwise: _windows,
    Pool: lambda command: (
        f"{command.kind.name.lower()}_pool {_input(command.ifm, command.zero_point)}, {_geometry(command.geometry)},"
        f"{_stage(command.requantize, command.ofm)}"
    ),
    MatMul: lambda command: (
        f"matmul {_input(command.ifm, command.zero_point)}, {_input(command.ifm2, command.zero_point2)},"
        f"{_stage(command.requantize, command.ofm)}"
    ),
    Elementwise: _elementwise,
    Table: lambda command: (
        f"table {_map(command.ifm)}, entries {_block(command.table)},{_stage(command.requantize, command.ofm)}"
    ),
    Resize: _resize,
    Reduce: lambda command: (
        f"{command.kind.name.lower()} {_input(command.ifm, command.zero_point)}, axes {command.axes:04b},"
        f"{_stage(command.requantize, command.ofm)}"
    ),
}
"""The function that writes a command of each kind."""


if __name__ == "__main__":
    sys.exit(main())
