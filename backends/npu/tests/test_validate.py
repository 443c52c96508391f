"""Streams that are not sound are refused when they are loaded, with the word and the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from backends.npu.tests.cases import Case, cases
from backends.npu.tests.harness import Builder, fetched

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import BackendInitContext
from delegraph_npu.commands import (
    Address,
    Block,
    Command,
    Conv,
    DmaStart,
    DmaWait,
    Dtype,
    Elementwise,
    FeatureMap,
    Region,
    Stop,
    dense,
)
from delegraph_npu.runtime.backend import NpuBackend
from delegraph_npu.runtime.validate import validate
from delegraph_npu.weights import compress, decompress

CASES = {case.name: case for case in cases()}


def refused(builder: Builder, commands: Sequence[Command], reason: str) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match=reason):
        NpuBackend().init(BackendInitContext("forward"), builder.blob(commands, [], []), ())


def test_every_case_is_sound() -> None:
    for case in CASES.values():
        NpuBackend().init(BackendInitContext("forward"), case.builder.blob([case.command], [], []), ())


def changed(name: str, **changes: Any) -> tuple[Case, Any]:
    """The case's command, with some of its fields, or of those of a field `name__field`, changed."""
    case = CASES[name]
    command: Any = case.command
    for path, value in changes.items():
        *outer, last = path.split("__")
        if outer:
            value = replace(getattr(command, outer[0]), **{last: value})
        command = replace(command, **{(outer or [last])[0]: value})
    return case, command


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (lambda stream: stream[:7], "7 bytes have no header"),
        (lambda stream: stream[:12] + b"\xff" + stream[13:], "0 of 4 quotients end"),
        (
            lambda stream: stream[:8] + b"\x09\0\0\0" + b"\xff" * 8 + b"\0" + stream[13:],
            "a quotient of 64, and 63 is the largest of 8 bits",
        ),
    ],
)
def test_a_damaged_stream_of_weights_is_refused(damaged: Callable[[bytes], bytes], reason: str) -> None:
    """Behind 12 bytes of a header come 4 quotients in one byte, and 2 bits of each weight in the next."""
    stream = compress(np.array([1, 2, 3, -4], np.int8))
    assert len(stream) == 14
    with pytest.raises(DelegateInvalidCompatibility, match=f"a stream of weights of NpuBackend: {reason}"):
        decompress(damaged(stream), 4)


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("conv 3x3", {"ifm__offset": 1 << 20}, "word .*, Conv: bytes 1048576 to 1048666 are not in SRAM, which has"),
        ("conv 3x3", {"ifm__offset": -1}, "offset -1 of elements of 1 bytes"),
        ("conv 3x3", {"ifm__shape": (0, 5, 6, 3)}, r"a feature map of shape \(0, 5, 6, 3\)"),
        ("conv 3x3", {"ifm__strides": (0, -1, 3, 1)}, "a feature map with strides"),
        ("conv 3x3", {"ifm__strides": (90, 0, 3, 1)}, "only operands of elementwise commands are broadcast"),
        ("conv 3x3", {"ifm__strides": (1, 1, 1, 1)}, "elements of its ifm lie on each other"),
        ("conv 3x3", {"ofm__strides": (120, 24, 0, 1)}, "elements of its ofm lie on each other"),
        ("conv 3x3", {"ofm__region": Region.TABLES, "ofm__offset": 0}, "are not in TABLES"),
        ("conv 3x3", {"ofm__shape": (1, 5, 6, 5)}, "bytes of scales"),
        ("conv 3x3", {"geometry__stride": (2, 1)}, r"its ofm is .*, and what comes out is \(1, 3, 6, 4\)"),
        ("conv 3x3", {"geometry__pads": (3, 1, 1, 1)}, r"pads \(3, 1\) of a kernel that reaches over 3"),
        ("conv 3x3", {"geometry__kernel": (1 << 9, 1 << 9)}, r"a kernel of \(512, 512\)"),
        ("conv 3x3", {"geometry__stride": (0, 1)}, r"stride=\(0, 1\)"),
        ("conv 3x3", {"zero_point": 128}, "zero point 128 of INT8"),
        ("conv 3x3", {"weights": Block(Region.SRAM, 0, 0)}, "it has no weights"),
        ("conv 3x3", {"weights": Block(Region.WEIGHTS, 0, 1 << 20)}, "are not in WEIGHTS"),
        ("conv 3x3", {"weights": Block(Region.WEIGHTS, 0, 20)}, "bytes where .* were to follow"),
        ("conv 3x3", {"requantize__shift": 1}, "shift 1 is not from 2 to 62"),
        ("conv 3x3", {"requantize__multiplier": -1}, "multiplier -1"),
        ("conv 3x3", {"requantize__high": 128}, "a clamp to -128 and 128 of INT8"),
        ("conv 3x3", {"requantize__zero_point": -129}, "zero point -129 of INT8"),
        ("conv 3x3", {"requantize__table": Block(Region.TABLES, 0, 255)}, "a table of an output is one of 256 int8"),
        ("conv 3x3", {"operator": 1}, "there is no operator 1 of 1"),
        (
            "conv 3x3",
            {"weights": Block(Region.SRAM, 0, 60)},
            "reads constants at SRAM 0, where no transfer brought any",
        ),
        ("average pool", {"geometry__dilation": (2, 2)}, "what comes out is"),
        ("average pool", {"ifm__dtype": Dtype.INT32}, "strides .* of elements of 4 bytes"),
        ("matmul", {"ifm2__shape": (1, 1, 8, 5)}, r"\(1, 1, 4, 9\) times \(1, 1, 8, 5\)"),
        ("matmul", {"ofm__shape": (1, 1, 4, 4)}, "its ofm is"),
        ("add", {"a__left_shift": 24}, "9 bits shifted left by 24"),
        ("add", {"a__feature_map": dense(Region.SRAM, 0, (1, 4, 5, 7))}, r"an operand is \(1, 4, 5, 7\), its ofm"),
        ("abs", {"b__zero_point": 1}, "ABS has a second operand"),
        ("table of 256", {"table__nbytes": 128}, "no table of INT8"),
        ("table of 513", {"table__offset": 1}, "tables are aligned to 2 bytes"),
        ("sum over h and w", {"axes": 16}, "axes 16"),
        ("sum over h and w", {"axes": 2}, "its ofm is"),
        ("resize to a half, NEAREST", {"scale_n": (0, 1)}, "scales"),
        ("resize to a half, NEAREST", {"ofm__shape": (1, 4, 3, 2)}, "n, c differ"),
    ],
)
def test_commands_that_are_not_sound(name: str, changes: dict[str, Any], reason: str) -> None:
    case, command = changed(name, **changes)
    refused(case.builder, [command], reason)


