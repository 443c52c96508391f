"""Whatever a stream says: it is refused before anything runs, or it touches no byte outside of its memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from enum import IntEnum
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from backends.npu.tests.cases import cases
from backends.npu.tests.harness import Builder
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.blobs import changed

from delegraph.errors import DelegraphError
from delegraph.interfaces import BackendExecutionContext, BackendInitContext, Platform
from delegraph_npu.blob import FORMAT
from delegraph_npu.commands import Address, Command, DmaStart, DmaWait, Region
from delegraph_npu.runtime.backend import NpuBackend

CASES = list(cases())
GUARD = 4096
CONTEXT = cast(BackendExecutionContext, SimpleNamespace(event_tracer=None))


class Guarded:
    """Memories with bytes around them that nobody may read or write."""

    def __init__(self, fill: int) -> None:
        self._fill = fill
        self._blocks: list[NDArray[np.uint8]] = []

    def allocate(self, nbytes: int) -> NDArray[np.uint8]:
        block = np.full(nbytes + 2 * GUARD, self._fill, np.uint8)
        block[GUARD : GUARD + nbytes] = np.arange(nbytes, dtype=np.uint32) * 37 % 251
        self._blocks.append(block)
        return block[GUARD : GUARD + nbytes]

    def inside(self) -> list[bytes]:
        return [block[GUARD:-GUARD].tobytes() for block in self._blocks]

    def is_untouched(self) -> bool:
        return all(
            (block[:GUARD] == self._fill).all() and (block[-GUARD:] == self._fill).all() for block in self._blocks
        )


def ran(blob: bytes, fill: int) -> list[bytes] | None:
    """What the memories hold after a run; None: the blob was refused."""
    guarded = Guarded(fill)
    backend, platform = NpuBackend(), Platform(allocate=guarded.allocate)
    try:
        handle = backend.init(BackendInitContext("forward", platform=platform), blob, ())
    except DelegraphError:
        return None
    constants = {region: data.tobytes() for region, data in handle.machine.program.constants.items()}
    backend.execute(CONTEXT, handle, [])
    assert guarded.is_untouched(), "bytes outside of the memories were written"
    assert constants == {region: data.tobytes() for region, data in handle.machine.program.constants.items()}
    return guarded.inside()


def check(blob: bytes) -> bool:
    """Run it between guards of two kinds; whether it ran at all."""
    first = ran(blob, 0xAA)
    assert first == ran(blob, 0x55), "bytes outside of the memories were read"
    return first is not None


# ---- sound commands, with some numbers changed -----------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-2, 9), st.sampled_from([16, 30, 64, 127, 128, 255, 256, 511, 1023, 1 << 16, (1 << 31) - 1, -(1 << 31)])
)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of the integers in a command."""
    if isinstance(value, IntEnum):
        return []
    if isinstance(value, int):
        return [path]
    if isinstance(value, tuple):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, index))]
    return [leaf for field in fields(value) for leaf in leaves(getattr(value, field.name), (*path, field.name))]


def at(value: Any, path: Sequence[Any]) -> int:
    """The integer at `path`."""
    for step in path:
        value = getattr(value, step) if isinstance(step, str) else value[step]
    return cast(int, value)


def put(value: Any, path: Sequence[Any], number: int) -> Any:
    """`value` with `number` at `path`."""
    if not path:
        return number
    first, *rest = path
    if is_dataclass(value):
        return replace(cast(Any, value), **{first: put(getattr(value, first), rest, number)})
    return tuple(put(item, rest, number) if index == first else item for index, item in enumerate(value))


TIED = {"shape", "geometry", "nbytes", "opcode", "operator", "axes"}
"""Fields that cannot be changed alone, mostly."""


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    case = draw(st.sampled_from(CASES))
    builder = Builder(2 * case.builder.sram, case.builder.sram, case.builder.weights, case.builder.tables)
    command: Any = case.command
    paths = leaves(command)
    loose = [path for path in paths if TIED.isdisjoint(path)]
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(loose if draw(st.integers(0, 3)) else paths))
        step = draw(st.integers(-2, 4))
        number = at(command, path) + step if draw(st.integers(0, 2)) else draw(NUMBERS)
        command = put(command, path, min(max(number, -(1 << 31)), (1 << 31) - 1))
    commands: list[Command] = [command]
    if draw(st.booleans()):
        regions = st.sampled_from(list(Region))
        place = st.builds(Address, regions, st.integers(0, builder.sram))
        pair = st.tuples(st.integers(0, 64), st.integers(0, 64))
        shape = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 64))
        start = draw(st.builds(DmaStart, st.integers(0, 1), place, place, shape, pair, pair))
        commands.insert(draw(st.integers(0, 1)), start)
        commands.insert(draw(st.integers(0, 2)), DmaWait(draw(st.integers(0, 1))))
    return builder.blob(commands, [], [])


@settings(max_examples=100, deadline=None)
@given(streams())
def test_no_stream_leaves_its_memories(blob: bytes) -> None:
    check(blob)


def test_sound_streams_run_between_guards() -> None:
    assert all(check(case.builder.blob([case.command], [], [])) for case in CASES)


BLOBS = [case.builder.blob([case.command], [], []) for case in CASES]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(BLOBS), st.randoms(use_true_random=False))
def test_no_damaged_blob_leaves_its_memories(blob: bytes, rng: Random) -> None:
    check(changed(FORMAT, blob, rng))
