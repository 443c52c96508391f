"""`python -m benchmarks.npu [--networks DS-CNN,…] [--svg DIRECTORY] [--into PAGE]`: the simulated NPU, measured.

Layers of MobileNetV2, ResNet-18 and a keyword-spotting net, each compiled alone and summed. Cycles, energy and SRAM
over the presets, with a roofline for each network; and, where the oracles are (`make test-oracles` installs them; run
with `PYTHONPATH=build/oracles`), compile time and SRAM against Vela, and simulation speed against the TOSA reference
model, round by round in turn, of which medians count. Where rows are lost, they are said first.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from importlib.util import find_spec
from math import exp, log
from operator import add
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np
from backends.npu.tests.layers import exported
from backends.npu.tests.networks import NETWORKS, Layer
from torch.export import ExportedProgram

from benchmarks.in_turn import in_turn
from benchmarks.pages import check_marks, markdown, put
from delegraph.aot import edge_program
from delegraph.interfaces import BackendInitContext
from delegraph_machines.descriptions import preset_names
from delegraph_machines.roofline import Point, roofline
from delegraph_npu.aot.options import Options
from delegraph_npu.aot.partitioner import npu_partitioner
from delegraph_npu.aot.preprocess import NpuLowering
from delegraph_npu.blob import Blob, pack, unpack
from delegraph_npu.command_stream import decode
from delegraph_npu.commands import Region
from delegraph_npu.cost import Cost, schedule
from delegraph_npu.device import device_text, read_device
from delegraph_npu.runtime.backend import NpuBackend

DEVICES: Final = {name: read_device(*device_text(name)) for name in preset_names("delegraph_npu")}
ORACLES: Final = find_spec("tosa_reference_model") is not None
VELA_DEVICE: Final = "ethos-u55-128"


# ---- compiling -------------------------------------------------------------------------------------


@cache
def edge(layer: Layer) -> ExportedProgram:
    """The layer as the partitioner sees it, all of which is one partition."""
    return edge_program(exported(layer), npu_partitioner(take_all=True))


@dataclass(frozen=True)
class Measured:
    """A layer on a device: its blob, when it ends, what it costs, how long the passes of the backend took."""

    blob: Blob
    cycles: float
    cost: Cost
    seconds: float


@cache
def measure(layer: Layer, device: str) -> Measured:
    """Compile `layer` for the preset `device`, from its edge program on."""
    program = edge(layer)
    start = time.perf_counter()
    result = NpuLowering.preprocess(program, Options(device_text(device)[0]).specs())
    seconds = time.perf_counter() - start
    blob = unpack(result.processed_bytes)
    segments = schedule(decode(blob.stream), DEVICES[device])
    return Measured(blob, segments[-1].end, reduce(add, (segment.cost for segment in segments)), seconds)


def distinct(network: str) -> list[Layer]:
    """Its layers, each once."""
    return list(dict.fromkeys(NETWORKS[network]))


def named(layer: Layer) -> str:
    """As a row's name."""
    strided = f", stride {layer.stride}" if layer.stride > 1 else ""
    shape = f"{layer.height}x{layer.width}x{layer.in_channels}"
    kernel = "" if layer.kernel == (1, 1) else f" {layer.kernel[0]}x{layer.kernel[1]}"
    return f"{layer.kind}{kernel}, {shape} to {layer.channels}{strided}"


# ---- cycles and energy -----------------------------------------------------------------------------


def estimates(networks: Sequence[str]) -> str:
    """Cycles, energy and SRAM of the networks on every preset."""
    head = ["", "kcycles", "ms", "MACs a cycle", "of", "µJ", "SRAM KiB", "off-chip KB"]
    rows = [_estimate(network, name) for network in networks for name in DEVICES]
    return markdown(head, rows)


def _estimate(network: str, name: str) -> list[str]:
    layers, device = NETWORKS[network], DEVICES[name]
    found = [measure(layer, name) for layer in layers]
    cycles, macs = sum(one.cycles for one in found), sum(one.cost.macs for one in found)
    return [
        f"{network}, {name}",
        f"{cycles / 1e3:,.1f}",
        f"{cycles / device.clock_mhz / 1e3:.2f}",
        f"{macs / cycles:.0f}",
        f"{device.macs_per_cycle}",
        f"{sum(one.cost.energy.total for one in found) / 1e6:,.1f}",
        f"{max(one.blob.sram_nbytes for one in found) / 1024:,.0f}",
        f"{sum(one.cost.dram_nbytes for one in found) / 1e3:,.0f}",
    ]