def test_a_stream_ends_once() -> None:
    with pytest.raises(DelegateInvalidCompatibility, match=r"word 1 .* Stop: it comes behind the end of the stream"):
        NpuBackend().init(BackendInitContext("forward"), Builder().blob([Stop(), Stop()], [], []), ())
    with pytest.raises(DelegateInvalidCompatibility, match="ends without a Stop"):
        validate([(0, DmaWait(0))], {}, 0)


def test_scales_in_tables_are_checked() -> None:
    case = CASES["conv 3x3"]
    builder = Builder(case.builder.sram, 0, case.builder.weights, bytearray(case.builder.tables))
    builder.tables[8:12] = np.array([63], "<i4").tobytes()
    refused(builder, [case.command], "a multiplier is below 0, or a shift not 2 to 62")


# ---- transfers -------------------------------------------------------------------------------------


def transfer(target: FeatureMap, source: FeatureMap, channel: int = 0) -> DmaStart:
    return DmaStart(
        channel, Address(source.region, source.offset), Address(target.region, target.offset), (1, 1, source.nbytes),
        (0, 0), (0, 0),
    )  # fmt: skip


def doubled(one: FeatureMap, ofm: FeatureMap) -> Command:
    add = CASES["add"].command
    assert isinstance(add, Elementwise)
    return replace(add, a=replace(add.a, feature_map=one), b=replace(add.b, feature_map=one), ofm=ofm)


