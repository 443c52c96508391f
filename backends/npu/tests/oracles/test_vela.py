"""Cycles of compiled layers lie within half and twice of what Vela estimates for them, and in its order.

Vela's own two cores differ by as much: nobody's numbers are right, and a factor of ten would be wrong.
"""

from __future__ import annotations

import numpy as np
import pytest
from backends.npu.tests.layers import compiled
from backends.npu.tests.networks import NETWORKS, Layer
from backends.npu.tests.oracles.vela import estimates
from numpy.typing import ArrayLike

from delegraph_npu.command_stream import decode
from delegraph_npu.cost import schedule
from delegraph_npu.device import read_device

pytestmark = pytest.mark.oracles


def cycles(layer: Layer, device: str) -> float:
    """Of the layer as it is compiled, transfers of its weights included."""
    blob = compiled(layer, device)
    return schedule(decode(blob.stream), read_device(blob.device, "blob"))[-1].end


def ranks(values: ArrayLike) -> np.ndarray:
    return np.argsort(np.argsort(values))


@pytest.mark.parametrize("network", NETWORKS)
def test_layers_take_about_as_long_as_vela_says(network: str) -> None:
    layers = list(dict.fromkeys(NETWORKS[network]))
    ours = np.array([cycles(layer, "ethos-u55-128") for layer in layers])
    theirs = np.array([report.total for report in estimates(layers, "ethos-u55-128")])
    ratios = ours / theirs
    off = [(layer, round(ratio, 2)) for layer, ratio in zip(layers, ratios, strict=True) if not 0.5 <= ratio <= 2]
    assert off == []
    assert np.corrcoef(ranks(ours), ranks(theirs))[0, 1] > 0.9, list(zip(layers, ratios, strict=True))
