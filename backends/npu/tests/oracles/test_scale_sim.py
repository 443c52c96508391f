"""A plain array takes as many cycles as SCALE-Sim counts, in each dataflow: the rows of its demand matrices."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scalesim.compute.systolic_compute_is import systolic_compute_is
from scalesim.compute.systolic_compute_os import systolic_compute_os
from scalesim.compute.systolic_compute_ws import systolic_compute_ws

from delegraph_npu.commands import Block, Conv, Geometry, Region, Requantize, dense
from delegraph_npu.cost import array_cycles, cost_of
from delegraph_npu.device import Array, Dataflow, device_text, read_device

pytestmark = pytest.mark.oracles

ORACLES: dict[Dataflow, Any] = {
    "output_stationary": systolic_compute_os,
    "weight_stationary": systolic_compute_ws,
    "input_stationary": systolic_compute_is,
}


def counted(dataflow: Dataflow, rows: int, columns: int, m: int, k: int, n: int) -> int:
    """Cycles of a product of (m, k) and (k, n)."""
    config = SimpleNamespace(
        get_array_dims=lambda: (rows, columns), sparsity_support=False, sparsity_optimized_mapping=False
    )
    simulation = ORACLES[dataflow]()
    simulation.set_params(
        config_obj=config,
        ifmap_op_mat=np.zeros((m, k)),
        ofmap_op_mat=np.zeros((m, n)),
        filter_op_mat=np.zeros((k, n)),
    )
    simulation.create_demand_matrices()
    ifmap, _, _ = simulation.get_demand_matrices()
    return len(ifmap)


@pytest.mark.parametrize("dataflow", ORACLES)
def test_products(dataflow: Dataflow) -> None:
    rng = np.random.default_rng(0)
    for _ in range(25):
        rows, columns = (int(size) for size in rng.integers(4, 17, 2))
        m, k, n = (int(size) for size in rng.integers(1, 71, 3))
        array = Array(rows, columns, 1, dataflow, pipelined=False, accumulators=rows * columns)
        assert array_cycles(array, m, k, n) == counted(dataflow, rows, columns, m, k, n), (rows, columns, m, k, n)


def test_a_convolution_is_a_product_of_its_windows() -> None:
    device = read_device(*device_text("array-32x32"))
    ifm, ofm = dense(Region.SRAM, 0, (1, 9, 9, 5)), dense(Region.SRAM, 0, (1, 4, 4, 40))
    command = Conv(ifm, 0, ofm, Geometry((3, 3), (2, 2)), Block(Region.WEIGHTS, 0, 1800), Requantize())
    assert cost_of(command, device).array == counted("output_stationary", 32, 32, 16, 45, 40)


def test_cells_that_multiply_several_channels_at_a_time_take_the_cycles_of_so_many_less() -> None:
    """With `depth` 4, a window's 5 channels are 2 steps of each cell, in the rest as before."""
    plain = read_device(*device_text("array-32x32"))
    device = replace(plain, array=replace(plain.array, depth=4))
    ifm, ofm = dense(Region.SRAM, 0, (1, 9, 9, 5)), dense(Region.SRAM, 0, (1, 4, 4, 40))
    command = Conv(ifm, 0, ofm, Geometry((3, 3), (2, 2)), Block(Region.WEIGHTS, 0, 1800), Requantize())
    assert cost_of(command, device).array == counted("output_stationary", 32, 32, 16, 9 * 2, 40)
