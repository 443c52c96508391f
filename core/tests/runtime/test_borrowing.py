"""Inputs read and outputs written where the caller has them: the results are those of copies, whatever the plan."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegraph.errors import InvalidArgument, InvalidState, InvalidType
from delegraph.plugins.registry import PluginRegistry, use_registry
from delegraph.runtime import BackendInterface, Borrowing, KernelLibrary, Method, Runtime
from delegraph.runtime.values import borrowing

from .conftest import PlanBuilder, numpy_kernels

LARGE = borrowing.BORROWED_FROM // 4


class Doubler(BackendInterface):
    """Gives the sum of its inputs plus the first of them. `seen` is what it was called or bound with."""

    binds_again = True

    def __init__(self, num_outputs: int | None = 1) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.bound = 0
        self._num_outputs = num_outputs

    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        return None

    def num_outputs(self, handle: Any) -> int | None:
        return self._num_outputs

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        self.seen.append(tuple(args))
        *inputs, out = args
        np.copyto(out, np.sum([*inputs, inputs[0]], axis=0, dtype=out.dtype))

    def bind(self, context: Any, handle: Any, args: Any) -> Any:
        self.bound += 1
        return partial(self.execute, context, handle, args)


def loaded(build: PlanBuilder, plan: Any, backend: Any = None, **options: Any) -> Method:
    runtime = Runtime(kernels=[numpy_kernels()], backends={"Doubler": backend or Doubler()})
    return runtime.load_program(build.program(plan)).load_method("forward", borrowing=Borrowing(**options))


def doubler(build: PlanBuilder, size: int = LARGE, **options: Any) -> Any:
    x, out = build.tensor(size, **options), build.tensor(size, **options)
    build.delegate("Doubler", x, out)
    return build.plan([x], [out])


def numbers(size: int = LARGE) -> Any:
    return np.arange(size, dtype=np.float32)


# ---- inputs ------------------------------------------------------------------------------------------


def test_what_only_a_delegate_reads_is_not_copied(build: Any) -> None:
    backend, x = Doubler(), numbers()
    method = loaded(build, doubler(build), backend)
    assert method.borrowed_inputs == (0,)
    out = np.empty_like(x)  # what each call allocates may lie elsewhere
    for _ in range(3):
        np.testing.assert_array_equal(method.execute([x], out=[out])[0], 2 * x)
    assert all(seen.ctypes.data == x.ctypes.data and not seen.flags.writeable for seen, _ in backend.seen)
    assert backend.bound == 1, "bound again where neither the input nor the output lies elsewhere"


@pytest.mark.parametrize(
    ("size", "options", "borrowed"),
    [(LARGE, {}, True), (LARGE - 1, {}, False), (2, {"inputs": "borrow"}, True), (LARGE, {"inputs": "copy"}, False)],
)
def test_what_is_borrowed(build: Any, size: int, options: Any, borrowed: bool) -> None:
    backend, x = Doubler(), numbers(size)
    method = loaded(build, doubler(build, size), backend, **options)
    method.execute([x])
    assert method.borrowed_inputs == ((0,) if borrowed else ())
    assert (backend.seen[0][0].ctypes.data == x.ctypes.data) is borrowed


def test_a_backend_that_does_not_bind_again_gets_copies(build: Any) -> None:
    backend = Doubler()
    backend.binds_again = False  # type: ignore[misc]
    assert loaded(build, doubler(build), backend).borrowed_inputs == ()


@pytest.mark.parametrize("of", ["strided", "unaligned", "swapped", "reversed", "read_only"])
def test_whatever_the_array_is_like(build: Any, of: str) -> None:
    x = numbers()
    unaligned = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32)
    unaligned[:] = x
    read_only = x.copy()
    read_only.flags.writeable = False
    like = {
        "strided": np.repeat(x, 2)[::2],
        "unaligned": unaligned,
        "swapped": x.astype(">f4"),
        "reversed": x[::-1].copy()[::-1],
        "read_only": read_only,
    }[of]
    method = loaded(build, doubler(build))
    np.testing.assert_array_equal(method.execute([like])[0], 2 * x)
    np.testing.assert_array_equal(method.execute([x])[0], 2 * x)
    np.testing.assert_array_equal(like, x)


def test_an_array_is_borrowed_during_the_call_alone(build: Any) -> None:
    method, x = loaded(build, doubler(build)), numbers()
    method.execute([x])
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
    with pytest.raises(InvalidState, match="inputs are not set; execute reads them during its call alone"):
        method.run()
    method.set_inputs([numbers()])
    method.run()
    method.run()
    np.testing.assert_array_equal(method.get_outputs()[0], 2 * numbers())


def test_set_inputs_copies_unless_told_otherwise(build: Any) -> None:
    for mode, expected in (("auto", 2.0), ("copy", 2.0), ("borrow", 6.0)):
        builder, x = PlanBuilder(), np.ones(LARGE, np.float32)
        method = loaded(builder, doubler(builder), inputs=mode)
        method.set_inputs([x])
        x += 2
        method.run()
        assert method.get_outputs()[0][0] == expected, mode


def test_a_new_array_each_time(build: Any) -> None:
    method = loaded(build, doubler(build))
    kept = [numbers() + step for step in range(7)]
    for x in kept * 2:
        np.testing.assert_array_equal(method.execute([x])[0], 2 * x)


def test_views_of_an_input_move_with_it(build: Any) -> None:
    x, out = build.tensor(4, 2), build.tensor(2)
    second = build.tensor(2, at=build.used - 128 + 8)
    build.call("aten::add.out", second, second, build.int(1), out)
    method = loaded(build, build.plan([x], [out]), inputs="borrow")
    assert method.borrowed_inputs == (0,)
    array = numbers(8).reshape(4, 2)
    assert method.execute([array])[0].tolist() == [4, 6]
    assert method.execute([np.asfortranarray(array)])[0].tolist() == [4, 6]


def test_channels_last_views(build: Any) -> None:
    x, out = build.tensor(1, 2, 2, 2, dim_order=(0, 2, 3, 1)), build.tensor(8)
    flat = build.tensor(8, at=0)
    build.call("aten::add.out", flat, flat, build.int(1), out)
    method = loaded(build, build.plan([x], [out]), inputs="borrow")
    array = numbers(8).reshape(1, 2, 2, 2).transpose(0, 3, 1, 2)  # as it lies in memory: 0, 1, 2 …
    for each in (array, np.ascontiguousarray(array)):
        assert method.execute([each])[0].tolist() == (2 * numbers(8)).tolist()


def test_an_input_that_is_written_is_copied(build: Any) -> None:
    x = build.tensor(2)
    build.prim("aten::copy_", x, build.constant(np.float32([7, 7])), build.bool(False), x)
    out = build.call("aten::add.out", x, x, build.int(1), build.tensor(2))
    method, array = loaded(build, build.plan([x], [out]), inputs="borrow"), np.zeros(2, np.float32)
    assert method.borrowed_inputs == ()
    assert method.execute([array])[0].tolist() == [14, 14]
    assert array.tolist() == [0, 0]


def test_a_view_of_an_input_that_is_written_keeps_it_in_its_place(build: Any) -> None:
    x, ones = build.tensor(2), build.constant(np.float32([1, 1]))
    view = build.tensor(2)
    build.prim("executorch_prim::et_view.default", x, build.ints(build.int(2)), view)
    build.prim("aten::copy_", view, ones, build.bool(False), view)
    out = build.call("aten::add.out", ones, ones, build.int(1), build.tensor(2))
    assert loaded(build, build.plan([x], [out]), inputs="borrow").borrowed_inputs == ()


def test_dynamic_inputs(build: Any) -> None:
    x, out = build.tensor(8, dynamic=True), build.tensor(8, dynamic=True)
    build.call("aten::add.out", x, x, build.int(1), out)
    method = loaded(build, build.plan([x], [out]), inputs="borrow")
    for size in (3, 3, 3, 5, 3):
        array = numbers(size)
        np.testing.assert_array_equal(method.execute([array])[0], 2 * array)
        np.testing.assert_array_equal(method.execute([np.repeat(array, 2)[::2]])[0], 2 * array)


def test_inputs_without_planned_memory_can_be_copied(build: Any) -> None:
    x, out = build.tensor(2, planned=False), build.tensor(2)
    build.call("aten::add.out", x, x, build.int(1), out)
    method, array = loaded(build, build.plan([x], [out]), inputs="copy"), np.ones(2, np.float32)
    assert method.borrowed_inputs == ()
    method.set_inputs([array])
    array += 1
    method.run()
    assert method.get_outputs()[0].tolist() == [2, 2]


@pytest.mark.parametrize("name", ["inputs", "outputs"])
def test_an_unknown_mode(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name}='lend': {name} are one of "):
        Borrowing(**{name: "lend"})  # type: ignore[arg-type]


# ---- outputs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, LARGE])
def test_outputs_into_the_callers_arrays(build: Any, size: int) -> None:
    backend, x, out = Doubler(), numbers(size), np.zeros(size, np.float32)
    method = loaded(build, doubler(build, size), backend)
    (result,) = method.execute([x], out=[out])
    assert result is out
    np.testing.assert_array_equal(out, 2 * x)
    assert (backend.seen[0][1].ctypes.data == out.ctypes.data) is (size == LARGE)
    (own,) = method.execute([x], out=[None])
    assert own is not out and (own == 2 * x).all()
    strided = np.zeros(2 * size, np.float32)[::2]
    assert method.execute([x], out=[strided])[0] is strided
    np.testing.assert_array_equal(strided, 2 * x)


def test_outputs_are_the_callers_own(build: Any) -> None:
    method = loaded(build, doubler(build))
    first, second = method.execute([numbers()])[0], method.execute([numbers() + 1])[0]
    np.testing.assert_array_equal(first, 2 * numbers())
    np.testing.assert_array_equal(second, 2 * numbers() + 2)


def test_borrowed_outputs_are_views(build: Any) -> None:
    method = loaded(build, doubler(build), outputs="borrow")
    first = method.execute([numbers()])[0]
    assert method.execute([numbers() + 1])[0] is first
    assert method.execute([numbers()], clone_outputs=True)[0] is not first


def test_outputs_set_for_several_runs(build: Any) -> None:
    method, out = loaded(build, doubler(build, 2)), np.zeros(2, np.float32)
    method.set_outputs([out])
    for step in (1, 2):
        method.set_inputs([np.full(2, step, np.float32)])
        method.run()
        assert method.get_outputs()[0] is out
        assert out.tolist() == [2 * step] * 2
    method.set_outputs(None)
    method.run()
    assert method.get_outputs()[0] is not out


def test_dynamic_outputs_have_the_shape_of_the_run(build: Any) -> None:
    x, out = build.tensor(8, dynamic=True), build.tensor(8, dynamic=True)
    build.call("aten::add.out", x, x, build.int(1), out)
    method, target = loaded(build, build.plan([x], [out])), np.zeros(3, np.float32)
    assert method.execute([numbers(3)], out=[target])[0] is target
    assert target.tolist() == [0, 2, 4]
    with pytest.raises(InvalidArgument, match=r"output 0 is of shape \[2\] in this run, and out has shape \[3\]"):
        method.execute([numbers(2)], out=[target])
    with pytest.raises(InvalidArgument, match=r"out\[0\] has shape \[9\], and the output is float32\[0\.\.8\]"):
        method.execute([numbers(2)], out=[numbers(9)])


def test_outputs_without_planned_memory(build: Any) -> None:
    method = loaded(build, doubler(build, 2, planned=False))
    x, target = numbers(2), np.zeros(2, np.float32)
    assert method.execute([x], out=[target])[0] is target
    assert target.tolist() == [0, 2]
    assert method.execute([x])[0] is not target


def test_what_out_cannot_be(build: Any) -> None:
    x, number = build.tensor(2), build.int(3)
    out = build.call("aten::add.out", x, x, build.int(1), build.tensor(2))
    method, array = loaded(build, build.plan([x], [out, number])), numbers(4)[:2]
    view = method.execute([array], clone_outputs=False)[0]
    read_only = np.zeros(2, np.float32)
    read_only.flags.writeable = False
    good = np.zeros(2, np.float32)
    cases: list[tuple[Any, type[Exception], str]] = [
        ([good], InvalidArgument, "method 'forward' has 2 outputs, and out has 1"),
        ([good, good], InvalidType, r"out\[1\]: this output is not a tensor; give None for it"),
        ([[0, 0], None], InvalidType, r"out\[0\]: expected a NumPy array or a torch tensor, got list"),
        ([np.zeros(2), None], InvalidType, r"out\[0\] is of dtype float64, and the output is of float32"),
        ([np.zeros(3, np.float32), None], InvalidArgument, r"out\[0\] has shape \[3\], and the output is float32\[2\]"),
        ([read_only, None], InvalidArgument, r"out\[0\] cannot be written"),
        ([array, None], InvalidArgument, r"out\[0\] overlaps input 0, which is read"),
        ([view, None], InvalidArgument, r"out\[0\] overlaps memory of the method's own"),
    ]
    for case, error, text in cases:
        with pytest.raises(error, match=text):
            method.execute([array], out=case)
    assert method.execute([array], out=[good, None]) == [good, 3]


def test_targets_that_overlap(build: Any) -> None:
    x = build.tensor(2)
    outs = [build.call("aten::add.out", x, x, build.int(1), build.tensor(2)) for _ in range(2)]
    method, both = loaded(build, build.plan([x], outs)), np.zeros(3, np.float32)
    with pytest.raises(InvalidArgument, match=r"out\[1\] overlaps out\[0\]"):
        method.execute([numbers(2)], out=[both[:2], both[1:]])


def test_targets_that_own_their_memory_can_overlap_as_well(build: Any) -> None:
    x = build.tensor(2)
    outs = [build.call("aten::add.out", x, x, build.int(1), build.tensor(2)) for _ in range(2)]
    method, target, second = loaded(build, build.plan([x], outs)), np.zeros(2, np.float32), np.zeros(2, np.float32)
    for inputs, out, what in (
        ([target], [target, second], "input 0"),
        ([target[:]], [second, target], "input 0"),
        ([np.frombuffer(memoryview(target), np.float32)], [target, second], "input 0"),
        ([numbers(2)], [target, target], r"out\[0\]"),
    ):
        with pytest.raises(InvalidArgument, match=f"overlaps {what}"):
            method.execute(inputs, out=out)
    assert method.execute([numbers(2)], out=[target, second])[0] is target
    np.testing.assert_array_equal([target, second], [[0, 2], [0, 2]])


def test_torch_tensors(build: Any) -> None:
    torch = pytest.importorskip("torch")
    method, x = loaded(build, doubler(build)), torch.arange(LARGE, dtype=torch.float32)
    target = torch.zeros(LARGE)
    assert method.execute([x], out=[target])[0] is target
    assert torch.equal(target, 2 * x)
    assert torch.equal(method.execute([x])[0], 2 * x)
    with pytest.raises(InvalidArgument, match=r"out\[0\] requires a gradient"):
        method.execute([x], out=[torch.zeros(LARGE, requires_grad=True)])
    with pytest.raises(InvalidArgument, match=r"out\[0\] cannot be written"):
        method.execute([x], out=[torch.zeros(LARGE, dtype=torch.complex64).conj().imag])


def test_an_error_leaves_the_method_usable(build: Any) -> None:
    method = loaded(build, doubler(build))
    with pytest.raises(InvalidArgument):
        method.execute([numbers(3)])
    with pytest.raises(InvalidType):
        method.execute([numbers().astype(np.float64)])
    np.testing.assert_array_equal(method.execute([numbers()])[0], 2 * numbers())


# ---- any plan ----------------------------------------------------------------------------------------

places = st.tuples(st.sampled_from([2, 4]), st.integers(0, 6))
steps = st.lists(
    st.tuples(st.sampled_from(["add", "delegate", "move", "copy_"]), *[st.integers(0, 30)] * 3), min_size=1, max_size=6
)


def built(values: Any, program: Any, output: int) -> tuple[PlanBuilder, Any]:
    """A plan whose tensors lie anywhere in 80 bytes, over each other, in steps that take any of them."""
    build = PlanBuilder()
    build.used = 80
    tensors = [build.tensor(size, at=8 * place) for size, place in values]
    sizes = {size: [t for t, (s, _) in zip(tensors, values, strict=True) if s == size] for size in (2, 4)}
    inputs = [tensors[0], tensors[1]]
    for kind, a, b, c in program:
        same = sizes[values[a % len(values)][0]]
        first, second, third = (same[number % len(same)] for number in (a, b, c))
        if kind == "add":
            build.call("aten::add.out", first, second, build.int(1), third)
        elif kind == "delegate":
            build.delegate("Doubler", first, second, third)
        elif kind == "move":
            build.move(first, third)
        else:
            build.prim("aten::copy_", third, first, build.bool(False), third)
    return build, build.plan(inputs, [tensors[output % len(tensors)]])


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(places, min_size=3, max_size=7), steps, st.integers(0, 30), st.sampled_from([1, None]))
def test_any_plan_gives_what_it_gives_with_copies(values: Any, program: Any, output: int, outputs: Any) -> None:
    results: list[list[Any]] = []
    callers: Any = [np.float32([[3, 5, 7, 11], [13, 17, 19, 23]]) * run for run in (1, 2, 3)]
    with use_registry(PluginRegistry()), pytest.MonkeyPatch.context() as patch:
        patch.setattr(borrowing, "BORROWED_FROM", 1)  # all that can be lent is
        for mode in ("copy", "auto", "borrow", "out"):
            build, plan = built(values, program, output)
            method = loaded(build, plan, Doubler(outputs), inputs="copy" if mode == "out" else mode)
            results.append([])
            for rows in callers:
                given_ = [row[:size].copy() for row, (size, _) in zip(rows, values[:2], strict=True)]
                target = [np.empty(values[output % len(values)][0], np.float32)] if mode == "out" else None
                results[-1].append(method.execute(given_, out=target)[0].tolist())
                for row, array in zip(rows, given_, strict=True):
                    assert array.tolist() == row[: len(array)].tolist(), "the caller's array was written"
    assert all(np.array_equal(result, results[0], equal_nan=True) for result in results[1:])


def test_kernels_read_borrowed_inputs_in_place() -> None:
    seen: list[Any] = []
    library = KernelLibrary("seen")

    @library.kernel("test::look.out", bind=lambda *_: pytest.fail("bound to an array that is there for one call"))
    def look(context: Any, x: Any, out: Any) -> None:
        seen.append(x)
        np.negative(x, out)

    build = PlanBuilder()
    x, out = build.tensor(2), build.tensor(2)
    build.call("test::look.out", x, out)
    program = Runtime(kernels=[library]).load_program(build.program(build.plan([x], [out])))
    method, given_ = program.load_method("forward", borrowing=Borrowing(inputs="borrow")), numbers(2)
    assert method.execute([given_])[0].tolist() == [0, -1]
    assert np.shares_memory(seen[0], given_)
    assert not seen[0].flags.writeable
