"""A tracer's events as ExecuTorch's file: names, places, values, and refused dumps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegraph.errors import InvalidArgument, InvalidState
from delegraph.program.etdump import ETDump, ProfileEvent, Tensor, ValueType, deserialize_etdump
from delegraph.program.schema import ScalarType
from delegraph.runtime import BackendInterface, DebugLevel, Runtime


class Backend(BackendInterface):
    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        return None

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        if context.event_tracer is not None:
            context.event_tracer.log_profiling("conv", 5, 9, delegate_debug_id=7, metadata=b"cycles=4")
            if context.event_tracer.debug_level is DebugLevel.INTERMEDIATE_OUTPUTS:
                context.event_tracer.log_value("conv", args[0], delegate_debug_id="conv_1")
        np.copyto(args[1], args[0] * 2)


@pytest.fixture
def network(build: Any) -> Any:
    """add, a delegate, split into a list, a number moved to the second output."""
    x, number = build.tensor(2), build.int(0)
    total = build.call("aten::add.out", x, x, build.int(1), build.tensor(2))
    doubled = build.tensor(2)
    build.delegate("B", total, doubled)
    parts = build.tensor(1), build.tensor(1)
    two = build.tensors(*parts)
    build.prim("aten::split_copy.Tensor_out", doubled, build.int(1), build.int(0), two, build.tensors(*parts))
    build.move(build.int(3), number)
    return build.program(build.plan([x], [parts[0], number]))


@pytest.fixture
def run(network: Any, load_method: Any, build: Any, tmp_path: Path) -> Any:
    """Execute with these options of `load_program`; the ETDump and the bytes of the debug buffer, or None."""

    def run(times: int = 1, **options: Any) -> tuple[ETDump, bytes | None]:
        program = load_runtime().load_program(network, **options)
        method = program.load_method("forward")
        for _ in range(times):
            method.execute([np.float32([1, 2])])
        program.write_etdump_result_to_file(tmp_path / "run.etdp", tmp_path / "run.bin")
        dump = deserialize_etdump((tmp_path / "run.etdp").read_bytes())
        return dump, (tmp_path / "run.bin").read_bytes() if (tmp_path / "run.bin").exists() else None

    def load_runtime() -> Runtime:
        from core.tests.runtime.conftest import numpy_kernels

        return Runtime(kernels=[numpy_kernels()], backends={"B": Backend()})

    return run


def spans(events: Any) -> list[Any]:
    profile: list[ProfileEvent] = [event.profile_event for event in events if event.profile_event]
    return [(e.name, e.chain_index, e.instruction_id, e.delegate_debug_id_int) for e in profile]


def test_times_have_executorchs_names(run: Any) -> None:
    dump, buffer = run(times=2, enable_etdump=True)
    assert [data.name for data in dump.run_data] == ["Default", "Execute", "Execute"]
    assert spans(dump.run_data[0].events)[-1] == ("Program::load_method", -1, -1, -1)
    assert spans(dump.run_data[1].events) == [
        ("native_call_add.out", 0, 0, -1),
        (None, 0, 1, 7),
        ("DELEGATE_CALL", 0, 1, -1),
        ("native_call_split_copy.Tensor_out", 0, 2, -1),
        ("MOVE_CALL", 0, 3, -1),
        ("Method::execute", -1, -1, -1),
    ]
    inside = dump.run_data[1].events[1].profile_event
    assert (inside.start_time, inside.end_time, inside.delegate_debug_metadata) == (5, 9, b"cycles=4")
    wholes = [data.events[-1].profile_event.delegate_debug_metadata for data in dump.run_data]
    assert wholes == [b"forward"] * 3, "the method's name, for which the format has no field"
    assert buffer is None, "no values were asked for"


def values(dump: ETDump, buffer: bytes) -> list[Any]:
    def array(tensor: Tensor) -> list[float]:
        assert tensor.scalar_type is ScalarType.FLOAT
        assert tensor.offset is not None
        return np.frombuffer(buffer, np.float32, tensor.sizes[0], tensor.offset).tolist()  # type: ignore[no-any-return]

    events: list[Any] = []
    for event in [event.debug_event for event in dump.run_data[1].events or () if event.debug_event]:
        entry = event.debug_entry
        value: Any = {
            ValueType.TENSOR.value: lambda entry=entry: array(entry.tensor),
            ValueType.TENSOR_LIST.value: lambda entry=entry: [array(tensor) for tensor in entry.tensor_list.tensors],
            ValueType.INT.value: lambda entry=entry: entry.int_value.int_val,
        }[entry.val]()
        events.append((event.name or event.delegate_debug_id_str, event.instruction_id, bool(entry.output), value))
    return events


def test_values_that_instructions_wrote(run: Any) -> None:
    dump, buffer = run(enable_etdump=True, debug_buffer_size=1 << 10)
    assert values(dump, buffer) == [
        ("native_call_add.out", 0, False, [2, 4]),
        ("conv_1", 1, False, [2, 4]),
        ("DELEGATE_CALL", 1, False, [4, 8]),
        ("native_call_split_copy.Tensor_out", 2, False, [[4], [8]]),
        ("MOVE_CALL", 3, False, 3),
        ("output", -1, True, [4]),
        ("output", -1, True, 3),
    ]


def test_each_dump_has_what_is_new(network: Any, run: Any, tmp_path: Path) -> None:
    from core.tests.runtime.conftest import numpy_kernels

    runtime = Runtime(kernels=[numpy_kernels()], backends={"B": Backend()})
    program = runtime.load_program(network, enable_etdump=True)
    method = program.load_method("forward")
    program.write_etdump_result_to_file(tmp_path / "load.etdp", tmp_path / "unused")
    with pytest.raises(InvalidState, match="nothing was traced since the last ETDump was written"):
        program.write_etdump_result_to_file(tmp_path / "none.etdp", tmp_path / "unused")
    method.execute([np.float32([1, 2])])
    program.write_etdump_result_to_file(tmp_path / "run.etdp", tmp_path / "unused")
    names = [
        [run.name for run in deserialize_etdump((tmp_path / name).read_bytes()).run_data]
        for name in ("load.etdp", "run.etdp")
    ]
    assert names == [["Default"], ["Execute"]]


def test_what_is_refused(network: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidState, match=r"load_program\(…, enable_etdump=True\)"):
        Runtime().load_program(network).write_etdump_result_to_file(tmp_path / "a", tmp_path / "b")
    with pytest.raises(
        InvalidArgument, match=r"debug_buffer_size=8 with enable_etdump=False: .* give enable_etdump=True"
    ):
        Runtime().load_program(network, debug_buffer_size=8)


def test_a_transposed_tensor_is_written_row_by_row() -> None:
    from delegraph.runtime.execution.etdump import make_etdump
    from delegraph.runtime.execution.tracing import EventTracer

    tracer = EventTracer()
    tracer.log_value("x", np.float32([[1, 2], [3, 4]]).T)
    dump, buffer = make_etdump(tracer.blocks)
    assert dump.run_data[0].events
    event = dump.run_data[0].events[0].debug_event
    assert event and event.debug_entry.tensor
    assert event.debug_entry.tensor.strides == [2, 1]
    assert np.frombuffer(buffer, np.float32).tolist() == [1, 3, 2, 4]
