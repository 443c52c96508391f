"""Ctrl-C at any point leaves a Method usable, its results right."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from delegraph.errors import InvalidState
from delegraph.runtime import KernelLibrary, Runtime

INTERRUPTS = 3000


def layers(build: Any) -> Any:
    """x + 6 * x, in six steps."""
    x = value = build.tensor(8)
    for _ in range(6):
        value = build.call("aten::add.out", value, x, build.int(1), build.tensor(8))
    return build.plan([x], [value])


@pytest.fixture
def interrupted() -> Iterator[Any]:
    """Starts a timer that interrupts this thread, as Ctrl-C does, at some moment of the next half millisecond."""
    moments = random.Random(0)
    old = signal.signal(signal.SIGALRM, signal.default_int_handler)

    def start() -> None:
        signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-6, 5e-4), 0.05)  # again if a destructor swallowed it

    yield start
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


# one that falls into a destructor is swallowed there, by Python, with such a warning
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_thousands_of_interrupts(interrupted: Any, build: Any, load_method: Any) -> None:
    method = load_method(build, layers(build))
    x, expected = np.arange(8, dtype=np.float32), np.arange(8, dtype=np.float32) * 7
    method.execute([x])  # whatever is imported at the first call is not what is tested here
    hits = 0
    while hits < INTERRUPTS:
        try:
            interrupted()
            while True:
                assert (method.execute([x])[0] == expected).all()
        except KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
            hits += 1
    np.testing.assert_array_equal(method.execute([x])[0], expected)

    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.extend(method.execute([x])))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(results[0], expected)  # nothing that an interrupt left behind keeps others out


def test_a_note_that_was_left_behind_keeps_no_thread_out(build: Any, kernels: Any) -> None:
    from core.tests.runtime.test_method import adder

    method = Runtime(kernels=[kernels]).load_program(build.program(adder(build, 2, 3))).load_method("forward")
    left = threading.Thread(target=method._alone.__enter__)  # as if interrupted right behind it
    left.start()
    left.join()
    method.execute([np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)])
    method._alone.__enter__()
    method._alone._note["user"].clear()  # as if interrupted while it was taken over
    method.execute([np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)])


def test_a_step_cannot_call_its_own_method(build: Any) -> None:
    library, loaded = KernelLibrary("curious"), []

    @library.kernel("test::again.out")
    def again(context: Any, out: Any) -> None:
        with pytest.raises(InvalidState, match="method 'forward' is being called by one of its own steps"):
            loaded[0].execute([])

    out = build.call("test::again.out", build.tensor(1))
    loaded.append(Runtime(kernels=[library]).load_program(build.program(build.plan([], [out]))).load_method("forward"))
    assert len(loaded[0].execute([])) == 1
