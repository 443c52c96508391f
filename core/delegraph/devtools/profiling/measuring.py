"""A program -> its `Profile`: executions with and without a tracer, as many as make the result stable.

    load, without a tracer ─ warm up ─┐
    load, with one         ─ warm up ─┴─ some runs of the one, some of the other, in turns, until the median is known
                                         well, within bounds in seconds

In turns, since what else the machine does is then felt by both: their difference is what tracing costs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import sqrt
from typing import Final, TypeAlias

from delegraph.devtools.backend_reports import asked_to_report
from delegraph.devtools.made_inputs import made_inputs
from delegraph.devtools.profiling.node_times import node_times
from delegraph.devtools.profiling.percentiles import percentile
from delegraph.devtools.profiling.profile import Profile
from delegraph.devtools.program_model.reading import read_model
from delegraph.program.schema import Buffer
from delegraph.runtime.execution.tracing import EXECUTE, EventTracer
from delegraph.runtime.method import Method
from delegraph.runtime.program import Program
from delegraph.runtime.resolution.backend_options import BackendOptions

__all__ = ["Effort", "precision", "profile", "traced"]


@dataclass(frozen=True, slots=True)
class Effort:
    """How often to run: `repeat` times behind `warmup` executions that do not count. None: until the times no longer
    fall, and until the median is known to `PRECISION`, but no longer than `seconds` altogether; once at least."""

    seconds: float = 10.0
    warmup: int | None = None
    repeat: int | None = None


PRECISION: Final = 0.02
"""The share by which the true median may lie beside the measured one, with a confidence of 95 %."""

LEAST_RUNS: Final = 30
MOST_RUNS: Final = 1000
"""Timed executions, where time allows. Percentiles of fewer say little."""

TURN: Final = 10
"""Runs with a tracer, and then runs without one, at a time."""

MOST_EVENTS: Final = 200_000
"""Events of all runs, some 40 MB: a program of many nodes is run less often."""

KEPT_RUNS: Final = 10
"""Runs whose events a profile keeps, for a trace: the last of them."""


def profile(
    source: str | os.PathLike[str] | Buffer | Program,
    inputs: Sequence[object] | None = None,
    *,
    method: str = "forward",
    seconds: float = 10.0,
    warmup: int | None = None,
    repeat: int | None = None,
    data_path: Sequence[str] | None = None,
    backend_options: BackendOptions | None = None,
) -> Profile:
    """Run a method of a `.pte`, or of a loaded `Program`, and tell where the time goes.

    `inputs` are those of `Method.execute`; None makes up random ones. It runs for at most `seconds`, with a tracer and
    without one in turns, and ends sooner when the result is stable; `warmup` and `repeat` say how often instead.
    Backends whose option `profiling` makes them report their nodes are asked to, unless `backend_options` say
    otherwise; `data_path` has the program's external weights.

    Raises what loading and executing raise.
    """
    program = source if isinstance(source, Program) else Program.load(source, data_path=data_path or None)
    untraced = program.load_method(method, backend_options=backend_options)
    taken = made_inputs(untraced.metadata) if inputs is None else inputs
    return traced(program, untraced, taken, backend_options, Effort(seconds, warmup, repeat))


def traced(
    program: Program, untraced: Method, inputs: Sequence[object], options: BackendOptions | None, effort: Effort
) -> Profile:
    """The profile of the method that is loaded as `untraced`, and is loaded again with a tracer."""
    plugins, name = program.environment.plugin_registry(), untraced.metadata.name()
    model = read_model(program.records, program.named_data, plugins)
    (own,) = (each for each in model.methods if each.name == name)
    asked = asked_to_report("profiling", program.backend_ids, options or {}, plugins)
    execute = partial(_once, untraced, inputs)
    _warm_up(execute, effort)
    tracer = EventTracer(platform=program.environment.platform)
    method = program.load_method(name, event_tracer=tracer, backend_options=asked)
    most = max(1, min(MOST_RUNS, MOST_EVENTS // max(1, len(own.nodes))))
    measured = _measure(execute, partial(_once, method, inputs), effort, most)
    blocks = tracer.blocks
    runs = [block for block in blocks if block.name == EXECUTE][-len(measured.traced) :]
    nodes = node_times([block.profile_events for block in runs], model, name)
    return Profile(
        method=name,
        warmup=measured.warmup,
        seconds=tuple(measured.traced),
        untraced=tuple(measured.untraced),
        nodes=tuple(nodes),
        model=own,
        blocks=(*(block for block in blocks if block.name != EXECUTE), *runs[-KEPT_RUNS:]),
    )


# ---- how often -------------------------------------------------------------------------------------

Timed: TypeAlias = Callable[[], float]
"""An execution, and the seconds that it took."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """The number of traced executions that did not count, and the seconds of those that did, with and without."""

    warmup: int
    traced: list[float] = field(default_factory=list)
    untraced: list[float] = field(default_factory=list)


def _once(method: Method, inputs: Sequence[object]) -> float:
    start = time.perf_counter()
    method.execute(inputs, clone_outputs=False)
    return time.perf_counter() - start


def _measure(untraced: Timed, traced: Timed, effort: Effort, most: int) -> _Measured:
    start = time.perf_counter()
    warm = _warm_up(traced, effort)
    turn = max(1, min(TURN, int(effort.seconds / 20 / min(warm, default=1.0))))
    measured = _Measured(len(warm))
    while not _is_enough(measured.traced, effort, most, time.perf_counter() - start):
        left = (most if effort.repeat is None else effort.repeat) - len(measured.traced)
        measured.untraced.extend(untraced() for _ in range(min(turn, left)))
        measured.traced.extend(traced() for _ in range(min(turn, left)))
    return measured


def _warm_up(execute: Timed, effort: Effort) -> list[float]:
    """The seconds of executions until these no longer fall, in a tenth of the time."""
    if effort.warmup is not None:
        return [execute() for _ in range(effort.warmup)]
    seconds = [execute()]
    while sum(seconds) < effort.seconds / 10 and _falls(seconds):
        seconds.append(execute())
    return seconds


def _falls(seconds: Sequence[float]) -> bool:
    """Whether the last three were notably faster than all before: caches, clocks and engines still warm up."""
    return len(seconds) < 4 or min(seconds[-3:]) < 0.95 * min(seconds[:-3])


def _is_enough(seconds: Sequence[float], effort: Effort, most: int, spent: float) -> bool:
    if effort.repeat is not None or not seconds:
        return len(seconds) >= (effort.repeat or 1)
    is_stable = len(seconds) >= LEAST_RUNS and precision(seconds) <= PRECISION
    return is_stable or spent >= effort.seconds or len(seconds) >= most


def precision(seconds: Sequence[float]) -> float:
    """Half of the 95 % confidence interval of the median, as a share of it: by ranks, so of any distribution
    (Conover, Practical Nonparametric Statistics, section 3.2: n/2 ± 0.98 √n)."""
    ordered, rank = sorted(seconds), 0.98 * sqrt(len(seconds))
    low = ordered[max(0, int(len(ordered) / 2 - rank))]
    high = ordered[min(len(ordered) - 1, int(len(ordered) / 2 + rank))]
    return (high - low) / 2 / (percentile(ordered, 50) or 1.0)
