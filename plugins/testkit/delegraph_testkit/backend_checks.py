"""What a backend is checked for at run time: each function gets a bench and one program that it took something of."""

from __future__ import annotations

from delegraph_testkit.bench import Bench, Stored
from delegraph_testkit.running import backend_called, check_results, run
from delegraph_testkit.watching import WatchedBackend

__all__ = ["inputs_are_left_alone", "outputs_are_written", "prepared_calls_are_the_same"]


def outputs_are_written(bench: Bench, stored: Stored) -> None:
    """`execute` writes every element of every output."""
    results = []
    for poison in (0xA5, 0x5A):
        results.append(run(stored, _watched(stored, poison)))
    check_results(bench, stored, results[0])
    check_results(bench, stored, results[1])


def inputs_are_left_alone(bench: Bench, stored: Stored) -> None:
    """`execute` writes into no input."""
    check_results(bench, stored, run(stored, _watched(stored)))


def prepared_calls_are_the_same(bench: Bench, stored: Stored) -> None:
    """`bind`'s calls do what `execute` does."""
    check_results(bench, stored, run(stored))


def _watched(stored: Stored, poison: int = 0xA5) -> dict[str, WatchedBackend]:
    facts = stored.facts
    return {name: WatchedBackend(backend_called(name), facts.outputs, poison) for name in facts.backends}
