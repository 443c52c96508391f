"""Models that the quantizers of ExecuTorch's backends have annotated run here: on kernels, and on the CPU backend as
one delegate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import delegraph

pytestmark = [
    pytest.mark.executorch,
    pytest.mark.filterwarnings("ignore"),  # those of ExecuTorch and torchao on themselves
]
Tensor = torch.Tensor


class Convolutions(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16)
        self.depthwise, self.pointwise = torch.nn.Conv2d(16, 16, 3, padding=1, groups=16), torch.nn.Conv2d(16, 16, 1)
        self.up, self.head = torch.nn.ConvTranspose2d(16, 16, 2, stride=2), torch.nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.nn.functional.relu6(self.norm(self.first(x)))
        y = torch.nn.functional.max_pool2d(y + self.pointwise(self.depthwise(y)), 2)
        y = torch.nn.functional.hardswish(self.up(y))
        y = torch.cat([y, y * 0.5], 1)[:, :16]
        return self.head(torch.nn.functional.adaptive_avg_pool2d(y, 1).flatten(1)).softmax(-1)


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (torch.nn.Linear(64, 64) for _ in range(4))
        self.norm, self.up, self.down = torch.nn.LayerNorm(64), torch.nn.Linear(64, 128), torch.nn.Linear(128, 64)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        q, k, v = (layer(h).view(1, -1, 4, 16).transpose(1, 2) for layer in (self.q, self.k, self.v))
        attended = (q @ k.transpose(-1, -2) / 4).softmax(-1) @ v
        x = x + self.o(attended.transpose(1, 2).reshape(1, -1, 64))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Pointwise(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        a, b = self.left(x), self.right(x)
        gated = torch.sigmoid(a) * torch.tanh(b) + (a - b).clamp(-1, 1)
        rest = torch.nn.functional.leaky_relu(a), torch.nn.functional.elu(b), torch.minimum(a, b)
        return gated, *rest, a.mean(-1), a @ b.transpose(-1, -2)


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...]]] = {
    "convolutions": (Convolutions, (1, 3, 16, 16)),
    "attention": (Attention, (1, 12, 64)),
    "pointwise": (Pointwise, (1, 8, 32)),
}


def xnnpack(**options: bool) -> Any:
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as module

    return module.XNNPACKQuantizer().set_global(module.get_symmetric_quantization_config(**options))


def tosa(specification: str, configuration: str) -> Any:
    from executorch.backends.arm.quantizer import arm_quantizer as module
    from executorch.backends.arm.tosa import TosaSpecification

    quantizer = module.TOSAQuantizer(TosaSpecification.create_from_string(specification))
    return quantizer.set_global(getattr(module, configuration)())


def cadence() -> Any:
    from executorch.backends.cadence.aot.quantizer.quantizer import CadenceDefaultQuantizer

    return CadenceDefaultQuantizer()


def cortex_m() -> Any:
    from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer

    return CortexMQuantizer()


def vulkan() -> Any:
    from executorch.backends.vulkan.quantizer import vulkan_quantizer as module

    return module.VulkanQuantizer().set_global(module.get_symmetric_quantization_config())


QUANTIZERS: dict[str, Callable[[], Any]] = {
    "xnnpack": xnnpack,
    "xnnpack, by channel": lambda: xnnpack(is_per_channel=True),
    "xnnpack, dynamic": lambda: xnnpack(is_per_channel=True, is_dynamic=True),
    "tosa, 8 bits": lambda: tosa("TOSA-1.0+INT", "get_symmetric_quantization_config"),
    "tosa, values of 16 bits": lambda: tosa("TOSA-1.0+INT+int16", "get_symmetric_a16w8_quantization_config"),
    "tosa, weights of 4 bits": lambda: tosa("TOSA-1.0+INT", "get_symmetric_a8w4_quantization_config"),
    "cadence": cadence,
    "cortex_m": cortex_m,
    "vulkan": vulkan,
}


@pytest.mark.parametrize("quantizer", QUANTIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_it_has_annotated(name: str, quantizer: str) -> None:
    """On kernels what torch's own calls give, where a sum in another order may be the next step of 16 bits; on the CPU
    within a few steps of 8 bits, since integers are rounded once where those calls round twice."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(0)
    make, shape = MODELS[name]
    batches = [torch.randn(shape) for _ in range(4)]
    # The graph as its quantizer wants it: Cadence's looks for what strict export gives.
    exported = torch.export.export(make().eval(), (batches[0],), strict=quantizer == "cadence")
    prepared = prepare_pt2e(exported.module(), QUANTIZERS[quantizer]())
    for batch in batches:
        prepared(batch)
    program = torch.export.export(convert_pt2e(prepared), (batches[0],))
    expected = program.module()(batches[0])
    wanted = expected if isinstance(expected, tuple | list) else [expected]
    for backends, within in (([], 5e-4), (["cpu"], 0.03)):
        made = delegraph.lower(program, backends=backends)
        if backends:
            method = made.report.methods["forward"]
            assert ([entry.backend for entry in method.delegates], list(method.leftovers)) == (["CpuBackend"], [])
        got = delegraph.load(bytes(made))["forward"].method.execute([batches[0].numpy()])
        for output, reference in zip(got, wanted, strict=True):
            largest = reference.abs().max().item()
            np.testing.assert_allclose(output, reference.detach().numpy(), rtol=0, atol=within * largest)
