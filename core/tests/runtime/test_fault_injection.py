"""Whatever of a stranger's fails, at whichever call: an error of ours comes out, nothing is lost, and life goes on.

One life of a method (load, run three times, reset its state, close) calls a loader, a platform, a backend and kernels
some dozens of times. Each test fails one of these calls, each in its turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegraph.errors import AccessFailed, DelegraphError, MemoryAllocationFailed
from delegraph.program.files.serialize import serialize_program
from delegraph.runtime import BackendInterface, BufferDataLoader, KernelLibrary, Module, Platform, Runtime

from .conftest import PlanBuilder

X = np.float32([1, 2])
SUMS = np.float32([[13, 25], [14, 27], [15, 29]])
"""The results of three calls: (x + 10 + [2, 3]) + state, whose first value is [0, 10] and which grows by x at each."""


@dataclass
class Faults:
    """Counts the calls of what strangers wrote, and fails the one that it was told to fail."""

    fail: int | None = None
    error: BaseException | None = None
    afterwards: bool = False
    calls: list[str] = field(default_factory=list)

    def at(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            due = len(self.calls) - 1 == self.fail
            if due and not self.afterwards:
                raise self.told()
            result = function(*args, **kwargs)
            if due:
                raise self.told()
            return result

        return watched

    def told(self) -> BaseException:
        assert self.error is not None
        return self.error


class Loader(BufferDataLoader):
    def __init__(self, faults: Faults, data: bytes) -> None:
        super().__init__(data)
        for name in ("load", "size", "release"):
            setattr(self, name, faults.at(f"loader.{name}", getattr(self, name)))


class Adder(BackendInterface):
    """Adds the number in its blob."""

    def __init__(self, faults: Faults) -> None:
        self.alive: Counter[float] = Counter()
        self._open, self._close = faults.at("backend.init", float), faults.at("backend.destroy", float)
        for name in ("is_available", "check", "execute"):
            setattr(self, name, faults.at(f"backend.{name}", getattr(self, name)))

    def init(self, context: Any, processed: Any, compile_specs: Sequence[Any]) -> float:
        number: float = self._open(bytes(processed))
        self.alive[number] += 1  # from here on there is something to destroy
        return number

    def execute(self, context: Any, handle: float, args: Sequence[Any]) -> None:
        np.add(args[0], handle, out=args[1])

    def destroy(self, handle: float) -> None:
        self.alive[handle] -= 1
        self._close(handle)


def kernels(faults: Faults) -> KernelLibrary:
    library = KernelLibrary("watched")

    def bind(context: Any, a: Any, b: Any, alpha: Any, out: Any) -> Callable[[], Any]:
        return faults.at("kernel.bound", partial(np.add, a, b, out))

    @library.kernel("aten::add.out", bind=faults.at("kernel.bind", bind))
    def add_out(context: Any, a: Any, b: Any, alpha: Any, out: Any) -> None:
        np.add(a, b, out)

    @library.kernel("aten::copy_")
    def copy_(context: Any, self: Any, source: Any, non_blocking: bool) -> None:
        faults.at("kernel.copy_", np.copyto)(self, source)

    return library


def program() -> bytes:
    build = PlanBuilder()
    x, state = build.tensor(2, name="x"), build.tensor(2, initial=np.float32([0, 10]), name="state")
    delegated, shifted, total = build.tensor(2), build.tensor(2), build.tensor(2)
    unit = build.int(1)
    build.delegate("Adder", x, delegated, blob=b"10")
    build.call("aten::add.out", delegated, build.constant(np.float32([2, 3])), unit, shifted)
    build.call("aten::add.out", shifted, state, unit, total)
    build.prim(
        "aten::copy_", state, build.call("aten::add.out", state, x, unit, build.tensor(2)), build.bool(False), state
    )
    return serialize_program(build.program(build.plan([x], [total])))


@dataclass
class Life:
    """A program with all that strangers gave to it; `run` is its whole life."""

    faults: Faults

    def __post_init__(self) -> None:
        self.backend = Adder(self.faults)
        watched = {name: getattr(Platform(), name) for name in ("current_ticks", "allocate", "log")}
        platform = Platform(**{name: self.faults.at(f"platform.{name}", old) for name, old in watched.items()})
        self.runtime = Runtime(kernels=[kernels(self.faults)], backends={"Adder": self.backend}, platform=platform)
        self.module: Module | None = None

    def load(self) -> Module:
        self.module = Module(self.runtime.load_program(Loader(self.faults, program())))
        return self.module

    def check(self) -> None:
        assert self.module is not None
        for expected in SUMS:
            np.testing.assert_array_equal(self.module(X)[0], expected)
        self.module.state.reset()

    def run(self) -> None:
        self.load()
        self.check()
        self.close()

    def close(self) -> None:
        if self.module is not None:
            module, self.module = self.module, None
            module["forward"].method.close()


def undisturbed() -> list[str]:
    faults = Faults()
    Life(faults).run()
    return faults.calls


def test_a_life_calls_all_of_them() -> None:
    expected = {f"loader.{n}" for n in ("load", "size")} | {f"backend.{n}" for n in ("init", "execute", "destroy")}
    expected |= {"platform.allocate", "kernel.bind", "kernel.bound", "kernel.copy_"}
    assert set(undisturbed()) >= expected


ERRORS = [OSError(5, "Input/output error"), MemoryError(), RecursionError("deep"), AssertionError(), KeyError("x")]
INTERRUPTS = [KeyboardInterrupt(), SystemExit(3), GeneratorExit()]


SWALLOWED = {"backend.destroy", "loader.release", "platform.log"}
"""The calls that may fail without an error: there is nobody whose call it was, or nothing that depends on it."""


@pytest.mark.parametrize("afterwards", [False, True], ids=["before", "afterwards"])
@pytest.mark.parametrize("error", [*ERRORS, *INTERRUPTS], ids=lambda error: type(error).__name__)
def test_one_call_fails(error: BaseException, afterwards: bool) -> None:
    faults = [
        f"{name}, call {number}: {fault}"
        for number, name in enumerate(undisturbed())
        if (fault := fault_of(Life(Faults(number, error, afterwards)), name, error))
    ]
    assert not faults, "\n".join(faults)


def fault_of(life: Life, name: str, error: BaseException) -> str | None:
    """The faults after a call of `name` raised `error`, at that time or later."""
    try:
        life.run()
    except BaseException as caught:
        if not isinstance(caught, DelegraphError if isinstance(error, Exception) else type(error)):
            return f"{caught!r} came out"
    else:
        if name not in SWALLOWED:
            return "nobody was told"
    life.faults.fail = None
    return left_behind(life)


def left_behind(life: Life) -> str | None:
    """Loaded methods work on, from their initial state; others can be loaded; no handle is left behind."""
    try:
        module = life.module or life.load()
        module.state.reset()
        life.check()
        life.close()
    except Exception as caught:
        return f"afterwards {caught!r}"
    return f"handles that nobody destroyed: {life.backend.alive}" if any(life.backend.alive.values()) else None


class Short(BufferDataLoader):
    """Gives less than it was asked for."""

    def load(self, offset: int, size: int) -> Any:
        return super().load(offset, size)[: size // 2]


def test_a_loader_that_gives_too_little() -> None:
    with pytest.raises(AccessFailed, match=r"Short: bytes .* were asked for, but it ends at"):
        Runtime().load_program(Short(program()))


@pytest.mark.parametrize(
    ("allocate", "message"),
    [
        (lambda nbytes: np.zeros(nbytes // 2, np.uint8), r"the platform's allocate\(\d+\) gave \d+ bytes"),
        (bytes, "is read-only"),
        (lambda nbytes: None, r"the platform's allocate\(\d+\) raised TypeError"),
    ],
    ids=["short", "read-only", "nothing"],
)
def test_memory_that_cannot_be_used(allocate: Callable[[int], Any], message: str) -> None:
    loaded = Runtime(
        kernels=[kernels(Faults())], backends={"Adder": Adder(Faults())}, platform=Platform(allocate=allocate)
    )
    with pytest.raises(MemoryAllocationFailed, match=message):
        loaded.load_program(program()).load_method("forward")


def test_a_file_object_that_cannot_be_read(tmp_path: Path) -> None:
    with (
        (tmp_path / "m.pte").open("wb") as written,
        pytest.raises(AccessFailed, match="the file object cannot be read: UnsupportedOperation"),
    ):
        Runtime().load_program(written)
