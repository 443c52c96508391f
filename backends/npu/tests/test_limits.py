"""The limits of what a stream of commands may say: the last that is admitted, and the first that is not."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest
from backends.npu.tests.harness import Builder
from backends.npu.tests.test_validate import changed

from delegraph.errors import DelegateInvalidCompatibility
from delegraph_npu.blob import FORMAT, unpack
from delegraph_npu.commands import (
    Command,
    Dtype,
    Geometry,
    Pool,
    PoolKind,
    Region,
    Requantize,
    Stop,
    dense,
)
from delegraph_npu.device import MemoryDescription
from delegraph_npu.runtime.validate import validate

SIZES: Mapping[Region, int] = dict.fromkeys(Region, 2**40)


def expect(admitted: bool) -> Any:
    return nullcontext() if admitted else pytest.raises(DelegateInvalidCompatibility)


def check(command: Command, admitted: bool) -> None:
    with expect(admitted):
        validate([(0, command), (1, Stop())], SIZES, 1)


def pool(kind: PoolKind, shape: tuple[int, int, int, int], geometry: Geometry) -> Pool:
    ofm = dense(Region.DRAM, 0, (shape[0], *geometry.output(*shape[1:3]), shape[3]), Dtype.INT8)
    return Pool(kind, dense(Region.SRAM, 0, shape, Dtype.INT8), 0, ofm, geometry, Requantize())


@pytest.mark.parametrize("kind", [PoolKind.MAX, PoolKind.AVERAGE])
@pytest.mark.parametrize(("kernel", "admitted"), [((256, 256), True), ((1, 65537), False)])
def test_kernels(kind: PoolKind, kernel: tuple[int, int], admitted: bool) -> None:
    check(pool(kind, (1, *kernel, 1), Geometry(kernel)), admitted)


@pytest.mark.parametrize(("shape", "admitted"), [((1, 2**14, 2**14, 1), True), ((1, 1, 2**28 + 1, 1), False)])
def test_a_padded_input(shape: tuple[int, int, int, int], admitted: bool) -> None:
    check(pool(PoolKind.MAX, shape, Geometry((1, 1))), admitted)


@pytest.mark.parametrize(
    ("name", "changes", "admitted"),
    [
        ("resize to a half, NEAREST", {"scale_n": (2**11, 1)}, True),
        ("resize to a half, NEAREST", {"scale_n": (2**11 + 1, 1)}, False),
        ("resize to a half, NEAREST", {"scale_d": (1, 2**11 + 1)}, False),
        ("resize to a half, NEAREST", {"scale_n": (1, 1)}, True),
        *(("conv 3x3", {"requantize__shift": shift}, shift in (2, 62)) for shift in (1, 2, 62, 63)),
        *(("add", {"a__left_shift": shift}, shift in (0, 23)) for shift in (-1, 0, 23, 24)),
        *(("conv 3x3", {"zero_point": point}, point in (-128, 127)) for point in (-129, -128, 127, 128)),
        *(("conv 3x3", {"requantize__zero_point": point}, point in (-128, 127)) for point in (-129, -128, 127, 128)),
        *(("conv 3x3", {"operator": operator}, operator == 0) for operator in (-1, 0, 1)),
        ("conv 3x3", {"requantize__multiplier": 0}, True),
        ("conv 3x3", {"requantize__multiplier": -1}, False),
    ],
)
def test_fields(name: str, changes: dict[str, Any], admitted: bool) -> None:
    check(changed(name, **changes)[1], admitted)


@pytest.mark.parametrize(("reach", "admitted"), [(0, True), (1, False)])
def test_memory(reach: int, admitted: bool) -> None:
    """A command that ends with its memory, and one that reaches a byte beyond it."""
    command = pool(PoolKind.MAX, (1, 4, 4, 1), Geometry((1, 1)))
    with expect(admitted):
        validate([(0, command), (1, Stop())], {**SIZES, Region.SRAM: 16 - reach}, 1)


@pytest.mark.parametrize(("pads", "admitted"), [((2, 2, 2, 2), True), ((3, 0, 0, 0), False), ((0, 0, 0, 3), False)])
def test_pads(pads: tuple[int, int, int, int], admitted: bool) -> None:
    check(pool(PoolKind.MAX, (1, 4, 4, 1), Geometry((3, 3), pads=pads)), admitted)


@pytest.mark.parametrize(
    ("shape", "admitted"), [((1,) * 6, True), ((1,) * 7, False), ((0, 2**60 - 1), True), ((0, 2**60), False)]
)
def test_borders(shape: tuple[int, ...], admitted: bool) -> None:
    content = FORMAT.unpack(Builder().blob([], [dense(Region.DRAM, 0, (1, 1, 1, 1), Dtype.INT8)], []))
    content.header["inputs"][0] |= {"shape": shape, "strides": (0,) * len(shape)}
    with expect(admitted):
        unpack(FORMAT.pack(content.header, {name: content.view(name) for name in content.names}))


@pytest.mark.parametrize(("nbytes", "admitted"), [(0, False), (1, True), (2**31, True), (2**31 + 1, False)])
def test_memories_of_a_device(nbytes: int, admitted: bool) -> None:
    with nullcontext() if admitted else pytest.raises(ValueError, match="its size is from 1 byte to 2 GiB"):
        MemoryDescription("m", nbytes, 8)
