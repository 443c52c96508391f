"""A blob's life at run time, as a backend's author writes it: judged, made a delegate, executed, destroyed.

The same contract as ExecuTorch's `runtime/backend/interface.h`, with NumPy arrays for tensors, a reason for a
device that is not there, and a check of the blob's stamp before `init`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

from delegraph.errors import cause_of
from delegraph.interfaces.backend_cache import NO_CACHE, BackendCache
from delegraph.interfaces.platform import DEFAULT_PLATFORM, Platform
from delegraph.lazy_dataclass import dataclass, field
from delegraph.program.schema import Buffer, CompileSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from delegraph.interfaces.description import DelegateDescription
    from delegraph.interfaces.device import DeviceAllocator, DeviceTensor
    from delegraph.interfaces.stamp import BlobStamp
    from delegraph.interfaces.submission import Event
    from delegraph.program.devices import Device

__all__ = [
    "Argument",
    "Availability",
    "BackendDevice",
    "BackendExecutionContext",
    "BackendInitContext",
    "BackendInterface",
    "Compatibility",
    "DeviceBuffer",
    "EventTracer",
    "Handle",
    "Verdict",
]

Handle: TypeAlias = Any
"""Whatever a backend's `init` returns and its `execute` takes."""

Argument: TypeAlias = "NDArray[Any] | DeviceTensor | int | float | bool | str | None | list[Any]"
"""A delegate's input or output: an array over planned memory, a tensor in a device's, or a scalar input."""


class Verdict(Enum):
    """A backend's verdict on a blob before it looks inside."""

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
    """Whether a device can be used here; if not, the reason and a fix. True or false in a condition."""

    available: bool
    reason: str = ""
    fix: str = ""

    def __bool__(self) -> bool:
        return self.available

    @classmethod
    def of_package(cls, name: str) -> Availability:
        """Whether a package is installed, without importing it."""
        import importlib.util

        if importlib.util.find_spec(name) is not None:
            return cls(True)
        return cls(False, f"{name} is not installed", f"pip install {name}")

    @classmethod
    def of(cls, backend: BackendInterface) -> Availability:
        """The answer of `is_available`; a backend where it raises, or returns anything else, is not available."""
        try:
            answer: object = backend.is_available()
        except Exception as error:
            return cls(False, f"its is_available raised {cause_of(error)}", _REPORT)
        if isinstance(answer, Availability):
            return answer
        if not isinstance(answer, bool):
            return cls(False, f"its is_available returned {answer!r}, neither a bool nor an Availability", _REPORT)
        return cls(answer, "" if answer else "its device is not here")


_REPORT: Final = "report it to its authors"


@dataclass(frozen=True, slots=True)
class BackendDevice:
    """A device of this machine that a backend drives, or would drive: for people who ask what they have.

    `kind` is "CPU", "GPU" or "NPU", `name` what its maker calls it. `reason` says why the backend cannot use it now, ""
    if it can, and `fix` what to do; `remark` is what is to be known of one that it can use.
    """

    kind: str
    name: str
    reason: str = ""
    fix: str = ""
    remark: str = ""


class EventTracer(Protocol):
    """The tracer that a backend may report to: `delegraph.runtime.EventTracer`, where the caller gave one."""

    @property
    def debug_level(self) -> int:
        """0: times only; 1: and the program's outputs; 2: and the values that every instruction wrote."""

    def now(self) -> int:
        """The platform's clock, in nanoseconds."""

    def profile(
        self, name: str, *, delegate_debug_id: int | str | None = None, metadata: bytes = b""
    ) -> AbstractContextManager[None]:
        """Time the body of a `with` statement. `delegate_debug_id` is the delegate's own name of the timed step."""

    def log_profiling(
        self,
        name: str,
        start: int,
        end: int,
        *,
        delegate_debug_id: int | str | None = None,
        metadata: bytes = b"",
    ) -> None:
        """Record a span that was timed elsewhere (a device's own clock, converted to nanoseconds)."""

    def defer(self, report: Callable[[], object]) -> None:
        """Call `report`, once, before somebody reads the events; it logs by calls on this tracer, and its events belong
        to the execution in which `defer` was called. For measurements that are known only later."""

    def log_value(self, name: str, value: Any, *, delegate_debug_id: int | str | None = None) -> None:
        """Keep a copy of `value` (an array, a scalar, a list of them)."""

    def track_allocation(self, allocator: str, nbytes: int) -> None:
        """Record that `nbytes` were taken from the named allocator."""


_Scalar = TypeVar("_Scalar", bound="np.generic")


def _own_copy(name: str, initial: NDArray[Any]) -> NDArray[Any]:
    return initial.copy()


class DeviceBuffer(Protocol):
    """A mutable buffer whose value a delegate leaves in its device's memory from run to run (since API 1.1)."""

    def copy_to_host(self) -> None:
        """Copy the value into the buffer's array in the host's memory, where somebody reads or sets it now: the next
        run begins with what the array holds then. Called while no delegate that has the buffer executes."""


def _on_device(name: str, initial: NDArray[Any], make: Callable[[NDArray[Any]], Any]) -> Any:
    return make(initial.copy())


