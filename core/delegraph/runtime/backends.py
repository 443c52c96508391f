"""Backend ids -> delegates: the runtime half of a backend, as its author writes it.

The same contract as ExecuTorch's `runtime/backend/interface.h`, with NumPy arrays for tensors, a reason for a
device that is not there, and a check of the blob's stamp before `init`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import PluginError
from delegraph.program.schema import Buffer, CompileSpec
from delegraph.runtime.platform import DEFAULT_PLATFORM, Platform

if TYPE_CHECKING:
    from delegraph.plugins.registry import PluginRegistry
    from delegraph.plugins.stamp import BlobStamp
    from delegraph.runtime.tracing import EventTracer

Handle: TypeAlias = Any
"""Whatever a backend's `init` returns and its `execute` takes."""

Argument: TypeAlias = "NDArray[Any] | int | float | bool | str | None | list[Any]"
"""A delegate's input or output: an array over planned memory, or a scalar input."""


class Verdict(Enum):
    """What a backend thinks of a blob before it looks inside."""

    OK = "ok"
    RECOMPILE = "recompile"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Compatibility:
    """A verdict and, unless it is OK, its reason."""

    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a device can be used here; if not, why, and what would fix it. True or false in a condition."""

    available: bool
    reason: str = ""
    fix: str = ""

    def __bool__(self) -> bool:
        return self.available


@dataclass(frozen=True, slots=True)
class BackendInitContext:
    """What `init` may use.

    `named_data` maps keys to blobs shared by the program's delegates (views, valid for the program's life);
    `runtime_specs` are the caller's load-time options for this backend;
    `platform` is the machine's clock, log and memory.
    """

    method_name: str
    named_data: Mapping[str, Buffer] = field(default_factory=dict)
    runtime_specs: Mapping[str, bool | int | str] = field(default_factory=dict)
    event_tracer: EventTracer | None = None
    platform: Platform = DEFAULT_PLATFORM


class BackendExecutionContext(Protocol):
    """What `execute` may use."""

    method_name: str
    event_tracer: EventTracer | None

    def resize(self, out: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """`out` at its new `shape`, over the same planned memory; write into what is returned."""

    def allocate_temp(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Uninitialised scratch memory, valid until `execute` returns."""


class BackendInterface(ABC):
    """The runtime half of a backend. One instance serves a process; each delegate has a handle of its own.

    Methods may be called from several threads for different handles, never for one handle at a time.
    No torch may be imported by the module that defines it.
    """

    delegraph_api: ClassVar[tuple[int, int]] = (1, 0)
    """The lowest plug-in API that this backend needs."""

    def is_available(self) -> Availability | bool:
        """Whether the device can be used now. Cheap; never raises."""
        return True

    def check(self, stamp: BlobStamp | None) -> Compatibility:
        """Judge a blob by its stamp (None: the file carries none), before `init` sees a byte of it."""
        return Compatibility(Verdict.OK)

    @abstractmethod
    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> Handle:
        """Make a delegate of the blob. Raises a `RuntimeFault` if it cannot; `processed` may be kept or dropped."""

    @abstractmethod
    def execute(self, context: BackendExecutionContext, handle: Handle, args: Sequence[Argument]) -> None:
        """Run once. `args` are the inputs, then the outputs; outputs are filled in place."""

    def bind(
        self, context: BackendExecutionContext, handle: Handle, args: Sequence[Argument]
    ) -> Callable[[], object] | None:
        """Called at load where every argument is an array of fixed shape and place: an equivalent of `execute` with
        all of them already in it, or None to be called through `execute`."""
        return None

    def destroy(self, handle: Handle) -> None:
        """Release what `init` acquired. Called once, when the method goes."""

    def set_option(self, options: Mapping[str, bool | int | str]) -> None:
        """Change options of the backend as a whole. Raises `InvalidArgument` for an unknown key."""
        if options:
            from delegraph.errors import InvalidArgument

            raise InvalidArgument(f"{type(self).__name__} has no options; got {', '.join(sorted(options))}")

    def get_option(self, keys: Sequence[str]) -> dict[str, bool | int | str]:
        """Current values of `keys`. Raises `InvalidArgument` for an unknown one."""
        if keys:
            from delegraph.errors import InvalidArgument

            raise InvalidArgument(f"{type(self).__name__} has no options; asked for {', '.join(keys)}")
        return {}


class BackendRegistry:
    """Backends by id: `overrides`, then what `plugins` offers. Imports a backend when it is asked for."""

    def __init__(self, plugins: PluginRegistry, overrides: Mapping[str, BackendInterface] | None = None) -> None:
        self.plugins = plugins
        self._overrides = dict(overrides or {})

    @property
    def registered_backend_names(self) -> list[str]:
        """Every id that can be asked for, sorted."""
        return sorted({*self._overrides, *self.plugins.names(GROUP)})

    def is_available(self, backend_name: str) -> Availability:
        """Whether the backend is installed, loads, and finds its device; if not, why. Never raises."""
        try:
            return availability(self.get(backend_name))
        except PluginError as error:
            return Availability(False, str(error))

    def get(self, backend_id: str) -> BackendInterface:
        """The backend. Raises a `PluginError`."""
        override = self._overrides.get(backend_id)
        if override is not None:
            return override
        backend: BackendInterface = self.plugins.load(GROUP, backend_id)
        return backend


GROUP: Final = "delegraph.backends"


def availability(backend: BackendInterface) -> Availability:
    """What `is_available` says, as an `Availability`."""
    answer = backend.is_available()
    return (
        answer if isinstance(answer, Availability) else Availability(answer, "" if answer else "its device is not here")
    )
