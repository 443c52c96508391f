"""Layers -> .tflite files -> what Vela, in a process of its own, says of them."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from backends.npu.tests.networks import Layer
from backends.npu.tests.oracles.litert import Tensor, model

CONFIGURATIONS: Final = {
    "ethos-u55-128": ("ethos-u55-128", "Ethos_U55_High_End_Embedded", "Shared_Sram"),
    "ethos-u55-256": ("ethos-u55-256", "Ethos_U55_High_End_Embedded", "Shared_Sram"),
    "ethos-u65-512": ("ethos-u65-512", "Ethos_U65_High_End", "Shared_Sram"),
    "ethos-u85-512": ("ethos-u85-512", "Ethos_U85_SYS_DRAM_Mid", "Shared_Sram"),
}
"""For each preset Vela's accelerator, system and memory mode."""

PATIENCE: Final = 300  # seconds, for what takes one on an idle machine


@dataclass(frozen=True)
class Report:
    """Cycles of the NPU's array and output, and of the whole; SRAM at its peak; how long Vela took."""

    npu: float
    total: float
    sram_nbytes: float
    seconds: float


def estimates(layers: Sequence[Layer], device: str) -> list[Report]:
    """Vela's estimate of each of `layers` on the NPU that the preset `device` is like."""
    with TemporaryDirectory() as folder:
        for number, layer in enumerate(layers):
            (Path(folder) / f"{number:04}.tflite").write_bytes(tflite(layer))
        script = Path(__file__).with_name("vela_process.py")
        command = [sys.executable, str(script), *CONFIGURATIONS[device], folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stderr
        seconds = json.loads(done.stdout.splitlines()[-1])
        return [_report(Path(folder), name, taken) for name, taken in sorted(seconds.items())]


def _report(folder: Path, name: str, seconds: float) -> Report:
    (summary,) = folder.glob(f"{name}_summary_*.csv")
    (row,) = csv.DictReader(summary.read_text().splitlines())
    return Report(float(row["cycles_npu"]), float(row["cycles_total"]), 1024 * float(row["sram_memory_used"]), seconds)


def weights_of(layer: Layer) -> np.ndarray[Any, np.dtype[np.int8]]:
    """Weights as those of trained networks lie: about zero. OHWI; HWC of depthwise layers."""
    dims = (*layer.kernel, layer.channels) if layer.kind == "depthwise" else (
        layer.channels, *layer.kernel, layer.in_channels
    )  # fmt: skip
    return np.random.default_rng(0).normal(0, 25, dims).clip(-127, 127).astype(np.int8)


def tflite(layer: Layer) -> bytes:
    """A network of `layer` alone."""
    image = Tensor((1, layer.height, layer.width, layer.in_channels), np.int8, 0.05)
    output = Tensor((1, *layer.output, layer.channels), np.int8, 0.1)
    if layer.kind == "add":
        return model("ADD", schema.AddOptionsT(), [image, image], output)
    if layer.kind == "average":
        options: Any = schema.Pool2DOptionsT()
        options.padding, options.strideH, options.strideW = schema.Padding.VALID, 1, 1
        options.filterHeight, options.filterWidth = layer.kernel
        return model("AVERAGE_POOL_2D", options, [image], Tensor(output.shape, np.int8, 0.05))
    weights = weights_of(layer)
    axis = 0
    if layer.kind == "linear":
        weights = weights.reshape(layer.channels, layer.in_channels)
        image, output = Tensor((1, layer.in_channels), np.int8, 0.05), Tensor((1, layer.channels), np.int8, 0.1)
        name, options, scales = "FULLY_CONNECTED", schema.FullyConnectedOptionsT(), np.array([0.01], np.float32)
    else:
        name, options = "CONV_2D", schema.Conv2DOptionsT()
        scales = np.full(layer.channels, 0.01, np.float32)
        if layer.kind == "depthwise":
            name, options, weights, axis = "DEPTHWISE_CONV_2D", schema.DepthwiseConv2DOptionsT(), weights[None], 3
            options.depthMultiplier = 1
        options.padding, options.strideH, options.strideW = schema.Padding.SAME, layer.stride, layer.stride
        options.dilationHFactor = options.dilationWFactor = 1
    bias = np.zeros(layer.channels, np.int32)
    constants = [
        Tensor(weights.shape, np.int8, scales, 0, weights, axis),
        Tensor(bias.shape, np.int32, scales * np.float32(0.05), 0, bias),
    ]
    return model(name, options, [image, *constants], output)
