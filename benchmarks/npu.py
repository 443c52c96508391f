"""`python -m benchmarks.npu [--networks DS-CNN,…] [--svg DIRECTORY]`: the simulated NPU's speed, and its estimates.

Layers of MobileNetV2, ResNet-18 and a keyword-spotting net, each compiled alone and summed. Cycles, energy and SRAM
over the presets, with a roofline for each network; and, where the oracles are (`make test-oracles` installs them; run
with `PYTHONPATH=build/oracles`), compile time and SRAM against Vela, and simulation speed against the TOSA reference
model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec
from operator import add
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np
from backends.npu.tests.layers import compiled
from backends.npu.tests.networks import NETWORKS, Layer
from rich.console import Console
from rich.table import Column, Table

from delegraph.interfaces import BackendInitContext
from delegraph_machines.descriptions import preset_names
from delegraph_machines.roofline import Point, roofline
from delegraph_npu.blob import Blob, pack
from delegraph_npu.command_stream import decode
from delegraph_npu.commands import Region
from delegraph_npu.cost import Cost, schedule
from delegraph_npu.device import Device, device_text, read_device
from delegraph_npu.runtime.backend import NpuBackend

DEVICES: Final = {name: read_device(*device_text(name)) for name in preset_names("delegraph_npu")}
ORACLES: Final = find_spec("tosa_reference_model") is not None
VELA_DEVICE: Final = "ethos-u55-128"


@dataclass(frozen=True)
class Measured:
    """A layer on a device: its blob, when it ends, what it costs, how long it took to compile."""

    blob: Blob
    cycles: float
    cost: Cost
    seconds: float


def measure(layer: Layer, device: str) -> Measured:
    """Compile `layer` for the preset `device`; its seconds are those of lowering, export included."""
    start = time.perf_counter()
    blob = compiled(layer, device)
    seconds = time.perf_counter() - start
    segments = schedule(decode(blob.stream), DEVICES[device])
    return Measured(blob, segments[-1].end, reduce(add, (segment.cost for segment in segments)), seconds)


def estimates(network: str, svg: Path | None) -> Table:
    """Cycles, energy and SRAM of a network on every preset; its rooflines go into the folder `svg`."""
    layers = NETWORKS[network]
    columns = ("kcycles", "ms", "MACs a cycle", "µJ", "SRAM KiB", "off-chip KB")
    table = Table(Column("device", no_wrap=True), *columns, title=network)
    for name, device in DEVICES.items():
        found = {layer: measure(layer, name) for layer in dict.fromkeys(layers)}
        cycles = sum(found[layer].cycles for layer in layers)
        macs = sum(found[layer].cost.macs for layer in layers)
        table.add_row(
            name,
            f"{cycles / 1e3:.1f}",
            f"{cycles / device.clock_mhz / 1e3:.2f}",
            f"{macs / cycles:.0f} of {device.macs_per_cycle}",
            f"{sum(found[layer].cost.energy.total for layer in layers) / 1e6:.1f}",
            f"{max(one.blob.sram_nbytes for one in found.values()) / 1024:.0f}",
            f"{sum(found[layer].cost.dram_nbytes for layer in layers) / 1e3:.0f}",
        )
        if svg is not None:
            (svg / f"{network}-{name}.svg").write_text(_roofline(network, name, device, found), "utf-8")
    return table


def _roofline(network: str, name: str, device: Device, found: dict[Layer, Measured]) -> str:
    points = [
        Point(f"{layer.kind} {layer.height}x{layer.width}x{layer.in_channels} to {layer.channels}", one.cost.macs,
              one.cost.dram_nbytes, one.cycles, layer.kind)
        for layer, one in found.items()
    ]  # fmt: skip
    bandwidth = device.memory(Region.WEIGHTS).memory().bytes_per_cycle
    return roofline(points, device.macs_per_cycle, bandwidth, f"{network} on {name}")


def against_vela(network: str) -> Table:
    """Compile time, SRAM and cycles of a network's layers beside Vela's, each compiled alone."""
    from backends.npu.tests.oracles.vela import estimates

    table = Table("", "here", "Vela", title=f"{network} on {VELA_DEVICE}: {len(set(NETWORKS[network]))} layers")
    layers = list(dict.fromkeys(NETWORKS[network]))
    ours, theirs = [measure(layer, VELA_DEVICE) for layer in layers], estimates(layers, VELA_DEVICE)
    rows: dict[str, tuple[float, float]] = {
        "compile time, s (ours with torch.export)": (sum(a.seconds for a in ours), sum(b.seconds for b in theirs)),
        "SRAM peak, KiB": (
            max(a.blob.sram_nbytes for a in ours) / 1024, max(b.sram_nbytes for b in theirs) / 1024,
        ),
        "SRAM of all layers, KiB": (
            sum(a.blob.sram_nbytes for a in ours) / 1024, sum(b.sram_nbytes for b in theirs) / 1024,
        ),
        "Mcycles": (sum(a.cycles for a in ours) / 1e6, sum(b.total for b in theirs) / 1e6),
    }  # fmt: skip
    for name, (here, there) in rows.items():
        table.add_row(name, f"{here:.2f}", f"{there:.2f}")
    return table


# ---- simulation speed ------------------------------------------------------------------------------

SPEED: Final = (
    Layer("conv", 56, 56, 64, 64, (3, 3)),
    Layer("conv", 14, 14, 256, 256, (3, 3)),
    Layer("conv", 28, 28, 128, 128),
    Layer("conv", 7, 7, 960, 320),
    Layer("depthwise", 28, 28, 128, 128, (3, 3)),
    Layer("linear", 1, 1, 1280, 1000),
)


def speed() -> Table:
    """MMAC/s of single layers here and in the TOSA reference model, whose answers are compared."""
    table = Table("layer", "here, MMAC/s", "TOSA reference model", title="simulation speed")
    for layer in SPEED:
        here = _seconds(_run(compiled(layer, VELA_DEVICE)))
        there = _tosa_seconds(layer) if ORACLES else None
        table.add_row(
            f"{layer.kind} {layer.height}x{layer.width}x{layer.in_channels} to {layer.channels}, {layer.kernel}",
            f"{layer.macs / here / 1e6:.0f}",
            "" if there is None else f"{layer.macs / there / 1e6:.0f}",
        )
    return table


def _run(blob: Blob) -> Callable[[], None]:
    """A run of `blob` on any input."""
    backend, rng = NpuBackend(), np.random.default_rng(0)
    handle = backend.init(BackendInitContext("forward"), pack(blob), ())
    arrays = [rng.integers(-128, 128, one.shape).astype(one.dtype) for one in handle.machine.inputs]
    arrays += [np.zeros(one.shape, one.dtype) for one in handle.machine.outputs]
    context = cast(Any, SimpleNamespace(event_tracer=None))
    return lambda: backend.execute(context, handle, arrays)


def _tosa_seconds(layer: Layer) -> float:
    from backends.npu.tests.cases import Case
    from backends.npu.tests.harness import Builder, random_values
    from backends.npu.tests.oracles.tosa import prepared
    from backends.npu.tests.oracles.vela import weights_of

    from delegraph_npu.commands import Conv, Depthwise, Geometry, Requantize

    builder = Builder()
    ifm = builder.map((1, layer.height, layer.width, layer.in_channels))
    ofm = builder.map((1, *layer.output, layer.channels))
    top, left = ((size - 1) // 2 for size in layer.kernel)
    scales = builder.scales(np.zeros(layer.channels), 1 << 30, 40)
    weights = weights_of(layer)
    kind = Depthwise if layer.kind == "depthwise" else Conv
    geometry = Geometry(layer.kernel, (layer.stride, layer.stride), pads=(top, left, top, left))
    command = kind(ifm, 0, ofm, geometry, builder.weight(weights), Requantize(scales=scales))
    values = random_values(np.random.default_rng(0), ifm)
    return _seconds(prepared(Case("speed", builder, command, [values], weights)))


def _seconds(run: Callable[[], Any], rounds: int = 5) -> float:
    """The best of some rounds; the first warms up."""
    run()
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS), help="comma-separated")
    parser.add_argument("--svg", type=Path, help="a folder for the rooflines")
    args = parser.parse_args()
    if args.svg is not None:
        args.svg.mkdir(parents=True, exist_ok=True)
    console = Console()
    console.print(speed())
    for network in filter(None, args.networks.split(",")):
        if ORACLES:
            console.print(against_vela(network))
        console.print(estimates(network, args.svg))


if __name__ == "__main__":
    main()
