"""What the bridge compiles is what ExecuTorch's own lowering compiles, to the byte (Ethos-U: `test_ethos_u.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import delegraph
from delegraph.aot import ExecutorchBackendConfig
from delegraph.errors import PluginUnavailable
from delegraph.program import deserialize_program
from delegraph_executorch.bridge import partitioners

from .models import own_lowering
from .table import Net

pytestmark = [pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("make", [partitioners.vulkan, partitioners.tosa], ids=lambda make: make.__name__)
def test_blobs_equal_executorchs_own(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    exported = torch.export.export(Net().eval(), (torch.randn(1, 3, 4, 4),))
    try:
        ours, theirs = make().partitioner, make().partitioner
    except PluginUnavailable as missing:
        pytest.skip(str(missing))
    config = ExecutorchBackendConfig(check_kernels=False)
    lowered = deserialize_program(bytes(delegraph.lower(exported, backends=[ours], config=config)))
    expected = deserialize_program(own_lowering(exported, theirs))
    assert expected.delegate_data
    assert list(map(bytes, lowered.delegate_data)) == list(map(bytes, expected.delegate_data))