def test_hazards_are_refused() -> None:
    builder = Builder()
    shape = (1, 4, 5, 6)
    outside, inside, result = builder.map(shape, region=Region.DRAM), builder.map(shape), builder.map(shape)
    load = transfer(inside, outside)
    compute = doubled(inside, result)
    refused(
        builder, [load, compute, DmaWait(0)], "Elementwise: a command reads bytes 0 to 120 of SRAM before it has arri"
    )
    refused(builder, [load, DmaWait(1), compute, DmaWait(0)], "nothing waited for channel 0")
    store = transfer(outside, result, channel=1)
    refused(builder, [store, compute, DmaWait(1)], "writes bytes 128 to 248 of SRAM before it has left")
    refused(builder, [load, transfer(inside, outside, channel=1)], "a transfer on channel 1 writes .* while it arrives")
    refused(builder, [load], "nothing waited for channels")
    NpuBackend().init(
        BackendInitContext("forward"), builder.blob([load, DmaWait(0), compute, store, DmaWait(1)], [], []), ()
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"shape": (1, 1, 0)}, "it moves nothing"),
        ({"shape": (1, -1, 5)}, "or a stride is below 0"),
        ({"shape": (1, 2, 8)}, "its rows are written over each other"),
        ({"shape": (1, 1, 1 << 20)}, "are not in"),
        ({"channel": -1}, "channel -1"),
        ({"target": Address(Region.WEIGHTS, 0)}, "WEIGHTS"),
    ],
)
def test_transfers_that_are_not_sound(changes: dict[str, Any], reason: str) -> None:
    builder = Builder()
    start = transfer(builder.map((1, 1, 4, 4)), builder.map((1, 1, 4, 4), region=Region.DRAM))
    refused(builder, [replace(start, **changes), DmaWait(0)], reason)


def test_constants_are_followed_through_transfers() -> None:
    """And only as long as nothing else is written there."""
    case = CASES["conv 3x3"]
    conv = case.command
    assert isinstance(conv, Conv)
    builder = Builder(case.builder.sram, 0, case.builder.weights, case.builder.tables)
    weights, fetch = fetched(builder, conv.weights)
    moved = replace(conv, weights=weights)
    NpuBackend().init(BackendInitContext("forward"), builder.blob([*fetch, moved, moved], [], []), ())
    over = FeatureMap(Region.SRAM, weights.offset, *list(_fields(conv.ofm))[2:])
    builder.sram = max(builder.sram, over.offset + over.span)
    refused(builder, [*fetch, replace(conv, ofm=over), moved], "where no transfer brought any")


def _fields(one: FeatureMap) -> Sequence[Any]:
    return one.region, one.offset, one.dtype, one.layout, one.shape, one.strides


@pytest.mark.parametrize(
    "changes", [{"offset": 20}, {"offset": -1}, {"region": Region.TABLES}, {"strides": (24, -12, 4, 1)}]
)
def test_inputs_and_outputs_lie_in_memories(changes: dict[str, Any]) -> None:
    builder = Builder()
    blob = builder.blob([], [replace(builder.map((1, 2, 3, 4)), **changes)], [])
    with pytest.raises(DelegateInvalidCompatibility, match=r"lies in no memory|expected a size, not -1"):
        NpuBackend().init(BackendInitContext("forward"), blob, ())


def test_a_device_that_is_too_small() -> None:
    builder = Builder(sram=1 << 30)
    refused(builder, [], "a blob of NpuBackend takes 1073741824 bytes of SRAM; its device has 2097152")
