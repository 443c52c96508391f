"""A method runs its instructions on planned memory; its results are the caller's own."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from delegraph.errors import (
    DelegateInvalidHandle,
    Internal,
    InvalidArgument,
    InvalidState,
    InvalidType,
    MemoryAllocationFailed,
    NotFound,
    OperatorMissing,
)
from delegraph.program.schema import Frame, Int, Null
from delegraph.runtime import (
    HierarchicalAllocator,
    KernelLibrary,
    MemoryAllocator,
    MemoryManager,
    Method,
    Runtime,
)


def adder(build: Any, *sizes: int, **options: Any) -> Any:
    """x + y, both of `sizes`."""
    x, y = build.tensor(*sizes, **options), build.tensor(*sizes, **options)
    out = build.call("aten::add.out", x, y, build.int(1), build.tensor(*sizes, **options))
    return build.plan([x, y], [out])


def test_runs_on_planned_memory(build: Any, load_method: Any) -> None:
    method = load_method(build, adder(build, 2, 3))
    (result,) = method.execute([np.ones((2, 3), np.float32), np.full((2, 3), 4, np.float32)])
    np.testing.assert_array_equal(result, np.full((2, 3), 5, np.float32))


def test_results_are_the_callers_own(build: Any, load_method: Any) -> None:
    method = load_method(build, adder(build, 2))
    ones = np.ones(2, np.float32)
    (first,) = method.execute([ones, ones])
    method.execute([first, first])
    np.testing.assert_array_equal(first, [2, 2])
    (view,) = method.execute([ones, ones], clone_outputs=False)
    method.execute([first, first])
    np.testing.assert_array_equal(view, [4, 4])


def test_inputs_persist_between_runs(build: Any, load_method: Any) -> None:
    method = load_method(build, adder(build, 2))
    with pytest.raises(InvalidState, match="method 'forward': its inputs were never set"):
        method.run()
    method.set_inputs([np.ones(2, np.float32)] * 2)
    method.run()
    method.run()
    np.testing.assert_array_equal(method.get_outputs()[0], [2, 2])


def test_values_at_one_place_are_one_tensor(build: Any, load_method: Any) -> None:
    """A static view has no instruction: it is another value at the same place."""
    x = build.tensor(2, 3)
    flat = build.tensor(6, at=0)
    row = build.constant(np.arange(6, dtype=np.float32))
    build.call("aten::add.out", flat, row, build.int(1), flat)
    method = load_method(build, build.plan([x], [x, flat]))
    as_matrix, as_row = method.execute([np.zeros((2, 3), np.float32)])
    np.testing.assert_array_equal(as_matrix, [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(as_row, np.arange(6))


def test_dim_order_gives_strides(build: Any, load_method: Any) -> None:
    order = (0, 2, 3, 1)
    weight = np.random.default_rng(0).random((2, 3, 4, 5), np.float32)
    x = build.tensor(2, 3, 4, 5, dim_order=order)
    out = build.call("aten::mul.out", x, build.constant(weight, order), build.tensor(2, 3, 4, 5, dim_order=order))
    (result,) = load_method(build, build.plan([x], [out])).execute([np.full(weight.shape, 2, np.float32)])
    np.testing.assert_array_equal(result, weight * 2)
    assert result.transpose(order).flags.c_contiguous


def test_lists_are_lists(build: Any, load_method: Any) -> None:
    x, y = build.tensor(1, 2), build.tensor(1, 2)
    joined = build.call("aten::cat.out", build.tensors(x, y), build.int(0), build.tensor(2, 2))
    first, second = build.tensor(1, 2), build.tensor(1, 2)
    outs = build.tensors(first, second)
    build.prim("aten::split_copy.Tensor_out", joined, build.int(1), build.int(0), outs, build.tensors(first, second))
    method = load_method(build, build.plan([x, y], [second, first]))
    results = method.execute([np.array([[1, 2]], np.float32), np.array([[3, 4]], np.float32)])
    np.testing.assert_array_equal(results, [[[3, 4]], [[1, 2]]])


def test_a_list_of_outputs_is_the_callers_own(build: Any, load_method: Any) -> None:
    x = build.tensor(2)
    method = load_method(build, build.plan([x], [build.tensors(x, x)]))
    (first,) = method.execute([np.float32([1, 2])])
    method.execute([np.float32([3, 4])])
    np.testing.assert_array_equal(first, [[1, 2], [1, 2]])
    (views,) = method.get_outputs(clone_outputs=False)
    method.execute([np.float32([5, 6])])
    np.testing.assert_array_equal(views, [[5, 6], [5, 6]])


def test_outputs_are_there_once_a_run_has_made_them(build: Any, load_method: Any) -> None:
    x, y = build.tensor(2, dynamic=True), build.tensor(2, dynamic=True)
    method = load_method(build, build.plan([x, y], [build.call("aten::mul.out", x, y, build.tensor(2, dynamic=True))]))
    ones = np.ones(2, np.float32)
    method.set_inputs([ones, ones])
    with pytest.raises(InvalidState, match="method 'forward' has no outputs yet"):
        method.get_outputs()
    method.run()
    np.testing.assert_array_equal(method.get_outputs()[0], ones)
    with pytest.raises(InvalidArgument):
        method.execute([ones, np.ones(0, np.float32)])
    with pytest.raises(InvalidState, match="its last run failed, or none was made"):
        method.get_outputs()


class Evasive(np.ndarray[Any, Any]):
    """An array that answers NumPy's functions itself, with nothing."""

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> None:
        return None


