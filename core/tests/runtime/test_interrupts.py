"""Ctrl-C at any point leaves a Method usable, its results right and its state whole."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import delegraph
from delegraph.errors import InvalidState
from delegraph.runtime import KernelLibrary, Runtime

INTERRUPTS = 3000


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        for _ in range(6):
            x = torch.relu(x) + 1
        return x


@pytest.fixture
def interrupted() -> Iterator[Any]:
    """Starts a timer that interrupts this thread, as Ctrl-C does, at some moment of the next half millisecond."""
    moments = random.Random(0)
    old = signal.signal(signal.SIGALRM, signal.default_int_handler)

    def start() -> None:
        signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-6, 5e-4))

    yield start
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


def test_thousands_of_interrupts(interrupted: Any) -> None:
    method = delegraph.load(bytes(delegraph.lower(Layers(), (torch.zeros(8),), backends=[])))["forward"].method
    x, expected = np.arange(8, dtype=np.float32), np.arange(8, dtype=np.float32) + 6
    hits = 0
    while hits < INTERRUPTS:
        try:
            interrupted()
            while True:
                np.testing.assert_array_equal(method.execute([x])[0], expected)
        except KeyboardInterrupt:
            hits += 1
    before = method.get_attribute("calls").copy()
    np.testing.assert_array_equal(method.execute([x])[0], expected)
    np.testing.assert_array_equal(method.get_attribute("calls"), before + 1)

    results: list[Any] = []
    other = threading.Thread(target=lambda: results.extend(method.execute([x])))
    other.start()
    other.join()
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
