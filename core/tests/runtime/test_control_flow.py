"""Jumps, moves and loops, as ExecuTorch emits them; scalars that instructions overwrite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from delegraph.errors import InvalidArgument, InvalidProgram, LimitExceeded
from delegraph.program.schema import DoubleList, FreeCall
from delegraph.runtime import Limits, Runtime


def branch(build: Any, predicate: int, yes: Any, no: Any, target: int) -> None:
    """`cond` as it is emitted: jump, true branch, move, jump on a constant False, else branch, move."""
    to_else = build.jump_false(predicate, -1)
    build.move(yes(), target)
    to_end = build.jump_false(build.bool(False), -1)
    build.land(to_else)
    build.move(no(), target)
    build.land(to_end)


def test_two_conds_that_are_both_alive(build: Any, load_method: Any) -> None:
    """The branches of both conds have one place in memory; ExecuTorch 1.4.1 gives 20, 10, 10 for this program."""
    predicate, x = build.tensor(dtype="bool"), build.tensor(1)
    branch_place = build.used
    build.used += 64

    def branch_output(op: str, constant: float) -> Any:
        def emit() -> int:
            scalar = build.constant(np.float32([constant]))
            out = build.tensor(1, at=branch_place)
            args = (x, scalar, build.int(1), out) if op == "aten::add.out" else (x, scalar, out)
            return int(build.call(op, *args))

        return emit

    first, second = build.tensor(1), build.tensor(1)
    branch(build, predicate, branch_output("aten::add.out", -3), branch_output("aten::add.out", -1), first)
    branch(build, predicate, branch_output("aten::mul.out", 2), branch_output("aten::mul.out", 3), second)
    total = build.call("aten::add.out", first, second, build.int(1), build.tensor(1))
    method = load_method(build, build.plan([predicate, x], [total, first, second]))

    def run(value: bool, number: float) -> list[float]:
        return [float(out[0]) for out in method.execute([np.array(value), np.float32([number])])]

    assert run(True, 5) == [12, 2, 10]
    assert run(False, 5) == [19, 4, 15]
    assert run(False, 3) == [11, 2, 9]


def test_a_condition_is_false_if_any_element_is(build: Any, load_method: Any) -> None:
    flags, out = build.tensor(2, dtype="bool"), build.tensor(1, dtype="int64")
    branch(build, flags, lambda: build.constant(np.array([1])), lambda: build.constant(np.array([0])), out)
    method = load_method(build, build.plan([flags], [out]))
    assert [method.execute([np.array(values)])[0][0] for values in ([True, True], [True, False])] == [1, 0]


def test_scalars_are_moved(build: Any, load_method: Any) -> None:
    flag = build.tensor(dtype="bool")
    number = build.int(0)
    branch(build, flag, lambda: build.int(7), lambda: build.int(8), number)
    filled = build.call("aten::full.out", build.ints(number), build.double(1.0), build.tensor(8, dynamic=True))
    method = load_method(build, build.plan([flag], [number, filled]))
    for condition, expected in ((True, 7), (False, 8), (True, 7)):
        result, ones = method.execute([np.array(condition)])
        assert (result, ones.shape) == (expected, (expected,))


def test_moving_to_another_kind_of_value_is_refused(build: Any, load_method: Any) -> None:
    build.move(build.int(1), build.tensor(1))
    with pytest.raises(InvalidProgram, match=r"instruction 0, MoveCall\(1, float32\[1\]\): a Int is moved to a Tensor"):
        load_method(build, build.plan())
    build.instructions.clear()
    build.move(build.tensor(1), build.tensor(1, dtype="int32"))
    with pytest.raises(InvalidProgram, match="a FLOAT tensor is moved to a INT tensor"):
        load_method(build, build.plan())
    build.instructions.clear()
    build.move(build.value(DoubleList((1.0,))), build.ints())
    with pytest.raises(InvalidProgram, match="a DoubleList is moved to a IntList"):
        load_method(build, build.plan())


def test_a_jump_on_numbers_is_refused(build: Any, load_method: Any) -> None:
    build.jump_false(build.tensor(1), 0)
    with pytest.raises(InvalidProgram, match="condition is a Bool or a BOOL tensor, not Tensor"):
        load_method(build, build.plan())


def loop_over_rows(build: Any, rows: int, also: str | None = None) -> Any:
    """`map(lambda row: row + y, xs)` as it is emitted."""
    xs, y = build.tensor(rows, 2, dynamic=True), build.tensor(2)
    count, index, done = build.int(0), build.int(0), build.bool(False)
    stacked = build.tensor(rows, 2, dynamic=True)
    build.prim("aten::sym_size.int", xs, build.int(0), count)
    start = len(build.instructions)
    row = build.call("aten::select_copy.int_out", xs, build.int(0), index, build.tensor(2))
    if also is not None:
        build.call(also, row, build.tensor(1))
    added = build.call("aten::add.out", row, y, build.int(1), build.tensor(2))
    build.prim("executorch_prim::et_copy_index.tensor", stacked, added, index)
    build.prim("executorch_prim::add.Scalar", index, build.int(1), index)
    build.prim("executorch_prim::eq.Scalar", index, count, done)
    build.jump_false(done, start)
    build.prim("executorch_prim::sub.Scalar", index, count, index)
    return build.plan([xs, y], [stacked])


def test_a_loop_over_as_many_rows_as_there_are(build: Any, load_method: Any) -> None:
    method = load_method(build, loop_over_rows(build, 5))
    for rows in (3, 5, 1, 3):
        xs = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
        (result,) = method.execute([xs, np.float32([10, 20])])
        np.testing.assert_array_equal(result, xs + np.float32([10, 20]))


def test_a_loop_that_broke_off_begins_anew(build: Any, kernels: Any, load_method: Any) -> None:
    calls = []

    @kernels.kernel("test::third_time.out")
    def third_time(context: Any, self: Any, out: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise ValueError("the third time")

    method = load_method(build, loop_over_rows(build, 4, also="test::third_time.out"))
    xs = np.arange(8, dtype=np.float32).reshape(4, 2)
    with pytest.raises(InvalidArgument, match="the third time"):
        method.execute([xs, np.float32([0, 0])])
    np.testing.assert_array_equal(method.execute([xs, np.float32([1, 1])])[0], xs + 1)


def test_a_loop_that_never_ends(build: Any, load_method: Any) -> None:
    build.jump_false(build.bool(False), 0)
    method = load_method(build, build.plan(), limits=Limits(instructions=1000))
    with pytest.raises(
        LimitExceeded,
        match=r"method 'forward', instruction 0, JumpFalseCall\(False\): 1,000 instructions were run.*: this loop",
    ):
        method.execute([])


def test_chains_run_one_after_the_other(build: Any, kernels: Any) -> None:
    from dataclasses import replace

    x = build.tensor(1)
    doubled = build.call("aten::add.out", x, x, build.int(1), build.tensor(1))
    skip = build.jump_false(build.bool(False), -1)
    build.call("test::fail.out", x, build.tensor(1))
    build.land(skip)
    plan = build.plan([x], [])
    build.instructions.clear()
    squared = build.call("aten::mul.out", doubled, doubled, build.tensor(1))
    second = build.plan([x], [squared])
    both = replace(second, chains=plan.chains + second.chains, operators=tuple(build.operators))
    method = Runtime(kernels=[kernels]).load_program(build.program(both)).load_method("forward")
    assert method.execute([np.float32([3])])[0] == [36]


def test_freeing_keeps_planned_memory(build: Any, load_method: Any) -> None:
    x = build.tensor(1)
    build.instructions.append(FreeCall(x))
    assert load_method(build, build.plan([x], [x])).execute([np.float32([3])])[0] == [3]


def test_the_place_of_a_failing_condition(build: Any, load_method: Any) -> None:
    x = build.tensor(1)
    build.call("aten::add.out", x, x, build.int(1), build.tensor(1))
    build.call("test::fail.out", x, build.tensor(1))
    build.jump_false(build.bool(True), 0)
    method = load_method(build, build.plan([x], []))
    with pytest.raises(InvalidArgument, match="instruction 1, test::fail"):
        method.execute([np.float32([1])])
