"""The events of an EventTracer; a method without a tracer has no trace of it."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest

from delegraph.errors import InvalidArgument, MemoryAllocationFailed
from delegraph.runtime import BackendInterface, DebugLevel, EventTracer, Platform


class Backend(BackendInterface):
    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        context.event_tracer.track_allocation("npu", 64)
        with context.event_tracer.profile("compile", delegate_debug_id=0):
            return None

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        context.event_tracer.log_profiling("conv", 5, 9, delegate_debug_id="conv_1")
        context.event_tracer.log_value("conv", args[0], delegate_debug_id="conv_1")
        np.copyto(args[1], args[0] * 2)


def network(build: Any) -> Any:
    x = build.tensor(2)
    total = build.call("aten::add.out", x, x, build.int(1), build.tensor(2))
    build.delegate("B", total, build.tensor(2))
    parts = build.tensor(1), build.tensor(1)
    last = len(build.values) - 3
    build.prim(
        "aten::split_copy.Tensor_out", last, build.int(1), build.int(0), build.tensors(*parts), build.tensors(*parts)
    )
    return build.plan([x], list(parts))


def ticking(level: DebugLevel = DebugLevel.NO_LOGGING) -> EventTracer:
    ticks = count()
    return EventTracer(level, platform=Platform(current_ticks=lambda: next(ticks), ns_per_tick=10))


def test_times(build: Any, load_method: Any) -> None:
    tracer = ticking()
    method = load_method(build, network(build), backends={"B": Backend()}, event_tracer=tracer)
    method.execute([np.float32([1, 2])])
    loading, running = tracer.blocks
    assert loading.name == "Method::load forward"
    assert [(e.name, e.delegate_debug_id) for e in loading.profile_events] == [
        ("compile", 0),
        ("Delegate::init B", None),
        ("Method::load", None),
    ]
    assert [(e.allocator, e.nbytes) for e in loading.allocation_events] == [("planned memory", build.used), ("npu", 64)]
    events = [(e.name, e.chain, e.instruction, e.delegate_debug_id) for e in running.profile_events]
    assert events == [
        ("aten::add.out", 0, 0, None),
        ("conv", 0, 1, "conv_1"),  # inside of the call of the delegate
        ("delegate 0 B", 0, 1, None),
        ("aten::split_copy.Tensor_out", 0, 2, None),
        ("Method::execute", -1, -1, None),
    ]
    assert [e.duration for e in running.profile_events] == [10, 4, 10, 10, 70]
    assert [e.name for e in running.debug_events] == ["conv"]


def test_intermediate_outputs(build: Any, load_method: Any) -> None:
    tracer = ticking(DebugLevel.INTERMEDIATE_OUTPUTS)
    method = load_method(build, network(build), backends={"B": Backend()}, event_tracer=tracer)
    method.execute([np.float32([1, 2])])
    method.execute([np.float32([5, 6])])
    events = [(e.name, e.instruction, np.asarray(e.value).tolist()) for e in tracer.blocks[1].debug_events]
    assert events == [
        ("aten::add.out", 0, [2, 4]),
        ("conv", 1, [2, 4]),
        ("delegate 0 B", 1, [4, 8]),
        ("aten::split_copy.Tensor_out", 2, [[4], [8]]),  # its result is one list
        ("output", -1, [4]),
        ("output", -1, [8]),
    ]


@pytest.mark.parametrize("first", [True, False])
def test_delegates_in_both_branches_of_a_cond(build: Any, load_method: Any, first: bool) -> None:
    """Both write the same value, and neither after the other."""
    x, out, condition = build.tensor(2), build.tensor(2), build.bool(first)
    to_second = build.jump_false(condition, -1)
    build.delegate("B", x, out)
    to_end = build.jump_false(build.bool(False), -1)
    build.land(to_second)
    build.delegate("B", x, out)
    build.land(to_end)
    build.delegate("B", out, build.tensor(2))
    tracer = ticking(DebugLevel.INTERMEDIATE_OUTPUTS)
    method = load_method(build, build.plan([x], [out]), backends={"B": Backend()}, event_tracer=tracer)
    method.execute([np.float32([1, 2])])
    events = [(e.name, np.asarray(e.value).tolist()) for e in tracer.blocks[1].debug_events if "delegate" in e.name]
    assert events == [(f"delegate {0 if first else 1} B", [2, 4]), ("delegate 2 B", [4, 8])]


def test_a_delegate_in_a_loop(build: Any, load_method: Any) -> None:
    """The values that the round before wrote are written again."""
    x, out, count = build.tensor(1), build.tensor(1), build.int(0)
    more = build.bool(False)  # a variable, which only starts as false
    build.delegate("B", x, out)
    build.prim("executorch_prim::add.Scalar", count, build.int(1), count)
    build.prim("executorch_prim::ge.Scalar", count, build.int(2), more)
    build.jump_false(more, 0)
    tracer = ticking(DebugLevel.INTERMEDIATE_OUTPUTS)
    method = load_method(build, build.plan([x], [out]), backends={"B": Backend()}, event_tracer=tracer)
    method.execute([np.float32([3])])
    values = [np.asarray(e.value).tolist() for e in tracer.blocks[1].debug_events if e.name == "delegate 0 B"]
    assert values == [[6], [6]]


def test_program_outputs_only(build: Any, load_method: Any) -> None:
    tracer = ticking(DebugLevel.PROGRAM_OUTPUTS)
    x, flags = build.tensor(1), build.constant(np.array([True]))
    number = build.int(0)
    build.move(build.int(3), number)
    method = load_method(build, build.plan([x], [x, number, flags]), event_tracer=tracer)
    method.execute([np.float32([1])])
    assert [(e.name, e.value_index, e.value) for e in tracer.blocks[1].debug_events] == [
        ("output", x, [1]),
        ("output", number, 3),
        ("output", flags, [True]),
    ]


def test_a_failing_instruction_is_timed_too(build: Any, load_method: Any) -> None:
    x = build.tensor(1)
    build.call("test::fail.out", x, build.tensor(1))
    tracer = ticking()
    method = load_method(build, build.plan([x], []), event_tracer=tracer)
    with pytest.raises(InvalidArgument, match=r"instruction 0, test::fail"):
        method.execute([np.float32([1])])
    assert [e.name for e in tracer.blocks[1].profile_events] == ["test::fail.out", "Method::execute"]


def test_without_a_tracer_calls_are_bare(build: Any, load_method: Any) -> None:
    x = build.tensor(1)
    build.call("aten::add.out", x, x, build.int(1), build.tensor(1))
    method = load_method(build, build.plan([x], []))
    block = method._loaded.execute.__wrapped__.args[0]
    assert block.calls[0].func is np.add


def test_events_without_a_block() -> None:
    tracer = EventTracer()
    tracer.log_value("list", [np.ones(1), 2])
    assert tracer.blocks[0].name == "default"
    assert tracer.blocks[0].debug_events[0].value[1] == 2


def test_several_results_are_kept_one_by_one(build: Any, load_method: Any) -> None:
    """A call names each of them, and the list of them behind."""
    x, values, indices = build.tensor(2), build.tensor(), build.tensor(dtype="int64")
    build.prim("test::max_and_place.out", x, values, indices, build.tensors(values, indices))
    tracer = ticking(DebugLevel.INTERMEDIATE_OUTPUTS)
    load_method(build, build.plan([x], [values]), event_tracer=tracer).execute([np.float32([5, 7])])
    kept = [(e.value_index, e.value.tolist()) for e in tracer.blocks[1].debug_events if e.instruction == 0]
    assert kept == [(values, 7), (indices, 1)]


def test_a_full_debug_buffer(build: Any, load_method: Any) -> None:
    tracer = EventTracer(DebugLevel.INTERMEDIATE_OUTPUTS, debug_buffer_size=12)
    x, out = build.tensor(2), build.tensor(2)
    build.call("aten::add.out", x, x, build.int(1), out)
    method = load_method(build, build.plan([x], [out]), event_tracer=tracer)
    with pytest.raises(MemoryAllocationFailed, match=r"debug buffer of 12 bytes is full: with output .* need 16"):
        method.execute([np.float32([1, 2])])
    assert len(tracer.take_blocks()) == 2
    assert tracer.blocks == []


def test_what_is_told_later_belongs_where_it_was_deferred() -> None:
    """Whatever block has begun by then; it is asked for once."""
    tracer, calls = EventTracer(), []

    def report(name: str) -> None:
        calls.append(name)
        tracer.log_profiling(name, 1, 2, delegate_debug_id=name)

    for step, name in enumerate(("first", "second")):
        tracer.create_event_block(name)
        with tracer.at(0, step):
            tracer.defer(partial(report, name))
    assert calls == []
    tracer.create_event_block("third")
    with tracer.at(3, 3):
        told = [[(e.name, e.chain, e.instruction) for e in block.profile_events] for block in tracer.blocks]
        assert tracer.place == (3, 3)
    assert told == [[("first", 0, 0)], [("second", 0, 1)], []]
    assert calls == ["first", "second"]
    assert [block.name for block in tracer.take_blocks()] == ["first", "second", "third"]
    assert calls == ["first", "second"]