def test_an_input_of_a_subclass_is_its_elements(build: Any, load_method: Any) -> None:
    method = load_method(build, adder(build, 2))
    ones = np.ones(2, np.float32)
    np.testing.assert_array_equal(method.execute([ones, ones.view(Evasive)])[0], [2, 2])
    np.testing.assert_array_equal(method.execute([ones, np.ma.array(ones * 3)])[0], [4, 4])


def test_an_input_with_masked_elements_is_refused(build: Any, load_method: Any) -> None:
    method = load_method(build, adder(build, 2))
    masked = np.ma.array(np.ones(2, np.float32), mask=[True, False])
    with pytest.raises(InvalidArgument, match=r"input 1: the array has masked elements; pass array\.filled\(value\)"):
        method.execute([np.ones(2, np.float32), masked])


def test_outputs_can_be_scalars_constants_and_inputs(build: Any, load_method: Any) -> None:
    x, weight = build.tensor(1), build.constant(np.float32([7]))
    method = load_method(build, build.plan([x], [build.int(3), build.value(Null()), weight, x, build.bool(True)]))
    three, nothing, constant, same, yes = method.execute([np.float32([5])])
    assert (three, nothing, yes) == (3, None, True)
    constant[0] = same[0] = 0  # the caller's own
    assert [a.tolist() for a in method.execute([np.float32([5])])[2:4]] == [[7], [5]]


# ---- mutable state -----------------------------------------------------------------------------------


def counter(build: Any, **options: Any) -> Any:
    state, x = build.tensor(2, **options), build.tensor(2)
    total = build.call("aten::add.out", state, x, build.int(1), build.tensor(2))
    build.prim("aten::copy_", state, total, build.bool(False), state)
    return build.plan([x], [total])


def test_state_lives_as_long_as_the_method(build: Any, kernels: Any) -> None:
    program = Runtime(kernels=[kernels]).load_program(build.program(counter(build)))
    method, array = program.load_method("forward"), np.ones(2, np.float32)
    assert [method.execute([array])[0][0] for _ in range(3)] == [1, 2, 3]
    assert program.load_method("forward").execute([array])[0][0] == 1


def test_state_begins_with_its_initial_data(build: Any, load_method: Any) -> None:
    method = load_method(build, counter(build, initial=np.float32([5, 6]), name="cache"))
    method.execute([np.ones(2, np.float32)])
    np.testing.assert_array_equal(method.get_attribute("cache"), [6, 7])
    method.get_attribute("cache")[:] = 0
    np.testing.assert_array_equal(method.execute([np.ones(2, np.float32)])[0], [1, 1])
    assert method.metadata.attribute_names() == ("cache",)


def test_unknown_attribute(build: Any, load_method: Any) -> None:
    method = load_method(build, counter(build, name="cache"))
    with pytest.raises(NotFound, match="method 'forward': there is no mutable buffer 'cash'; there is cache"):
        method.get_attribute("cash")


def test_an_attribute_where_there_are_none(build: Any, load_method: Any) -> None:
    method = load_method(build, counter(build))
    message = "no mutable buffer 'cache'; the model changes no buffer, or it was lowered without emit_mutable_buf"
    with pytest.raises(NotFound, match=message):
        method.get_attribute("cache")


