"""Check mode: what kernels and delegates do to their arguments is watched, and told with their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from delegraph.errors import Internal
from delegraph.program.schema import Program
from delegraph.runtime import BackendInterface, KernelLibrary, Method, Runtime

X = np.float32([1, -2])


class Backend(BackendInterface):
    """Doubles its input, or what a test says."""

    def __init__(self, execute: Any = None, bound: Any = None) -> None:
        self.run = execute or (lambda context, x, out: np.multiply(x, 2, out=context.resize(out, x.shape)))
        self.bound = bound
        self.executed = 0

    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        return None

    def execute(self, context: Any, handle: Any, args: Sequence[Any]) -> None:
        self.executed += 1
        self.run(context, *args)

    def bind(self, context: Any, handle: Any, args: Sequence[Any]) -> Any:
        return None if self.bound is None else lambda: self.bound(*args)


def delegated(build: Any, *, dynamic: bool = False, dtype: str = "float32", sizes: tuple[int, ...] = (2,)) -> Program:
    x, out = (build.tensor(*sizes, dynamic=dynamic, dtype=dtype) for _ in range(2))
    build.delegate("Doubler", x, out)
    return build.program(build.plan([x], [out]))  # type: ignore[no-any-return]


def loaded(program: Program, backend: Backend | None = None, kernels: Any = (), check: bool | None = True) -> Method:
    runtime = Runtime(kernels=kernels, backends={"Doubler": backend or Backend()}, check=check)
    return runtime.load_program(program).load_method("forward")


def kernel(build: Any, function: Any, *, dynamic: bool = False) -> Method:
    """A method of one call, of `function`."""
    library = KernelLibrary("Test")
    library.kernel("aten::relu.out")(function)
    x, out = build.tensor(2, dynamic=dynamic), build.tensor(2, dynamic=dynamic)
    build.call("aten::relu.out", x, out)
    return loaded(build.program(build.plan([x], [out])), kernels=[library])


def nothing(*_: Any) -> None:
    """Writes nothing."""


# ---- delegates ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_right_runs_as_before(build: Any, dynamic: bool) -> None:
    method = loaded(delegated(build, dynamic=dynamic))
    for _ in range(4):
        (result,) = method.execute([X])
        np.testing.assert_array_equal(result, 2 * X)


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_output_that_is_never_written(build: Any, dynamic: bool) -> None:
    method = loaded(delegated(build, dynamic=dynamic), Backend(nothing))
    message = (
        r"method 'forward', instruction 0, delegate 0 Doubler\(.*\): it did not write its argument 1, float32\[2\],"
        r" which is an output: execute fills its outputs in place, out\[\.\.\.\] = result \(found in check mode\)"
    )
    with pytest.raises(Internal, match=message):
        method.execute([X])


def test_an_output_that_is_written_in_part(build: Any) -> None:
    def half(context: Any, x: Any, out: Any) -> None:
        out[0] = x[0]

    with pytest.raises(Internal, match=r"it left 1 of 2 elements of its argument 1, float32\[2\]"):
        loaded(delegated(build), Backend(half)).execute([X])


def test_small_integers_are_doubted_once(build: Any) -> None:
    """One byte may be what the pattern is; two runs in which it is are none of chance."""
    x = np.array(3, np.int8)
    method = loaded(delegated(build, dtype="int8", sizes=()), Backend(nothing))
    method.execute([x])
    with pytest.raises(Internal, match=r"it did not write its argument 1, int8\[\]"):
        method.execute([x])


def test_a_constant_small_integer_is_written(build: Any) -> None:
    def constant(context: Any, x: Any, out: Any) -> None:
        out[...] = 0xFC

    method = loaded(delegated(build, dtype="uint8", sizes=()), Backend(constant))
    for _ in range(4):
        assert method.execute([np.array(3, np.uint8)])[0] == 0xFC


def test_a_bool_that_is_never_written(build: Any) -> None:
    with pytest.raises(Internal, match=r"it did not write its argument 1, bool\[\]"):
        loaded(delegated(build, dtype="bool", sizes=()), Backend(nothing)).execute([np.array(True)])


@pytest.mark.parametrize("sizes", [(), (3,)])
def test_a_bool_that_is_true_is_written(build: Any, sizes: tuple[int, ...]) -> None:
    def copies(context: Any, x: Any, out: Any) -> None:
        out[...] = x

    x = np.ones(sizes, np.bool_)
    method = loaded(delegated(build, dtype="bool", sizes=sizes), Backend(copies))
    for _ in range(2):
        np.testing.assert_array_equal(method.execute([x])[0], x)


def test_an_input_is_read_only_in_execute(build: Any) -> None:
    def changes(context: Any, x: Any, out: Any) -> None:
        x *= 2
        out[...] = x

    program = delegated(build)
    with pytest.raises(Internal, match=r"delegate 0 Doubler.*ValueError: output array is read-only"):
        loaded(program, Backend(changes)).execute([X])
    loaded(program, Backend(changes), check=False).execute([X])


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_input_that_is_changed_past_numpy(build: Any, dynamic: bool) -> None:
    import ctypes

    def changes(context: Any, x: Any, out: Any) -> None:
        ctypes.memset(x.ctypes.data, 0, x.nbytes)
        context.resize(out, x.shape)[...] = 1

    message = r"it changed its argument 0, float32\[2\], which is an input: others read it too"
    with pytest.raises(Internal, match=message):
        loaded(delegated(build, dynamic=dynamic), Backend(changes)).execute([X])


def test_execute_goes_first_and_then_what_was_bound(build: Any) -> None:
    program, backend = delegated(build), Backend(bound=lambda x, out: np.multiply(x, 2, out=out))
    method = loaded(program, backend)
    for _ in range(3):
        np.testing.assert_array_equal(method.execute([X])[0], 2 * X)
    assert backend.executed == 1
    lazy = loaded(program, Backend(bound=nothing))
    lazy.execute([X])
    with pytest.raises(Internal, match="it did not write its argument 1"):
        lazy.execute([X])


def test_a_nan_that_is_an_input_is_unchanged(build: Any) -> None:
    (result,) = loaded(delegated(build)).execute([np.float32([np.nan, 1])])
    np.testing.assert_array_equal(result, [np.nan, 2])


# ---- kernels --------------------------------------------------------------------------------------------------------


def test_a_result_that_is_the_first_value_of_a_method_is_watched_too(build: Any) -> None:
    library, out, x = KernelLibrary("Test"), build.tensor(2), build.tensor(2)
    library.kernel("aten::relu.out")(nothing)
    build.call("aten::relu.out", x, out)
    method = loaded(build.program(build.plan([x], [out])), kernels=[library])
    with pytest.raises(Internal, match="it did not write its argument 1"):
        method.execute([X])


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_kernel_that_returns_its_result(build: Any, dynamic: bool) -> None:
    message = (
        r"aten::relu\.out\(.*\): it did not write its argument 1, float32\[2\], which is an output; it returned"
        r" float32\[2\], which nobody reads: a kernel writes into out, np\.copyto\(out, result\)"
    )
    with pytest.raises(Internal, match=message):
        kernel(build, lambda context, x, out: np.maximum(x, 0), dynamic=dynamic).execute([X])


def test_a_kernel_that_binds_out_anew(build: Any) -> None:
    def rebinds(context: Any, x: Any, out: Any) -> None:
        out = np.maximum(x, 0)  # noqa: F841

    with pytest.raises(Internal, match=r"did not write its argument 1.*and never binds the name anew"):
        kernel(build, rebinds).execute([X])


def test_a_kernel_that_changes_its_input(build: Any) -> None:
    def changes(context: Any, x: Any, out: Any) -> None:
        np.maximum(x, 0, out=x)
        np.copyto(out, x)

    with pytest.raises(Internal, match=r"it changed its argument 0"):
        kernel(build, changes).execute([X])


def test_a_kernel_in_place_and_one_that_leaves_its_result(build: Any) -> None:
    """An output that is an input too is not overwritten before; and of `empty` nothing is expected."""
    library = KernelLibrary("Test")
    library.kernel("aten::relu.out")(lambda context, x, out: np.maximum(x, 0, out=out))
    library.kernel("aten::empty.out")(lambda context, sizes, out: None)
    x, out = build.tensor(2), build.tensor(2)
    build.call("aten::relu.out", x, x)
    build.call("aten::empty.out", build.ints(build.int(2)), out)
    method = loaded(build.program(build.plan([x], [x, out])), kernels=[library])
    np.testing.assert_array_equal(method.execute([X])[0], [1, 0])


def test_what_is_written_in_place_may_hold_anything(build: Any) -> None:
    """Also the NaN that stands for what was not written."""
    library, x = KernelLibrary("Test"), build.tensor(2)
    library.kernel("aten::relu.out")(nothing)
    build.call("aten::relu.out", x, x)
    method = loaded(build.program(build.plan([x], [x])), kernels=[library])
    unwritten = np.full(2, 0xFFFFFFFF, np.uint32).view(np.float32)
    assert np.isnan(method.execute([unwritten])[0]).all()


# ---- how it is asked for --------------------------------------------------------------------------------------------


def test_by_the_environment(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program = delegated(build)
    assert loaded(program, Backend(nothing), check=None).execute([X])
    monkeypatch.setenv("DELEGRAPH_CHECK", "1")
    with pytest.raises(Internal, match="check mode"):
        loaded(program, Backend(nothing), check=None).execute([X])
    assert loaded(program, Backend(nothing), check=False).execute([X])
    monkeypatch.setenv("DELEGRAPH_CHECK", "0")
    assert loaded(program, Backend(nothing), check=None).execute([X])


def test_off_nothing_is_put_around_calls(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegraph.runtime.binding.checking.InstructionCheck", None)
    program = delegated(build)
    np.testing.assert_array_equal(loaded(program, check=False).execute([X])[0], 2 * X)
    with pytest.raises(Internal, match="'NoneType' object is not callable"):
        loaded(program, check=True)
