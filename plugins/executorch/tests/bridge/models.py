"""Small models for the bridge, and what ExecuTorch itself makes of them."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram

Arrays = list[Any]


class ConvNet(torch.nn.Module):
    """Convolution, batch norm, pooling, a residual, a linear layer; `erf` is for kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.relu(self.norm(self.conv(x)))
        y = torch.nn.functional.max_pool2d(y + y * 0.5, 2, 2)
        scores: torch.Tensor = self.head(torch.erf(y.mean((2, 3)))).softmax(-1)
        return scores


def conv_net() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return ConvNet().eval(), (torch.randn(1, 3, 8, 8),)


def mlp() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)]
    return torch.nn.Sequential(*layers).eval(), (torch.randn(3, 16),)


def quantized(model: torch.nn.Module, args: tuple[torch.Tensor, ...], quantizer: Any) -> ExportedProgram:
    """The model, quantized by torchao with one of ExecuTorch's quantizers."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(torch.export.export(model, args).module(check_guards=False), quantizer)
    prepared(*args)
    return torch.export.export(convert_pt2e(prepared), args)


def own_lowering(program: ExportedProgram, partitioner: Any) -> bytes:
    """The file that ExecuTorch's own lowering gives."""
    from executorch.exir import to_edge_transform_and_lower

    return bytes(to_edge_transform_and_lower(program, partitioner=[partitioner]).to_executorch().buffer)


def run_there(file: bytes, *args: torch.Tensor) -> list[torch.Tensor]:
    """What ExecuTorch's runtime gives."""
    from executorch.extension.pybindings import portable_lib

    results: list[torch.Tensor] = portable_lib._load_for_executorch_from_buffer(file).run_method("forward", args)
    return results