# ---- what the caller shares --------------------------------------------------------------------------


def test_unplanned_inputs_share_and_outputs_are_fresh(build: Any) -> None:
    seen: list[Any] = []
    library = KernelLibrary("seen")

    @library.kernel("test::look.out")
    def look(context: Any, x: Any, out: Any) -> None:
        seen.append(x)
        np.negative(x, out)

    x = build.tensor(2, 3, planned=False)
    out = build.call("test::look.out", x, build.tensor(2, 3, planned=False))
    method = Runtime(kernels=[library]).load_program(build.program(build.plan([x], [out]))).load_method("forward")
    array = np.ones((2, 3), np.float32)
    (first,) = method.execute([array])
    assert np.shares_memory(seen[0], array)
    assert not seen[0].flags.writeable
    (second,) = method.execute([np.asfortranarray(array * 2)])  # of another layout: copied
    assert seen[1].flags.c_contiguous
    np.testing.assert_array_equal(first, -array)
    np.testing.assert_array_equal(second, -2 * array)


def test_an_unplanned_output_that_is_an_input_is_copied(build: Any, load_method: Any) -> None:
    x = build.tensor(2, planned=False)
    method = load_method(build, build.plan([x], [x]))
    array = np.ones(2, np.float32)
    (result,) = method.execute([array])
    assert not np.shares_memory(result, array)


def test_planned_memory_of_the_caller(build: Any, load_method: Any) -> None:
    plan = adder(build, 2)
    memory = bytearray(build.used)
    manager = MemoryManager(HierarchicalAllocator([memory]))
    method = load_method(build, plan, memory_manager=manager)
    method.execute([np.ones(2, np.float32)] * 2)
    assert np.frombuffer(memory, np.float32, 2).tolist() == [1, 1]


def test_planned_memory_that_is_too_small(build: Any, load_method: Any) -> None:
    manager = MemoryManager(HierarchicalAllocator([bytearray(64)]))
    with pytest.raises(
        MemoryAllocationFailed, match="planned memory is too small: memory_id 1 needs 192 bytes, given 64"
    ):
        load_method(build, adder(build, 2), memory_manager=manager)
    with pytest.raises(MemoryAllocationFailed, match="read-only"):
        HierarchicalAllocator([bytes(64)])


def test_temporary_memory_is_reset_after_each_instruction(build: Any) -> None:
    library = KernelLibrary("temp")

    @library.kernel("test::twice.out")
    def twice(context: Any, x: Any, out: Any) -> None:
        temp = context.allocate_temp(x.shape, x.dtype)
        np.add(x, x, temp)
        np.copyto(out, temp)

    x = build.tensor(16)
    doubled = build.call("test::twice.out", x, build.tensor(16))
    quadrupled = build.call("test::twice.out", doubled, build.tensor(16))
    program = Runtime(kernels=[library]).load_program(build.program(build.plan([x], [quadrupled])))
    enough = MemoryManager(HierarchicalAllocator([bytearray(build.used)]), MemoryAllocator(bytearray(192)))
    method = program.load_method("forward", memory_manager=enough)
    np.testing.assert_array_equal(method.execute([np.ones(16, np.float32)])[0], np.full(16, 4))
    small = MemoryManager(HierarchicalAllocator([bytearray(build.used)]), MemoryAllocator(bytearray(32)))
    with pytest.raises(
        MemoryAllocationFailed, match=r"instruction 0, test::twice.*: temporary memory of 32 bytes is too"
    ):
        program.load_method("forward", memory_manager=small).execute([np.ones(16, np.float32)])


# ---- what can go wrong -------------------------------------------------------------------------------


def test_wrong_inputs(build: Any, load_method: Any) -> None:
    method = load_method(build, adder(build, 2, 3))
    good = np.ones((2, 3), np.float32)
    expected = r"method 'forward', input 1: expected float32\[2, 3\], got "
    with pytest.raises(
        InvalidArgument, match=r"takes 2 inputs \(input 0: float32\[2, 3\], input 1: float32\[2, 3\]\), got 1"
    ):
        method.execute([good])
    with pytest.raises(InvalidType, match=expected + r"dtype float64; pass array.astype\('float32'\)"):
        method.execute([good, good.astype(np.float64)])
    with pytest.raises(InvalidArgument, match=expected + r"shape \[6\]"):
        method.execute([good, good.reshape(6)])
    with pytest.raises(InvalidArgument, match=expected + r"shape \[3, 2\]"):
        method.execute([good, good.T])
    with pytest.raises(InvalidType, match=expected + r"list; pass numpy.asarray"):
        method.execute([good, [1.0, 2.0]])
    np.testing.assert_array_equal(method.execute([good, good])[0], good * 2)


