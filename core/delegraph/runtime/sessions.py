"""The sessions over a program -> their methods, each sharing with an earlier one everything that no run changes.

All sessions share the delegates that backends compiled or put on a device, and the choice of kernels; planned memory,
state and the calls that are bound to both are each session's own.
"""

from __future__ import annotations

from _thread import allocate_lock as Lock
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from delegraph.runtime.method import Method
from delegraph.runtime.program import Program
from delegraph.runtime.resolution.backend_options import BackendOptions
from delegraph.runtime.shared_state import SharedState
from delegraph.runtime.values.borrowing import Borrowing
from delegraph.runtime.values.memory import CallersBuffers

if TYPE_CHECKING:
    from delegraph.runtime.execution.tracing import EventTracer

__all__ = ["Sessions"]


class Sessions:
    """Loads methods for the sessions that a `Module`, its `session()`s and `fork()`s are. Used from any thread."""

    def __init__(
        self,
        program: Program,
        event_tracer: EventTracer | None = None,
        backend_options: BackendOptions | None = None,
        borrowing: Borrowing | None = None,
        types: Mapping[str, type[Any]] = MappingProxyType({}),
    ) -> None:
        self.program = program
        self.event_tracer = event_tracer
        self.backend_options = backend_options
        self.borrowing = borrowing
        self.types = types
        self._loaded: dict[str, WeakSet[Method]] = {}
        self._lock = Lock()

    def load(self, name: str, shared_state: SharedState, memory: CallersBuffers | None = None) -> Method:
        """The method `name` for the session whose state this is. `memory`, and what is raised, are those of
        `Program.load_method`."""
        with self._lock:
            like = next((method for method in self._loaded.get(name, ()) if not method.is_closed), None)
        method = self.program.load_method(
            name,
            event_tracer=self.event_tracer,
            backend_options=self.backend_options,
            shared_state=shared_state,
            like=like,
            borrowing=self.borrowing,
            memory=memory,
        )
        with self._lock:
            self._loaded.setdefault(name, WeakSet()).add(method)
        return method