@dataclass(frozen=True, slots=True)
class BackendInitContext:
    """The data and options that `init` may use.

    `named_data` maps keys to blobs shared by the program's delegates (views, valid for the program's life);
    `runtime_specs` are the caller's load-time options for this backend;
    `platform` is the machine's clock, log and memory.
    `mutable_buffer(name, initial)` is the memory of a mutable buffer that the delegate owns (its partitioner tagged it,
    `tag_mutated_buffer`): an array that holds `initial` at first, to be read and written by each `execute`. Whoever has
    a buffer of that name in the same session gets the same array, if the program's methods share their state, and the
    caller can read, reset, save and fork it; state that a delegate keeps elsewhere is its own alone.
    `device_buffer(name, initial, make)` is the same for a buffer whose value stays on the device between runs (since
    API 1.1): `make`, which gets the array, makes the `DeviceBuffer` that all delegates of the session get who have a
    buffer of that name. Raises `NotSupported` if kernels or another backend have it in the host's memory, as
    `mutable_buffer` does of one that is on a device.
    `cache` keeps what is compiled or packed at load for the next load, if the user asked for that (since API 1.1).
    """

    method_name: str
    named_data: Mapping[str, Buffer] = field(default_factory=dict)
    runtime_specs: Mapping[str, bool | int | str] = field(default_factory=dict)
    event_tracer: EventTracer | None = None
    platform: Platform = DEFAULT_PLATFORM
    mutable_buffer: Callable[[str, NDArray[Any]], NDArray[Any]] = _own_copy
    cache: BackendCache = NO_CACHE
    device_buffer: Callable[[str, NDArray[Any], Callable[[NDArray[Any]], Any]], Any] = _on_device


class BackendExecutionContext(Protocol):
    """The method's services that `execute` may use."""

    @property
    def method_name(self) -> str:
        """The method that is executing."""

    @property
    def event_tracer(self) -> EventTracer | None:
        """The tracer for the delegate's own events; None if nobody listens."""

    def resize(self, out: NDArray[_Scalar], shape: tuple[int, ...]) -> NDArray[_Scalar]:
        """`out` at its new `shape`, over the same planned memory; write into the returned array."""

    def upper_bound(self, argument: NDArray[np.generic]) -> tuple[int, ...] | None:
        """The largest shape that `argument` gets; None if it always has its own. It bounds the number of elements:
        single dims may exceed it."""

    def allocate_temp(self, shape: tuple[int, ...], dtype: np.dtype[_Scalar]) -> NDArray[_Scalar]:
        """Uninitialised scratch memory, valid until `execute` returns."""


