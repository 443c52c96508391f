"""Arm Ethos-U: what the bridge compiles equals what ExecuTorch's own lowering compiles, to the byte."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

import delegraph
from delegraph.aot import ExecutorchBackendConfig
from delegraph.errors import BackendMissing
from delegraph.program import deserialize_program

from .models import own_lowering, quantized

pytestmark = [
    pytest.mark.executorch,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        find_spec("ethosu") is None or find_spec("tosa_serializer") is None,
        reason="Arm's compiler is not installed: pip install ethos-u-vela; pip install --no-deps tosa-tools",
    ),
]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.head = torch.nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.avg_pool2d(self.conv(x).relu(), 2)
        scores: torch.Tensor = self.head(y.flatten(1))
        return scores


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_blobs_equal_executorchs_own(target: str) -> None:
    from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
    from executorch.backends.arm.quantizer import EthosUQuantizer, get_symmetric_quantization_config

    torch.manual_seed(0)
    spec = EthosUCompileSpec(target)
    quantizer = EthosUQuantizer(spec).set_global(get_symmetric_quantization_config())
    exported = quantized(Net().eval(), (torch.randn(1, 3, 4, 4),), quantizer)
    config = ExecutorchBackendConfig(check_kernels=False)  # q and dq at the borders run on the device
    lowered = delegraph.lower(exported, backends=[f"executorch:ethos-u{{target={target}}}"], config=config)
    ours = deserialize_program(bytes(lowered)).delegate_data
    theirs = deserialize_program(own_lowering(exported, EthosUPartitioner(spec))).delegate_data
    assert list(map(bytes, ours)) == list(map(bytes, theirs))
    with pytest.raises(BackendMissing, match=r"EthosUBackend.*ExecuTorch's runtime in this environment"):
        delegraph.load(bytes(lowered))