def test_inputs_of_any_strides(build: Any, load_method: Any) -> None:
    method = load_method(build, adder(build, 2, 3))
    base = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(method.execute([base[::2], base[::-2]])[0], base[::2] + base[::-2])


def test_scalar_inputs_are_those_of_the_export(build: Any, load_method: Any) -> None:
    from delegraph.program.schema import String

    inputs = [build.int(3), build.double(0.5), build.bool(True), build.value(String("sum")), build.value(Null())]
    method = load_method(build, build.plan(inputs, inputs))
    good = [np.int64(3), 0.5000001, True, "sum", None]
    assert method.execute(good) == [3, 0.5, True, "sum", None]

    def changed(index: int, value: object) -> list[object]:
        return [value if i == index else argument for i, argument in enumerate(good)]

    with pytest.raises(
        InvalidArgument, match="input 0: expected 3, got 4: the model was exported with this value fixed"
    ):
        method.execute(changed(0, 4))
    with pytest.raises(InvalidType, match="input 0: expected the int 3, got bool"):
        method.execute(changed(0, True))
    with pytest.raises(InvalidArgument, match=r"input 1: expected 0\.5, got 0\.6"):
        method.execute(changed(1, 0.6))
    with pytest.raises(InvalidType, match="input 2: expected the bool True, got int"):
        method.execute(changed(2, 1))
    with pytest.raises(InvalidArgument, match="input 3: expected 'sum', got 'mean'"):
        method.execute(changed(3, "mean"))
    with pytest.raises(InvalidType, match="input 4: expected None, as when the model was exported, got int"):
        method.execute(changed(4, 0))


def test_a_failing_kernel_says_where(build: Any, load_method: Any) -> None:
    flag = build.tensor(1)
    ok = build.call("aten::add.out", flag, flag, build.int(1), build.tensor(1))
    build.call("test::fail.out", ok, build.tensor(1))
    method = load_method(build, build.plan([flag], []))
    place = r"method 'forward', instruction 1, test::fail.out\(float32\[1\], float32\[1\], float32\[1\]\): "
    with pytest.raises(InvalidArgument, match=place + "KeyError: 'told to fail'") as caught:
        method.execute([np.ones(1, np.float32)])
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(InvalidType, match=place + "TypeError"):
        method.execute([np.zeros(1, np.float32)])  # raises what is no exception


def test_a_fault_names_the_users_line(build: Any, load_method: Any) -> None:
    from dataclasses import replace

    flag = build.tensor(1)
    build.call("test::fail.out", flag, build.tensor(1))
    plan = build.plan([flag], [])
    frames = ((Frame("model.py", 1, "main"), Frame("model.py", 42, "forward", "return x / y")),)
    plan = replace(plan, chains=(replace(plan.chains[0], stacktrace=frames),))
    with pytest.raises(InvalidArgument, match=r"at model.py:42 in forward: return x / y"):
        load_method(build, plan).execute([np.ones(1, np.float32)])


@pytest.mark.parametrize(
    ("raised", "fault"),
    [(MemoryError(), MemoryAllocationFailed), (RuntimeError("x"), Internal), (ValueError(), InvalidArgument)],
)
def test_what_a_kernels_exception_means(build: Any, raised: Exception, fault: type[Exception]) -> None:
    library = KernelLibrary("raises")

    @library.kernel("test::raise.out")
    def fail(context: Any, out: Any) -> None:
        raise raised

    out = build.call("test::raise.out", build.tensor(1))
    method = Runtime(kernels=[library]).load_program(build.program(build.plan([], [out]))).load_method("forward")
    with pytest.raises(fault, match=r"instruction 0, test::raise\.out"):
        method.execute([])


def test_a_kernel_that_fails_to_bind_says_where(build: Any) -> None:
    library = KernelLibrary("unbindable")

    def bind(context: Any, out: Any) -> None:
        raise ValueError("no such packing")

    @library.kernel("test::pack.out", bind=bind)
    def pack(context: Any, out: Any) -> None: ...

    out = build.call("test::pack.out", build.tensor(1))
    program = Runtime(kernels=[library]).load_program(build.program(build.plan([], [out])))
    with pytest.raises(InvalidArgument, match=r"instruction 0, test::pack\.out.*: ValueError: no such packing"):
        program.load_method("forward")


