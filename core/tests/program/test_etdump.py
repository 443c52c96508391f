"""ETDumps: what is written is read again, by flatc's own classes too, and what is damaged is refused."""

from __future__ import annotations

import struct

import pytest
from core.tests.program.flatc import etdump_generated as flatc

from delegraph.errors import InvalidArgument
from delegraph.program.etdump import (
    AllocationEvent,
    Allocator,
    Bool,
    DebugEvent,
    Double,
    ETDump,
    Event,
    Float,
    Int,
    ProfileEvent,
    RunData,
    Tensor,
    TensorList,
    Value,
    deserialize_etdump,
    serialize_etdump,
)
from delegraph.program.schema import ScalarType

TENSOR = Tensor(ScalarType.HALF, [2, 3], [3, 1], 64)
FILLED = ETDump(
    3,
    [
        RunData("nothing"),
        RunData(
            "all",
            4,
            [Allocator("planned")],
            [
                Event(profile_event=ProfileEvent("op", 1, 2, -1, None, None, 10, 2**40)),
                Event(profile_event=ProfileEvent(None, 0, 0, 0, None, b"\0meta", 0, 0)),
                Event(allocation_event=AllocationEvent(1, 2**33)),
                Event(
                    debug_event=DebugEvent("op", 1, -1, -1, "conv", Value("Tensor", tensor=TENSOR, output=Bool(True)))
                ),
                Event(
                    debug_event=DebugEvent(
                        None, 0, 0, 5, None, Value("TensorList", tensor_list=TensorList([TENSOR, TENSOR]))
                    )
                ),
                Event(
                    debug_event=DebugEvent(
                        None, 0, 0, -1, "", Value("Float", float_value=Float(0.5), double_value=Double(-0.0))
                    )
                ),
                Event(
                    debug_event=DebugEvent(None, 0, 0, -1, "", Value("Int", int_value=Int(-7), bool_value=Bool(False)))
                ),
            ],
        ),
    ],
)


@pytest.mark.parametrize("size_prefixed", [True, False])
def test_round_trip(size_prefixed: bool) -> None:
    data = serialize_etdump(FILLED, size_prefixed)
    assert deserialize_etdump(data, size_prefixed) == FILLED
    if size_prefixed:
        assert struct.unpack_from("<I", data) == (len(data) - 4,)


def test_an_id_that_is_not_given_is_minus_one() -> None:
    without = ETDump(
        0, [RunData("a", None, None, [Event(profile_event=ProfileEvent("op", 0, -1, None, None, None, 0, 0))])]
    )
    (run,) = deserialize_etdump(serialize_etdump(without)).run_data
    assert run.events
    assert run.events[0].profile_event
    assert (run.bundled_input_index, run.events[0].profile_event.delegate_debug_id_int) == (-1, -1)


def test_flatc_reads_the_same() -> None:
    dump = flatc.ETDumpT.InitFromObj(flatc.ETDump.GetRootAs(serialize_etdump(FILLED), 4))
    nothing, run = dump.runData
    assert (dump.version, nothing.name, nothing.bundledInputIndex, run.bundledInputIndex) == (3, b"nothing", -1, 4)
    first, second = (event.profileEvent for event in run.events[:2])
    assert (first.name, first.chainIndex, first.instructionId, first.delegateDebugIdInt, first.endTime) == (
        b"op",
        1,
        2,
        -1,
        2**40,
    )
    assert (second.name, second.instructionId, bytes(second.delegateDebugMetadata)) == (None, 0, b"\0meta")
    debug = run.events[3].debugEvent
    assert (debug.instructionId, debug.delegateDebugIdStr, debug.debugEntry.output.boolVal) == (-1, b"conv", True)
    assert (debug.debugEntry.val, list(debug.debugEntry.tensor.sizes), debug.debugEntry.tensor.offset) == (
        5,
        [2, 3],
        64,
    )


def test_what_is_refused() -> None:
    data = serialize_etdump(FILLED)
    with pytest.raises(InvalidArgument, match="not an ETDump: it has b'EX00' at byte 8, not b'ED00'"):
        deserialize_etdump(data.replace(b"ED00", b"EX00"))
    with pytest.raises(InvalidArgument, match="the file is damaged"):
        deserialize_etdump(data[: len(data) // 2])
    with pytest.raises(InvalidArgument, match="no value is of type 'Tuple'; the types are Null, Int, "):
        serialize_etdump(
            ETDump(0, [RunData("a", events=[Event(debug_event=DebugEvent("x", 0, 0, -1, None, Value("Tuple")))])])
        )
