"""Records: the seconds that a node, a module, a line or a delegate took in each run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from delegraph.devtools.profiling.percentiles import percentile, times_json
from delegraph.devtools.program_model.rows import NodeRow

__all__ = ["DelegateTime", "GroupTime", "NodeTime", "RunTimes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """The time of something in each traced run, in seconds of the host's clock, 0 where it did not run.

    `share` is that of all steps, by their medians, so that shares add up. `counters` are what the device counts
    besides, the mean of the runs: cycles, energy, bytes, by the names that its backend has for them.
    """

    seconds: tuple[float, ...]
    share: float = 0.0
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """Half of the runs took no longer."""
        return percentile(self.seconds, 50)

    @property
    def mean(self) -> float:
        """The mean of the runs."""
        return fmean(self.seconds)

    @property
    def p90(self) -> float:
        """Nine tenths of the runs took no longer."""
        return percentile(self.seconds, 90)

    @property
    def p99(self) -> float:
        """99 of a hundred runs took no longer; of fewer than a hundred, it is the longest."""
        return percentile(self.seconds, 99)

    def to_json(self) -> dict[str, Any]:
        """Seconds, share and counters."""
        return {**times_json(self.seconds), "share": self.share, "counters": dict(self.counters)}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTime(RunTimes):
    """The time of a step of a method: a call of a kernel, or a node of a delegate.

    The call of a delegate is divided among its nodes as its backend reports them, whatever clock that has: a device's
    own, or a simulation's. `reported` is the mean of those times in seconds; None for what the host itself timed, which
    is a kernel or a delegate that reports nothing. `node` is None where the file does not tell what was run.
    """

    name: str
    node: NodeRow | None
    instruction: int
    reported: float | None = None

    @property
    def operator(self) -> str:
        """The engine's or the kernel's; of a whole delegate, its backend."""
        return self.name if self.node is None else self.node.operator

    @property
    def module(self) -> str:
        """The module that it belongs to, "" if that is not known."""
        return "" if self.node is None else self.node.origin.module

    @property
    def line(self) -> str:
        """The line of the model's code that it comes from; of several the first."""
        return "" if self.node is None or not self.node.origin.lines else self.node.origin.lines[0]

    @property
    def delegate(self) -> int | None:
        """The number of its delegate; None of a kernel."""
        return None if self.node is None else self.node.delegate

    def to_json(self) -> dict[str, Any]:
        """The same, and what it is of."""
        known = {"debug_id": None if self.node is None else self.node.debug_id, "instruction": self.instruction}
        places = {name: getattr(self, name) for name in ("name", "operator", "module", "line", "delegate")}
        return {**places, **known, **RunTimes.to_json(self), "reported": self.reported}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTime(RunTimes):
    """The time of all steps of a module, those of modules in it included, or of a line. `own` is the median of the
    steps that are in no module in it. The name of the model itself, and of what has no known line, is ""."""

    name: str
    own: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The same, and what it is of."""
        return {"name": self.name, **RunTimes.to_json(self), "own": self.own}


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegateTime(RunTimes):
    """The time of the calls of a delegate, `index` in its method. `nodes` is the number of its nodes whose times its
    backend reported: where it is 0, the delegate is one step. `reported` is the sum of those times in a run, in
    seconds of whatever clock that has; None where there are none."""

    index: int
    backend: str
    device: str = ""
    nodes: int = 0
    reported: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The same, and what it is of."""
        known = {name: getattr(self, name) for name in ("index", "backend", "device", "nodes", "reported")}
        return {**known, **RunTimes.to_json(self)}
