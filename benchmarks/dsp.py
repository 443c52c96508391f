"""The simulated DSP: cycles, energy and TCM of models on each preset, and how fast the simulator runs them.

python -m benchmarks.dsp [--roofline PICTURE.svg] [--into PAGE]

Where the oracles are (`make test-oracles` installs them; run with `PYTHONPATH=build/oracles`), products are timed
against the TOSA reference model too, round by round in turn, of which medians count.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from benchmarks.in_turn import in_turn
from benchmarks.pages import check_marks, markdown, put
from delegraph.aot import edge_program
from delegraph_dsp.aot.lowering import Compiled, compile_program
from delegraph_dsp.aot.partitioner import dsp_partitioner
from delegraph_dsp.device import Device, device_named
from delegraph_dsp.program import Launch, Region
from delegraph_dsp.runtime.kernels import TABLE
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
            f"{self.model}, {device.name}",
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
    *("model, device", "cycles", "us", "bound / packets", "stalled", "uJ", "TCM KiB", "spilled", "DMA KiB"),
    *("compile s", "simulation ms", "MMAC/s"),
]


def measured(name: str, model: nn.Module, inputs: tuple[torch.Tensor, ...], device: Device, runs: int) -> Row:
    """Compile, and run so many times; the median counts."""
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
    return Row(name, device, compiled, measure(compiled.program, device), compile_seconds, median(seconds))


def _memory(region: Region, compiled: Compiled, inputs: tuple[torch.Tensor, ...]) -> np.ndarray:  # type: ignore[type-arg]
    if region.kind == "constants":
        return np.frombuffer(compiled.program.constants, np.uint8)
    if region.kind == "input":
        number = compiled.program.inputs.index(region)
        return inputs[number].contiguous().numpy().reshape(-1).view(np.uint8)
    return np.zeros(region.nbytes, np.uint8)


# ---- products against the TOSA reference model ---------------------------------------------------------------------

ORACLES: Final = find_spec("tosa_reference_model") is not None

PRODUCTS: Final = (
    *((1, 64, 128, 384), (4, 64, 32, 64), (4, 64, 64, 32), (1, 64, 128, 512), (1, 64, 512, 128)),
    *((1, 64, 384, 1152), (1, 64, 384, 1536), (1, 64, 1536, 384), (1, 16, 256, 1024), (1, 16, 1024, 256)),
    *((1, 197, 192, 576), (1, 1, 384, 1536), (1, 1, 64, 64)),
)
"""Batch, M, K, N: those of the models above, of a ViT-Ti, and of a single row."""


def products() -> str:
    """MMAC/s of the kernels of products here and of the operator of the reference model, the lost rows first."""
    rows = []
    for size in PRODUCTS:
        for dtype in ("float16", "int8"):
            here, there = in_turn(*_product(dtype, *size))
            macs = np.prod(size) / 1e6
            shape = "{} x {}x{} by {}x{}".format(size[0], *size[1:3], *size[2:])
            rows.append((there / here, [f"{shape}, {dtype}", f"{macs / here:,.0f}", f"{macs / there:,.0f}"]))
    rows.sort(key=lambda row: row[0])
    head = ["products, MMAC/s", "here", "TOSA reference model", ""]
    return markdown(head, [[*cells, f"{ratio:.2f}x"] for ratio, cells in rows])


def _product(dtype: str, batch: int, m: int, k: int, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The kernel, and the reference model's graph of the same: sums in float32, rounded to float16."""
    from backends.dsp.tests.oracles.test_tosa import Model
    from tosa.DType import DType
    from tosa.Op import Op

    rng, shapes, model = np.random.default_rng(0), ((batch, m, k), (batch, k, n)), Model()
    out = np.zeros((batch, m, n), dtype)
    if dtype == "float16":
        a, b = (rng.standard_normal(shape).astype(np.float16) for shape in shapes)
        zeros = [model.const([0], DType.FP16) for _ in range(2)]
        operands = [model.input(a), model.input(b), *zeros]
        sums = model.op(Op.MATMUL, operands, out.shape, DType.FP32, "MatMulAttribute")
        result = model.op(Op.CAST, [sums], out.shape, DType.FP16, "CastAttribute")
        arrays = [a, b, np.zeros(1, np.float16), out]
        return lambda: TABLE["matmul"].function(arrays, [], []), model.prepared(result)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes)
    zeros = [model.const([zero], DType.INT8) for zero in (5, 0)]
    multiplier, shift = np.full(n, 1 << 30, np.int32), np.full(n, 40, np.int32)
    total = model.op(Op.MATMUL, [model.input(a), model.input(b), *zeros], out.shape, DType.INT32, "MatMulAttribute")
    result = model.rescale(total, multiplier, shift, 0, -3, DType.INT8)
    arrays = [a, b, np.zeros(n, np.int32), multiplier, shift, out]
    return lambda: TABLE["matmul_int"].function(arrays, [5, 0, -3, -128, 127], []), model.prepared(result)


# ---- all of it -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Print the tables, or put them into a page; write the picture of the largest preset where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--roofline", type=Path, help="write a roofline picture of the operators (SVG) there")
    parser.add_argument("--runs", type=int, default=5, help="runs of each model, of which the median counts")
    parser.add_argument("--into", type=Path, help="a page that gets each table between its marks")
    args = parser.parse_args()
    check_marks(args.into, "dsp-models", *(["dsp-speed"] if ORACLES else []))
    torch.manual_seed(0)
    devices = [device_named(name) for name in preset_names("delegraph_dsp")]
    rows = [measured(*model, device, args.runs) for model in models() for device in devices]
    tables = {"dsp-models": markdown(HEADER, [row.cells() for row in rows])}
    if ORACLES:
        tables["dsp-speed"] = products()
    for name, text in tables.items():
        if args.into is None:
            print(f"{text}\n")
        else:
            put(args.into, name, text)
    if args.into is not None:
        (args.into.parent / "pictures" / "roofline-dsp.svg").write_text(picture(rows, devices[-1]), "utf-8")
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
