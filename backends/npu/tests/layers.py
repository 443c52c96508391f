"""A layer of `networks` -> a quantized module of torch, lowered for a device -> its blob."""

from __future__ import annotations

from typing import Any

import torch
from backends.npu.tests.networks import Layer
from torch import nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401  # registers quantized_decomposed

import delegraph
from delegraph.program import deserialize_program
from delegraph_npu.blob import BACKEND_ID, Blob, unpack

Q = torch.ops.quantized_decomposed
INT8 = (-128, 127, torch.int8)


def exported(layer: Layer) -> torch.export.ExportedProgram:
    """The program of `layer` alone."""
    shape = (1, layer.in_channels) if layer.kind == "linear" else (1, layer.in_channels, layer.height, layer.width)
    images = (torch.zeros(shape, dtype=torch.int8),) * (2 if layer.kind == "add" else 1)
    return torch.export.export(Quantized(layer).eval(), images)


def compiled(layer: Layer, device: str) -> Blob:
    """The blob of `layer` alone, with all of it on the NPU."""
    lowered = delegraph.lower(exported(layer), backends=[("npu", {"take_all": True, "device": device})])
    program = deserialize_program(bytes(lowered))
    (delegate,) = program.execution_plan[0].delegates
    assert delegate.id == BACKEND_ID
    return unpack(program.delegate_data[delegate.processed])


class Quantized(nn.Module):
    """The layer between `dequantize` and `quantize`, as a quantizer leaves it; weights lie about zero."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer
        depth = 1 if layer.kind == "depthwise" else layer.in_channels
        dims = (layer.channels, depth, *([] if layer.kind == "linear" else layer.kernel))
        weights = torch.randn(dims, generator=torch.Generator().manual_seed(0)) * 25
        self.register_buffer("weights", weights.clamp(-127, 127).to(torch.int8))
        self.register_buffer("scales", torch.full((layer.channels,), 0.01))
        self.register_buffer("zeros", torch.zeros(layer.channels, dtype=torch.int64))

    def forward(self, *images: torch.Tensor) -> Any:
        layer = self.layer
        inputs = [Q.dequantize_per_tensor.default(image, 0.05, 0, *INT8) for image in images]
        if layer.kind == "add":
            result = inputs[0] + inputs[1]
        elif layer.kind == "average":
            result = nn.functional.avg_pool2d(inputs[0], layer.kernel)
        else:
            weights = Q.dequantize_per_channel.default(self.weights, self.scales, self.zeros, 0, *INT8)
            if layer.kind == "linear":
                result = nn.functional.linear(inputs[0], weights)
            else:
                groups = layer.in_channels if layer.kind == "depthwise" else 1
                pads = tuple((size - 1) // 2 for size in layer.kernel)
                result = nn.functional.conv2d(inputs[0], weights, None, layer.stride, pads, groups=groups)
        return Q.quantize_per_tensor.default(result, 0.05 if layer.kind == "average" else 0.1, 0, *INT8)