class BackendInterface(ABC):
    """The runtime half of a backend. One instance serves a process; each delegate has a handle of its own.

    Methods may be called from several threads for different handles, never for one handle at a time.
    No torch may be imported by the module that defines it.
    """

    delegraph_api: ClassVar[tuple[int, int]] = (1, 0)
    """The lowest plug-in API that this backend needs."""

    blob_version: ClassVar[int] = 0
    """The newest version of its blobs' format that this half reads; `BackendDetails.blob_version` is the one that the
    other half writes. 0: `check` judges, or any version will do."""

    oldest_blob_version: ClassVar[int] = 0
    """The oldest one that it reads; 0: `blob_version` is the only one."""

    keeps_processed: ClassVar[bool] = True
    """Whether a handle goes on reading `processed` after `init`. If not, the runtime lets go of its memory then, as
    `FreeableBuffer::Free` does in ExecuTorch: pages of a mapped file are given back to the system."""

    binds_again: ClassVar[bool] = False
    """Whether `bind` is cheap, some microseconds, so that it may be called whenever a caller's array lies elsewhere,
    and reads no input's content, also not that of a read-only one, which may be a caller's. Then large inputs and
    outputs that delegates alone touch are read and written where the caller has them; else they are copied."""

    def is_available(self) -> Availability | bool:
        """Whether the device can be used now. Cheap; never raises."""
        return True

    def check(self, stamp: BlobStamp | None) -> Compatibility:
        """Judge a blob by its stamp (None: the file carries none), before `init` sees a byte of it.

        As it stands here, by `blob_version`: newer blobs are refused, and older ones have to be lowered again.
        """
        newest, oldest = self.blob_version, self.oldest_blob_version or self.blob_version
        if stamp is None or not newest or oldest <= stamp.blob_version <= newest:
            return Compatibility(Verdict.OK)
        if stamp.blob_version > newest:
            return Compatibility(
                Verdict.REFUSE, f"{stamp}; blob version {newest} is read here: install a newer release of the backend"
            )
        return Compatibility(Verdict.RECOMPILE, f"{stamp}; blob version {newest} is needed: lower the model again")

    @abstractmethod
    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> Handle:
        """Make a delegate of the blob. Raises a `RuntimeFault` if it cannot; `processed` may be kept or dropped."""

    def fork(self, context: BackendInitContext, handle: Handle) -> Handle | None:
        """In place of `init`, for another session of a program that is loaded: a delegate of the blob and options that
        `handle` was made of, which shares with it everything that no run changes, and gets its state from
        `context.mutable_buffer`. Both are then executed, also at the same time, and destroyed each by itself; `handle`
        may be executing while this is called. None: `init` is called.
        """
        return None

    @abstractmethod
    def execute(self, context: BackendExecutionContext, handle: Handle, args: Sequence[Argument]) -> None:
        """Run once. `args` are the inputs, then the outputs; outputs are filled in place. Constants are read-only.

            x, out = args
            np.maximum(x, 0, out=context.resize(out, x.shape))

        Tensors are NumPy arrays over planned memory, numbers Python's; the order is that of the partition's
        placeholders and outputs. Without `context.resize` an output keeps the shape that it had last.
        """

    def bind(
        self, context: BackendExecutionContext, handle: Handle, args: Sequence[Argument]
    ) -> Callable[[], object] | None:
        """Called at load where every argument is an array of fixed shape and place: an equivalent of `execute` with
        all of them already in it, or None to be called through `execute`. Where shapes change it is called after a run
        whose shapes were those of the run before, once for these shapes; the places stay. Nothing is put around the
        call: a division by zero is silent in `execute`, as in kernels, and here only under `np.errstate`."""
        return None

    def submits(self, handle: Handle) -> bool:
        """Whether `submit` is called in place of `execute` where other work can go on meanwhile. Asked once, after
        `init`; its other half answers the same for the blob (`BackendDetails.submits`), so that memory is planned for
        it."""
        return False

    def submit(self, context: BackendExecutionContext, handle: Handle, args: Sequence[Argument]) -> Event:
        """Begin a run, as `execute` with the same arguments, and return before its end; the event's `wait` ends it.

            return self.queue.submit(partial(self.execute, context, handle, args))

        Until then nobody else writes `args`, looks at the outputs among them, or begins another run of `handle`; runs
        of other handles may begin, and the host computes. Memory of `context.allocate_temp` is gone when this returns.
        `cancel` may come at any time: `wait` then raises soon.
        """
        raise NotImplementedError

    def bind_submit(
        self, context: BackendExecutionContext, handle: Handle, args: Sequence[Argument]
    ) -> Callable[[], Event] | None:
        """`submit` with all arguments in it, as `bind` is `execute`; None to be called through `submit`."""
        return None

    def device_allocator(self, device: Device) -> DeviceAllocator | None:
        """The memory of a device that delegates of this backend are for (their compile spec "target_device"); None: of
        that there is none. Tensors there come to `execute` as `DeviceTensor`s. The same object every time: tensors of
        two backends on one device are in one memory only if both give the same."""
        return None

    def host_memory(self, nbytes: int) -> Buffer | NDArray[np.generic] | None:
        """`nbytes` of the CPU's memory that the engine can address as well, so that it copies no argument that lies
        there: pinned, `rpcmem`, a mapped DMA-buf. It begins at a multiple of 64 and lives until nobody refers to it.

        A method that has a delegate of this backend, the first that offers some, takes its planned memory here. None:
        from the platform.
        """
        return None

    def num_outputs(self, handle: Handle) -> int | None:
        """How many of a call's last arguments `execute` writes; None if the handle does not tell.

        Asked once, after `init`. The runtime refuses a program in which one of them is a constant or the caller's
        input. A backend that writes past NumPy, through an address, answers this, or looks at `out.flags.writeable`.
        """
        return None

    def cancel(self, handle: Handle, requested: bool) -> None:
        """Stop an `execute` of `handle`: called from another thread while it runs, or before it begins.

        True: an `execute` that runs, or begins, is to raise soon. False, from the run's own thread: that is over. An
        engine that can't be stopped does nothing here, and the run ends behind it; say so in your documentation.
        """

    def engine_files(
        self, name: str, processed: Buffer, named_data: Mapping[str, Buffer]
    ) -> Mapping[str, Sequence[Buffer]]:
        """The blob as files of the engine's own format, weights included, which the engine and viewers open by
        themselves: by file name, `name` and an ending that begins with a dot, the pieces of each; one that refers to
        another does it by that name.

            return {f"{name}.onnx": [model]}

        For people who look into a program; nothing of it is run, and `init` is not called. Raises a `RuntimeFault` for
        a blob that cannot be read, which may be a stranger's. Empty: the engine has no format of graphs.
        """
        return {}

    def devices(self) -> Sequence[BackendDevice]:
        """The devices of this machine that it drives, the preferred one first, and those that it would drive if
        something were installed. For `delegraph doctor --devices`; may take seconds (since API 1.1)."""
        return ()

    def describe(
        self, processed: Buffer, compile_specs: Sequence[CompileSpec], named_data: Mapping[str, Buffer]
    ) -> DelegateDescription | None:
        """The content of a blob: nodes, weights, device, options. Tools tell sizes, times and origins by it.

        As for `engine_files`, nothing is run and `init` is not called, so no device is needed; raises a `RuntimeFault`
        for a blob that cannot be read. None: the backend does not tell, and a delegate is one piece to every tool.
        """
        return None

    def destroy(self, handle: Handle) -> None:
        """Release the resources that `init` acquired. Called once, when the method goes."""

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
