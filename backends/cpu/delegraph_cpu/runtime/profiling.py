"""onnxruntime's profile -> events of a tracer: a span for each node that ran, by its name in the blob's graph.

onnxruntime writes a session's profile once, when it is ended. So the tracer gets the runs' events when somebody asks
for them, and the runs after that have a new session.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from delegraph.interfaces import leave_at_fork
from delegraph_cpu.runtime.open_session import TracedSession

if TYPE_CHECKING:
    import onnxruntime

    from delegraph.interfaces import EventTracer

__all__ = ["ProfiledSession", "blob_name"]

MakeSession = Callable[[str], "onnxruntime.InferenceSession"]
"""A file's name without its end -> a session that writes its profile there."""

_NODE, _RUN, _SUFFIX = "Node", "model_run", "_kernel_time"
"""A node's category and the end of its name in the profile, and the event behind those of a run."""


class ProfiledSession(TracedSession):
    """In the place of an `InferenceSession`: its runs are reported to `tracer`, node by node; `names` are those of the
    nodes in the blob's graph."""

    def __init__(self, make: MakeSession, tracer: EventTracer, names: Collection[str]) -> None:
        self._make = make
        self._tracer = tracer
        self._names = names
        self._profile: _Profile | None = _Profile(make)
        leave_at_fork(self._leave)

    @property
    def session(self) -> onnxruntime.InferenceSession:
        """The session of the next run."""
        return self._now().session

    def _now(self) -> _Profile:
        self._profile = self._profile or _Profile(self._make)
        return self._profile

    def _leave(self) -> object:
        left, self._profile = self._profile, None
        if left is not None:
            left.leave_files()
        return left

    def io_binding(self) -> onnxruntime.IOBinding:
        """A binding for the next run alone."""
        return self.session.io_binding()

    def run_with_iobinding(self, binding: onnxruntime.IOBinding, options: onnxruntime.RunOptions) -> None:
        """Run, and tell the tracer where it gets the run's events."""
        profile, start = self._now(), self._tracer.now()
        try:
            profile.session.run_with_iobinding(binding, options)
        except Exception:
            self._profile = None  # a failed run may have an event or not: indices after it are unknown
            raise
        self._tracer.defer(partial(self._report, profile, profile.count, start))
        profile.count += 1

    def _report(self, profile: _Profile, index: int, start: int) -> None:
        """Log the nodes of a run that began at `start`, in nanoseconds of the tracer's clock."""
        if profile is self._profile:  # whose session ends with this
            self._profile = None
        runs = profile.runs()
        if index < len(runs):  # onnxruntime keeps a million events
            began, nodes = runs[index]
            for event in nodes:
                begin = start + 1000 * (event["ts"] - began)
                name, operator = blob_name(event["name"].removesuffix(_SUFFIX), self._names), event["args"]["op_name"]
                self._tracer.log_profiling(operator, begin, begin + 1000 * event["dur"], delegate_debug_id=name)


class _Profile:
    """A session, and the events of its runs. Reading them ends the session."""

    def __init__(self, make: MakeSession) -> None:
        folder = tempfile.mkdtemp(prefix="delegraph-cpu-profile-")
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.session = make(str(Path(folder) / "profile"))
        self.count = 0
        self._runs: list[_Run] | None = None

    def leave_files(self) -> None:
        """Its folder stays where it is: another process has it."""
        self._remove.detach()

    def runs(self) -> list[_Run]:
        """The runs so far."""
        if self._runs is None:
            self._runs = _runs(json.loads(Path(self.session.end_profiling()).read_bytes()))
            self._remove()
        return self._runs


_Run: TypeAlias = "tuple[int, list[Mapping[str, Any]]]"
"""When a run began, in microseconds of the profile, and its nodes' events."""


def _runs(events: list[dict[str, Any]]) -> list[_Run]:
    runs: list[_Run] = []
    nodes: list[Mapping[str, Any]] = []
    for event in events:
        if event["cat"] == _NODE and event["name"].endswith(_SUFFIX):
            nodes.append(event)
        elif event["name"] == _RUN:
            runs.append((event["ts"], nodes))
            nodes = []
    return _by_device(events, runs) or runs


def _by_device(events: list[dict[str, Any]], runs: list[_Run]) -> list[_Run]:
    """The runs with the times of the device's own clock in place of those that the host needed to give it the nodes;
    [] where there are none. WebGPU's provider puts them behind all others, run by run: `Gemm_0&Gemm&MatMul` of a node,
    its operator and its shader."""
    own = [event for event in events if event["cat"] == "Api" and event["name"].count("&") == 2]
    count, rest = divmod(len(own), len(runs) or 1)
    if rest:
        return []
    timed: list[_Run] = []
    for (began, _), first in zip(runs, range(0, len(own), count or 1), strict=False):
        nodes: list[Mapping[str, Any]] = []
        at = began
        for event in own[first : first + count]:
            name, operator, _ = event["name"].split("&")
            nodes.append({"name": name, "ts": at, "dur": event["dur"], "args": {"op_name": operator}})
            at += event["dur"]
        timed.append((began, nodes))
    return timed


_ADDED: Final = re.compile(r"^fused |(_nchwc|_nhwc|_token_\d+)$")
"""The parts of a name that onnxruntime adds to those of the nodes which it makes a node of."""


def blob_name(name: str, names: Collection[str]) -> str:
    """The one of `names` in the blob's graph from which onnxruntime made the node `name` at load: names there may end
    like those that it makes, as a graph that was optimized ahead of time is in the blob."""
    while name not in names and (shorter := _ADDED.sub("", name, count=1)) != name:
        name = shorter
    return name