def test_all_missing_operators_are_listed(build: Any, load_method: Any) -> None:
    x = build.tensor(2)
    build.call("aten::sin.out", x, build.tensor(2))
    build.call("aten::add.out", x, x, build.int(1), build.tensor(2))
    build.call("aten::cos.out", x, build.tensor(2))
    with pytest.raises(OperatorMissing, match="method 'forward': no kernel for") as caught:
        load_method(build, build.plan([x], []))
    assert "aten::sin.out on v1/6;0|6;0" in str(caught.value)
    assert "aten::cos.out" in str(caught.value)
    assert "aten::add.out" not in str(caught.value)
    assert "kernel libraries asked (numpy)" in str(caught.value)


def test_one_thread_at_a_time(build: Any) -> None:
    entered, leave = threading.Event(), threading.Event()
    library = KernelLibrary("slow")

    @library.kernel("test::wait.out")
    def wait(context: Any, out: Any) -> None:
        entered.set()
        assert leave.wait(60)

    out = build.call("test::wait.out", build.tensor(1))
    method = Runtime(kernels=[library]).load_program(build.program(build.plan([], [out]))).load_method("forward")
    thread = threading.Thread(target=method.execute, args=([],))
    thread.start()
    assert entered.wait(60)
    try:
        with pytest.raises(
            InvalidState, match="method 'forward' is executing in another thread; give each thread a session"
        ):
            method.execute([])
    finally:
        leave.set()
        thread.join()
    assert len(method.execute([])) == 1


def test_methods_of_one_program_run_concurrently(build: Any, kernels: Any) -> None:
    program = Runtime(kernels=[kernels]).load_program(build.program(counter(build)))
    results: dict[int, list[float]] = {}

    def work(step: int) -> None:
        method = program.load_method("forward")
        results[step] = [method.execute([np.full(2, step, np.float32)])[0][0] for _ in range(200)]

    threads = [threading.Thread(target=work, args=(step,)) for step in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {step: [step * (i + 1) for i in range(200)] for step in (1, 2, 3, 4)}


def test_floating_point_warnings_are_off(build: Any, load_method: Any) -> None:
    method = load_method(build, adder(build, 1))
    largest = np.array([np.finfo(np.float32).max])
    assert np.isinf(method.execute([largest, largest])[0][0])


def test_a_method_is_freed_with_its_last_reference(build: Any, load_method: Any) -> None:
    method: Method = load_method(build, adder(build, 2))
    method.execute([np.ones(2, np.float32)] * 2)
    gone = weakref.ref(method)
    gc.disable()
    try:
        del method
        assert gone() is None
    finally:
        gc.enable()


def test_a_closed_method_does_not_run(build: Any, load_method: Any) -> None:
    method = load_method(build, adder(build, 2))
    method.close()
    with pytest.raises(DelegateInvalidHandle, match="method 'forward' was closed; load it again"):
        method.execute([np.ones(2, np.float32)] * 2)


def test_metadata(build: Any, load_method: Any) -> None:
    x = build.tensor(2, 3, dynamic=True)
    meta = load_method(build, build.plan([x, build.int(3)], [build.constant(np.int64([1]))])).metadata
    assert (meta.name(), meta.num_inputs(), meta.num_outputs(), meta.num_attributes()) == ("forward", 2, 1, 0)
    info = meta.input_tensor_meta(0)
    assert (info.sizes(), info.dtype(), info.nbytes(), info.is_memory_planned(), info.is_dynamic()) == (
        (2, 3),
        6,
        24,
        True,
        True,
    )
    assert meta.memory_planned_buffer_size(0) == 64
    assert meta.input_value(1) == Int(3)
    assert repr(meta) == (
        "MethodMeta('forward', inputs=[TensorInfo(float[2, 3], dynamic, planned), Int(value=3)],"
        " outputs=[TensorInfo(long[1], planned)])"
    )
    with pytest.raises(InvalidArgument, match=r"input 1 is no tensor but Int\(value=3\)"):
        meta.input_tensor_meta(1)
    with pytest.raises(InvalidArgument, match="there is no output 1; the method has 1"):
        meta.output_tensor_meta(1)