def picture(network: str, name: str) -> str:
    """The roofline of a network's layers on a preset."""
    device, found = DEVICES[name], {layer: measure(layer, name) for layer in distinct(network)}
    points = [
        Point(named(layer), one.cost.macs, one.cost.dram_nbytes, one.cycles, layer.kind) for layer, one in found.items()
    ]
    bandwidth = device.memory(Region.WEIGHTS).memory().bytes_per_cycle
    return roofline(points, device.macs_per_cycle, bandwidth, f"{network} on {name}")


# ---- Vela ------------------------------------------------------------------------------------------


def against_vela(networks: Sequence[str]) -> str:
    """Compile time, SRAM and cycles of the networks' layers beside Vela's, each compiled alone."""
    head = ["", "layers", "ms a layer", "Vela", "SRAM peak, KiB", "Vela", "of all layers", "Vela", "Mcycles", "Vela"]
    return markdown(head, map(_against_vela, networks))


def _against_vela(network: str) -> list[str]:
    from backends.npu.tests.oracles.vela import estimates as vela_estimates

    layers = distinct(network)
    measure.cache_clear()  # the first layer pays for what is loaded once; Vela's does not
    measure(layers[0], VELA_DEVICE)
    measure.cache_clear()
    ours, theirs = [measure(layer, VELA_DEVICE) for layer in layers], vela_estimates(layers, VELA_DEVICE)
    sram, vela_sram = [one.blob.sram_nbytes / 1024 for one in ours], [one.sram_nbytes / 1024 for one in theirs]
    return [
        network,
        f"{len(layers)}",
        f"{median(one.seconds for one in ours) * 1e3:.1f}",
        f"{median(one.seconds for one in theirs) * 1e3:.1f}",
        f"{max(sram):,.0f}",
        f"{max(vela_sram):,.0f}",
        f"{sum(sram):,.0f}",
        f"{sum(vela_sram):,.0f}",
        f"{sum(one.cycles for one in ours) / 1e6:.2f}",
        f"{sum(one.total for one in theirs) / 1e6:.2f}",
    ]


# ---- simulation speed ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Speed:
    """Seconds of a layer here and in the TOSA reference model, medians of rounds in turn."""

    layer: Layer
    here: float
    there: float

    @property
    def ratio(self) -> float:
        """How much faster it is here."""
        return self.there / self.here

    def cells(self) -> list[str]:
        """As a row; a layer without products adds, which is counted instead."""
        height, width = self.layer.output
        adds = height * width * self.layer.channels * self.layer.kernel[0] * self.layer.kernel[1]
        work = self.layer.macs or adds
        speeds = (f"{work / seconds / 1e6:,.0f}" for seconds in (self.here, self.there))
        return [named(self.layer), *speeds, f"{self.ratio:.2f}x"]


LISTED: Final = 12  # rows of the slowest, beside all that are lost


def speed(networks: Sequence[str]) -> str:
    """Whole networks, then rows, those that are lost and the slowest first."""
    measured = {
        layer: _speed(layer) for layer in dict.fromkeys(layer for network in networks for layer in distinct(network))
    }
    totals = [_total(network, [measured[layer] for layer in distinct(network)]) for network in networks]
    rows = sorted(measured.values(), key=lambda one: one.ratio)
    shown = rows[: max(LISTED, sum(one.ratio < 1 for one in rows))]
    head = ["", "layers", "lost", "slowest", "geometric mean", "here", "TOSA reference model"]
    return f"{markdown(head, totals)}\n\n" + markdown(
        ["the slowest, MMAC/s", "here", "TOSA reference model", ""], [one.cells() for one in shown]
    )


def _total(network: str, rows: Sequence[Speed]) -> list[str]:
    macs = sum(one.layer.macs for one in rows)
    return [
        network,
        f"{len(rows)}",
        f"{sum(one.ratio < 1 for one in rows)}",
        f"{min(one.ratio for one in rows):.2f}x",
        f"{exp(sum(log(one.ratio) for one in rows) / len(rows)):.1f}x",
        *(f"{macs / seconds / 1e6:,.0f} MMAC/s" for seconds in (sum(r.here for r in rows), sum(r.there for r in rows))),
    ]


def _speed(layer: Layer) -> Speed:
    ours, theirs = in_turn(_run(measure(layer, VELA_DEVICE).blob), _tosa_run(layer))
    return Speed(layer, ours, theirs)


