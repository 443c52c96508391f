"""A dynamic method whose shapes stay runs bound to them, and gives what it gives without."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from delegraph.errors import InvalidArgument
from delegraph.runtime import BackendInterface, KernelLibrary, Method
from delegraph.runtime.binding.shape_bindings import ATTEMPTS, KEPT, ShapeBindings


def bindings_of(method: Method) -> ShapeBindings:
    bindings: ShapeBindings = method._loaded.execute.__wrapped__.__self__  # type: ignore[attr-defined]
    return bindings


def ones(rows: int) -> Any:
    return np.ones((rows, 2), np.float32)


@pytest.fixture
def counted(kernels: KernelLibrary) -> dict[str, int]:
    """How often the kernel of `test::twice.out` looked at shapes, and how often it was bound."""
    calls = {"dynamic": 0, "bound": 0}

    def bind(context: Any, a: Any, out: Any) -> Any:
        calls["bound"] += 1
        return partial(np.multiply, a, 2, context.resize(out, a.shape))

    @kernels.kernel("test::twice.out", bind=bind)
    def twice(context: Any, a: Any, out: Any) -> None:
        calls["dynamic"] += 1
        np.multiply(a, 2, context.resize(out, a.shape))

    @kernels.kernel("test::positive.out")
    def positive(context: Any, a: Any, out: Any) -> None:
        positive = a[a > 0]
        context.resize(out, positive.shape)[...] = positive

    return calls


def twice(build: Any) -> Any:
    x = build.tensor(8, 2, dynamic=True)
    return build.plan([x], [build.call("test::twice.out", x, build.tensor(8, 2, dynamic=True))])


def test_bound_from_the_second_call_in_a_row_on(build: Any, load_method: Any, counted: dict[str, int]) -> None:
    method = load_method(build, twice(build))
    for _ in range(5):
        assert method.execute([ones(3)])[0].tolist() == [[2, 2]] * 3
    assert counted == {"dynamic": 2, "bound": 1}
    assert method.execute([ones(4)])[0].shape == (4, 2)
    assert method.execute([ones(3)])[0].shape == (3, 2)
    assert counted == {"dynamic": 3, "bound": 1}, "what is bound stays bound while another shape passes by"


def test_only_the_last_shapes_are_kept(build: Any, load_method: Any, counted: dict[str, int]) -> None:
    method = load_method(build, twice(build))
    for rows in range(KEPT + 2):
        for _ in range(2):
            assert method.execute([ones(rows)])[0].shape == (rows, 2)
    assert len(bindings_of(method)._bound) == KEPT


def test_shapes_that_come_again_are_kept_before_those_that_do_not(
    build: Any, load_method: Any, counted: dict[str, int]
) -> None:
    method = load_method(build, twice(build))
    for rows in (*range(KEPT), 0, KEPT):  # one more than are kept, behind the first once more
        for _ in range(2):
            method.execute([ones(rows)])
    before = dict(counted)
    method.execute([ones(0)])
    assert counted == before, "it is bound still"
    method.execute([ones(1)])
    assert counted["dynamic"] == before["dynamic"] + 1, "it had to go"


def test_shapes_that_never_stay_are_never_bound(build: Any, load_method: Any, counted: dict[str, int]) -> None:
    method = load_method(build, twice(build))
    for rows in (1, 2, 3, 1, 2, 3, 1, 2, 3):
        method.execute([ones(rows)])
    assert counted == {"dynamic": 9, "bound": 0}


@pytest.mark.parametrize("planned", [True, False])
def test_numbers_lists_and_views_follow_the_shapes(build: Any, load_method: Any, planned: bool) -> None:
    """sizes -> a list -> full -> cat -> a view, over shapes that stay, change and come back."""
    x = build.tensor(4, dynamic=True, planned=planned)
    rows = build.int(0)
    build.prim("aten::sym_size.int", x, build.int(0), rows)
    doubled = build.int(0)
    build.prim("executorch_prim::mul.Scalar", rows, build.int(2), doubled)
    filled = build.call("aten::full.out", build.ints(doubled), build.double(1.0), build.tensor(8, dynamic=True))
    joined = build.call("aten::cat.out", build.tensors(x, filled), build.int(0), build.tensor(12, dynamic=True))
    column = build.tensor(12, 1, dynamic=True, planned=False)
    build.prim("executorch_prim::et_view.default", joined, build.ints(build.int(-1), build.int(1)), column)
    result = build.call(
        "aten::add.out", column, column, build.int(1), build.tensor(12, 1, dynamic=True, planned=planned)
    )
    method = load_method(build, build.plan([x], [result, doubled]))
    for size in (2, 2, 2, 4, 4, 4, 2, 2, 1, 4, 2):
        column_of, number = method.execute([np.full(size, 3, np.float32)])
        assert column_of.ravel().tolist() == [6] * size + [2] * (2 * size)
        assert number == 2 * size
    assert len(bindings_of(method)._bound) == 2


def test_a_shape_that_depends_on_content(build: Any, load_method: Any, counted: dict[str, int]) -> None:
    x = build.tensor(8, dynamic=True)
    chosen = build.call("test::positive.out", x, build.tensor(8, dynamic=True))
    result = build.call("aten::add.out", chosen, chosen, build.int(1), build.tensor(8, dynamic=True))
    method = load_method(build, build.plan([x], [result]))
    for content in ([1, 2, -3], [1, 2, -3], [4, -1, 2], [-1, -1, 5], [1, 2, 3], [1, 1, 1], [-1, 0, 0], [0, 0, 3]) * 3:
        expected = [2 * value for value in content if value > 0]
        assert method.execute([np.float32(content)])[0].tolist() == expected
    for content in ([1, 2, 3], [0, 0, 1], [0, 1, 1]) * 4:
        method.execute([np.float32(content)])
    assert bindings_of(method)._wrong == ATTEMPTS, "and then nothing is bound any more"


def test_so_many_times_is_bound_what_turns_out_wrong(build: Any, load_method: Any, counted: dict[str, int]) -> None:
    x = build.tensor(8, dynamic=True)
    chosen = build.call("test::positive.out", x, build.tensor(8, dynamic=True))
    method = load_method(build, build.plan([x], [build.call("test::twice.out", chosen, build.tensor(8, dynamic=True))]))
    for positive in (1, 2) * 10:
        assert method.execute([np.float32([1] * positive + [-1] * (3 - positive))])[0].tolist() == [2] * positive
    assert counted["bound"] == ATTEMPTS


def test_the_size_of_what_depends_on_content(build: Any, load_method: Any, counted: dict[str, int]) -> None:
    """In memory that it gets as it grows, which no call is bound to."""
    x, rows = build.tensor(8, dynamic=True), build.int(0)
    chosen = build.call("test::positive.out", x, build.tensor(8, dynamic=True, planned=False))
    build.prim("aten::sym_size.int", chosen, build.int(0), rows)
    method = load_method(build, build.plan([x], [chosen, rows]))
    for positive in (2, 2, 2, 1, 3, 0):
        values, size = method.execute([np.float32([1] * positive + [-1] * (3 - positive))])
        assert (values.tolist(), size) == ([1] * positive, positive)


def test_a_number_that_is_read_from_a_tensor(build: Any, load_method: Any) -> None:
    x = build.tensor(4, dynamic=True, dtype="int64")
    number = build.int(0)
    first = build.call("aten::select_copy.int_out", x, build.int(0), build.int(0), build.tensor(dtype="int64"))
    build.prim("aten::_local_scalar_dense", first, number)
    filled = build.call("aten::full.out", build.ints(number), build.double(1.0), build.tensor(9, dynamic=True))
    method = load_method(build, build.plan([x], [filled, number]))
    for value in (3, 3, 3, 5, 3, 3, 1, 1, 1):
        result, read = method.execute([np.int64([value, 0])])
        assert (result.shape, read) == ((value,), value)


def test_the_branch_that_was_not_taken_when_shapes_were_bound(build: Any, load_method: Any) -> None:
    x, flag = build.tensor(4, dynamic=True), build.tensor(dtype="bool")
    target = build.tensor(4, dynamic=True)
    to_else = build.jump_false(flag, -1)
    build.move(build.call("aten::add.out", x, x, build.int(1), build.tensor(4, dynamic=True)), target)
    to_end = build.jump_false(build.bool(False), -1)
    build.land(to_else)
    build.move(build.call("aten::mul.out", x, x, build.tensor(4, dynamic=True)), target)
    build.land(to_end)
    method = load_method(build, build.plan([x, flag], [target]))
    for size, condition in ((3, True), (3, True), (3, True), (3, False), (2, False), (2, False), (2, True), (3, False)):
        value = np.full(size, 3, np.float32)
        assert method.execute([value, np.array(condition)])[0].tolist() == [6 if condition else 9] * size


class Compressing(BackendInterface):
    """Keeps the positive elements, and counts its calls in state of its own."""

    def __init__(self) -> None:
        self.calls = 0

    def init(self, context: Any, processed: Any, compile_specs: Any) -> None:
        return None

    def execute(self, context: Any, handle: None, args: Any) -> None:
        self.calls += 1
        x, out = args
        positive = x[x > 0]
        context.resize(out, positive.shape)[...] = positive + self.calls


def test_a_delegate_with_state_runs_once_a_call(build: Any, load_method: Any) -> None:
    backend = Compressing()
    x, chosen = build.tensor(8, dynamic=True), build.tensor(8, dynamic=True)
    build.delegate("Compressing", x, chosen)
    result = build.call("aten::add.out", chosen, chosen, build.int(1), build.tensor(8, dynamic=True))
    method = load_method(build, build.plan([x], [result]), backends={"Compressing": backend})
    for number, content in enumerate(([1, 2, 0], [1, 2, 0], [1, 2, 0], [0, 0, 3], [1, 1, 1], [1, 2, 0]), 1):
        expected = [2 * (value + number) for value in content if value > 0]
        assert method.execute([np.float32(content)])[0].tolist() == expected
        assert backend.calls == number


def test_a_fault_in_a_bound_call_has_its_place_and_leaves_the_method_usable(
    build: Any, load_method: Any, kernels: KernelLibrary
) -> None:
    @kernels.kernel("test::refuse_ones.out")
    def refuse_ones(context: Any, a: Any, out: Any) -> None:
        if a == 1:
            raise KeyError("one")

    x = build.tensor(4, dynamic=True)
    total = build.call("aten::add.out", x, x, build.int(1), build.tensor(4, dynamic=True))
    first = build.call("aten::select_copy.int_out", total, build.int(0), build.int(0), build.tensor())
    build.call("test::refuse_ones.out", first, build.tensor())
    method = load_method(build, build.plan([x], [total]))
    for _ in range(3):
        assert method.execute([np.zeros(3, np.float32)])[0].tolist() == [0, 0, 0]
    with pytest.raises(InvalidArgument, match=r"instruction 2, test::refuse_ones"):
        method.execute([np.full(3, 0.5, np.float32)])
    with pytest.raises(InvalidArgument):
        method.execute([np.ones(5, np.float32)])
    for size in (3, 3, 2, 3):
        assert method.execute([np.zeros(size, np.float32)])[0].tolist() == [0] * size
