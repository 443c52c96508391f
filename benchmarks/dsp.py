"""The simulated DSP: cycles, energy and TCM of models on each preset, and how fast the simulator runs them.

python -m benchmarks.dsp [--roofline PICTURE.svg]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from delegraph.aot import edge_program
from delegraph_dsp.aot.lowering import Compiled, compile_program
from delegraph_dsp.aot.partitioner import dsp_partitioner
from delegraph_dsp.device import Device, device_named
from delegraph_dsp.program import Launch, Region
from delegraph_dsp.runtime.machine import Machine
from delegraph_dsp.runtime.timing import Timing, measure
from delegraph_machines.descriptions import preset_names
from delegraph_machines.roofline import Point, roofline

__all__ = ["main"]


class Transformer(nn.Module):
    """A block: attention over `heads`, and a feed-forward layer of four times the width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.first(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))  # type: ignore[no-any-return]


def models() -> Iterator[tuple[str, nn.Module, tuple[torch.Tensor, ...]]]:
    """Models that the DSP takes whole, in float16."""
    yield "transformer 128", Transformer(128, 4), (torch.randn(1, 64, 128),)
    yield "transformer 384", Transformer(384, 6), (torch.randn(1, 64, 384),)
    mlp = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 256), nn.Softmax(-1))
    yield "mlp 256", mlp, (torch.randn(16, 256),)
    upsample = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Sigmoid())
    yield "upsample 64x64", upsample, (torch.randn(1, 16, 64, 64),)


@dataclass(frozen=True, slots=True)
class Row:
    """A model on a device."""

    model: str
    device: Device
    compiled: Compiled
    timing: Timing
    compile_seconds: float
    run_seconds: float

    @property
    def multiply_adds(self) -> int:
        """Of its matrix products."""
        launches = (c for c in self.compiled.program.commands if isinstance(c, Launch) and c.kernel == "matmul")
        return sum(int(np.prod(c.operands[-1].shape)) * c.operands[0].shape[-1] for c in launches)

    @property
    def dma_nbytes(self) -> int:
        """What goes to and from outer memory."""
        return sum(cost.dma_nbytes for cost in self.timing.costs)

    def cells(self) -> list[str]:
        """As a row of the table."""
        timing, device = self.timing, self.device
        speed = self.multiply_adds / self.run_seconds / 1e6
        return [
            self.model,
            device.name,
            f"{timing.cycles:,.0f}",
            f"{timing.cycles / device.clock_mhz:,.0f}",
            f"{sum(c.bound for c in timing.costs) / max(1, sum(c.packets for c in timing.costs)):.2f}",
            f"{sum(c.stall for c in timing.costs) / timing.cycles:.0%}",
            f"{timing.energy.total / 1e6:,.1f}",
            f"{timing.peak_tcm / 1024:,.0f} of {device.tcm_nbytes // 1024:,}",
            f"{len(self.compiled.placed.spilled)}",
            f"{self.dma_nbytes / 1024:,.0f}",
            f"{self.compile_seconds:.2f}",
            f"{self.run_seconds * 1e3:,.1f}",
            f"{speed:,.0f}" if self.multiply_adds else "",
        ]


HEADER = [
    *("model", "device", "cycles", "us", "bound / packets", "stalled", "uJ", "TCM KiB", "spilled", "DMA KiB"),
    *("compile s", "simulation ms", "MMAC/s"),
]


def measured(name: str, model: nn.Module, inputs: tuple[torch.Tensor, ...], device: Device, runs: int) -> Row:
    """Compile, and run so many times; the fastest counts."""
    halves = tuple(x.half() for x in inputs)
    exported = torch.export.export(model.half().eval(), halves)
    program = edge_program(exported, dsp_partitioner())
    start = time.perf_counter()
    compiled = compile_program(program, device)
    compile_seconds = time.perf_counter() - start
    machine = Machine(compiled.program)
    regions = [_memory(region, compiled, halves) for region in compiled.program.regions]
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        machine.run(regions)
        seconds.append(time.perf_counter() - start)
    return Row(name, device, compiled, measure(compiled.program, device), compile_seconds, min(seconds))


def _memory(region: Region, compiled: Compiled, inputs: tuple[torch.Tensor, ...]) -> np.ndarray:  # type: ignore[type-arg]
    if region.kind == "constants":
        return np.frombuffer(compiled.program.constants, np.uint8)
    if region.kind == "input":
        number = compiled.program.inputs.index(region)
        return inputs[number].contiguous().numpy().reshape(-1).view(np.uint8)
    return np.zeros(region.nbytes, np.uint8)


def main() -> None:
    """Print the table; write the picture of the largest preset where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--roofline", type=Path, help="write a roofline picture of the operators (SVG) there")
    parser.add_argument("--runs", type=int, default=5, help="runs of each model, of which the fastest counts")
    args = parser.parse_args()
    torch.manual_seed(0)
    devices = [device_named(name) for name in preset_names("delegraph_dsp")]
    rows = [measured(*model, device, args.runs) for model in models() for device in devices]
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    for row in rows:
        print(f"| {' | '.join(row.cells())} |")
    if args.roofline:
        args.roofline.write_text(picture(rows, devices[-1]), "utf-8")


def picture(rows: list[Row], device: Device) -> str:
    """Models on one device, under its peak: 64 products of halves every two multiply units, a packet."""
    points = [
        Point(row.model, row.multiply_adds, row.dma_nbytes, row.timing.cycles, row.model)
        for row in rows
        if row.device is device
    ]
    peak = device.vector_nbytes / 2 * device.units["multiply"] / 2
    return roofline(points, peak, device.ddr.bytes_per_cycle, f"float16 models on {device.name}")


if __name__ == "__main__":
    main()