def _run(blob: Blob) -> Callable[[], None]:
    """A run of `blob` on any input."""
    backend, rng = NpuBackend(), np.random.default_rng(0)
    handle = backend.init(BackendInitContext("forward"), pack(blob), ())
    arrays = [rng.integers(-128, 128, one.shape).astype(one.dtype) for one in handle.machine.inputs]
    arrays += [np.zeros(one.shape, one.dtype) for one in handle.machine.outputs]
    context = cast(Any, SimpleNamespace(event_tracer=None))
    return lambda: backend.execute(context, handle, arrays)


def _tosa_run(layer: Layer) -> Callable[[], Any]:
    """A run of the same layer in the TOSA reference model."""
    from backends.npu.tests.cases import Case
    from backends.npu.tests.harness import Builder, random_values
    from backends.npu.tests.oracles.tosa import prepared
    from backends.npu.tests.oracles.vela import weights_of

    from delegraph_npu import commands as c

    if layer.kernel == (1, 1) and layer.stride > 1:  # TOSA takes no input that it does not look at
        layer = replace(layer, height=layer.height - layer.stride + 1, width=layer.width - layer.stride + 1)
    builder = Builder()
    shape = (1, layer.height, layer.width, layer.in_channels)
    ifm, ofm = builder.map(shape), builder.map((1, *layer.output, layer.channels))
    values, weights, command = [random_values(np.random.default_rng(0), ifm)], None, cast(Any, None)
    match layer.kind:
        case "add":
            sides = [c.Operand(one, 3, 20, 1 << 30, 31) for one in (ifm, builder.map(shape))]
            stage = c.Requantize(multiplier=1 << 30, shift=50)
            values, command = values * 2, c.Elementwise(c.ElementwiseKind.ADD, *sides, ofm, stage)
        case "average":
            command = c.Pool(c.PoolKind.AVERAGE, ifm, 0, ofm, c.Geometry(layer.kernel), c.Requantize())
        case _:
            weights = weights_of(layer)
            stage = c.Requantize(scales=builder.scales(np.zeros(layer.channels), 1 << 30, 40))
            kind = c.Depthwise if layer.kind == "depthwise" else c.Conv
            command = kind(ifm, 0, ofm, _geometry(layer), builder.weight(weights), stage)
    return prepared(Case("speed", builder, command, values, weights))


def _geometry(layer: Layer) -> Any:
    """A window with "same" pads that end with the last window."""
    from delegraph_npu.commands import Geometry

    pads: list[tuple[int, int]] = []
    for kernel, size, out in zip(layer.kernel, (layer.height, layer.width), layer.output, strict=True):
        before = (kernel - 1) // 2
        pads.append((before, (out - 1) * layer.stride + kernel - before - size))
    (top, bottom), (left, right) = pads
    return Geometry(layer.kernel, (layer.stride, layer.stride), pads=(top, left, bottom, right))


# ---- all of it -------------------------------------------------------------------------------------


def main() -> None:
    """Print the tables, or put them into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS), help="comma-separated")
    parser.add_argument("--tables", default=",".join(TABLES), help="comma-separated")
    parser.add_argument("--svg", type=Path, help="a folder for the rooflines on all presets")
    parser.add_argument("--into", type=Path, help="a page that gets each table between its marks, and its rooflines")
    args = parser.parse_args()
    networks, names = args.networks.split(","), args.tables.split(",")
    check_marks(args.into, *names)
    for name in names:
        if name != "npu-estimates" and not ORACLES:
            print(f"{name}: the oracles are not installed\n")
            continue
        text = TABLES[name](networks)
        if args.into is None:
            print(f"{text}\n")
        else:
            put(args.into, name, text)
    if args.into is not None:
        for network in networks:
            file = args.into.parent / "pictures" / f"roofline-{network}.svg".lower()
            file.write_text(picture(network, VELA_DEVICE), "utf-8")
    if args.svg is not None:
        args.svg.mkdir(parents=True, exist_ok=True)
        for network in networks:
            for device in DEVICES:
                (args.svg / f"{network}-{device}.svg".lower()).write_text(picture(network, device), "utf-8")


TABLES: Final[dict[str, Callable[[Sequence[str]], str]]] = {
    "npu-speed": speed,
    "npu-vela": against_vela,
    "npu-estimates": estimates,
}


if __name__ == "__main__":
    main()
