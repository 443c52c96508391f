"""Program -> a callable with the model's own structure of arguments and results.

model = delegraph.load("model.pte")
result = model(x, mask=m)          # NumPy arrays in, NumPy arrays out; torch tensors in, torch tensors out
"""

from __future__ import annotations

import os
from _thread import allocate_lock as Lock
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast, overload

from delegraph.deprecation import former_parameter
from delegraph.errors import InvalidArgument, InvalidState, printable
from delegraph.interfaces.platform import DEFAULT_PLATFORM, Platform
from delegraph.lazy_dataclass import replace
from delegraph.program import schema
from delegraph.program.limits import Limits
from delegraph.runtime.calls.pytree import types_by_name
from delegraph.runtime.data_loader import Source
from delegraph.runtime.integrity import IntegrityMode
from delegraph.runtime.method import Method
from delegraph.runtime.method_meta import MethodMeta
from delegraph.runtime.program import Program
from delegraph.runtime.resolution.backend_options import BackendOptions
from delegraph.runtime.resolution.environment import Environment
from delegraph.runtime.resolution.kernels import KernelOrder
from delegraph.runtime.sessions import Sessions
from delegraph.runtime.shared_state import SharedState
from delegraph.runtime.state import State, joined_state
from delegraph.runtime.structured_method import StructuredMethod
from delegraph.runtime.values.borrowing import Borrowing, InputMode, OutputMode
from delegraph.runtime.workers import Workers

if TYPE_CHECKING:
    from delegraph.interfaces.backend import BackendInterface
    from delegraph.interfaces.compilation_cache import CacheChoice
    from delegraph.plugins.registry import PluginRegistry
    from delegraph.program.signatures import Key
    from delegraph.runtime.batched_calls import BatchedCalls
    from delegraph.runtime.concurrency import Concurrency
    from delegraph.runtime.execution.tracing import EventTracer
    from delegraph.runtime.external_data import DataSources
    from delegraph.runtime.isolation.module import IsolatedModule
    from delegraph.runtime.submitted_calls import Call
    from delegraph.runtime.values.memory import CallersBuffers

    CallersMemory: TypeAlias = CallersBuffers | Mapping[str, CallersBuffers]


@overload
def load(
    path_or_bytes: Source,
    *,
    isolated: Literal[True],
    method: str = "forward",
    kernels: KernelOrder | None = None,
    data_path: DataSources | None = None,
    backend_options: BackendOptions | None = None,
    prefer: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    check: bool | None = None,
    integrity: IntegrityMode = "lazy",
    trusted_keys: Iterable[Key] | None = None,
    cache: CacheChoice = None,
    types: Iterable[type[Any]] = (),
) -> IsolatedModule: ...
@overload
def load(
    path_or_bytes: Source | schema.Program,
    *,
    method: str = "forward",
    kernels: KernelOrder | None = None,
    backends: Mapping[str, BackendInterface] | None = None,
    data_path: DataSources | None = None,
    backend_options: BackendOptions | None = None,
    event_tracer: EventTracer | None = None,
    plugins: PluginRegistry | None = None,
    prefer: Mapping[str, str] | None = None,
    platform: Platform | str = DEFAULT_PLATFORM,
    limits: Limits | None = None,
    inputs: InputMode = "auto",
    outputs: OutputMode = "copy",
    memory: CallersMemory | None = None,
    check: bool | None = None,
    integrity: IntegrityMode = "lazy",
    trusted_keys: Iterable[Key] | None = None,
    types: Iterable[type[Any]] = (),
    isolated: Literal[False] = False,
    cache: CacheChoice = None,
    concurrency: Concurrency | None = None,
) -> Module: ...
@former_parameter("registry", "plugins", goes="2.0")
def load(
    path_or_bytes: Source | schema.Program,
    *,
    method: str = "forward",
    kernels: KernelOrder | None = None,
    backends: Mapping[str, BackendInterface] | None = None,
    data_path: DataSources | None = None,
    backend_options: BackendOptions | None = None,
    event_tracer: EventTracer | None = None,
    plugins: PluginRegistry | None = None,
    prefer: Mapping[str, str] | None = None,
    platform: Platform | str = DEFAULT_PLATFORM,
    limits: Limits | None = None,
    inputs: InputMode = "auto",
    outputs: OutputMode = "copy",
    memory: CallersMemory | None = None,
    check: bool | None = None,
    integrity: IntegrityMode = "lazy",
    trusted_keys: Iterable[Key] | None = None,
    types: Iterable[type[Any]] = (),
    isolated: bool = False,
    cache: CacheChoice = None,
    concurrency: Concurrency | None = None,
) -> Module | IsolatedModule:
    """Load a `.pte` (a path above 16 MiB is mapped) and its `method`; the others when they are first used.

        run = delegraph.load("model.pte")
        scores = run(np.zeros((1, 3, 224, 224), np.float32))  # arguments and results have the model's structure

    path_or_bytes: the `.pte`: a path, a URL, its bytes, or what else can be read as one.
    method: the one that calling the result calls.
    kernels: libraries or their names in order of preference, or such orders by operator, `{"aten::mm.out": ["mine"],
        "*": ["portable"]}`; the default is all that are installed.
    backends: runtime halves by backend id, which go before installed ones.
    data_path: the `.ptd` with external weights, or several; where two have the same key, the later one counts.
    backend_options: options at load by backend, `{"cpu": {"num_threads": 1}}`: by its name in lowering, or its id in
        the file.
    event_tracer: collects times and values of each load and execution.
    plugins: the plug-ins to use instead of the installed ones.
    prefer: which distribution is meant where two offer one name, `{"backends:Npu": "acme-npu"}`.
    platform: the machine's clock, log and memory, or the name of an installed one.
    limits: what each method may use; None: the defaults of `Limits`.
    inputs: `"auto"`, `"borrow"` or `"copy"`, where inputs are read: see `Borrowing`.
    outputs: `"copy"` or `"borrow"`, whether outputs are the caller's own: see `Borrowing`.
    memory: buffers of the caller's for planned memories of `method`, by memory id (see `Program.load_method`), or such
        buffers by method, `{"decode": {1: sram}}`. Memories that it does not name, and other sessions, are allocated.
    check: watch what kernels and delegates do to their arguments: one that leaves an output as it was, or changes an
        input, raises `Internal` that names it. It costs time; None: as the environment variable DELEGRAPH_CHECK says.
    integrity: `"full"`, `"lazy"` or `"none"`, when the checksums of the files are checked: see `Program.load`.
    trusted_keys: public Ed25519 keys, one of which must have signed each file: see `Program.load`.
    types: classes of NamedTuples and dataclasses that are to stand in results where the model has them, told by their
        names; without them these are tuples and dicts, for nothing in a file chooses a class.
    isolated: in a process of its own, which opens no file and no socket once the program is loaded, and whose death is
        an exception here (`IsolatedModule`). Options are names, numbers and truth values then.
    cache: where backends keep what they compile or pack at load, for the next load on this machine: a folder, a
        `CompilationCache`, or True, the one below the user's folder of caches. None: as the environment variable
        DELEGRAPH_CACHE says; if that is not set, loading writes nothing.
    concurrency: how many calls run at a time, how many may wait and for how long, and whether those that wait are
        batched; None: the defaults of `Concurrency`.

    Raises `InvalidArgument` for an option that there is not or a backend that the program does not have, and what
    `Program.load` and `Program.load_method` raise.
    """
    if isolated:
        from delegraph.runtime.isolation.module import load_isolated

        options: dict[str, Any] = {
            "kernels": kernels,
            "backends": backends,
            "backend_options": backend_options,
            "plugins": plugins,
        }
        options |= {"event_tracer": event_tracer, "prefer": prefer, "memory": memory, "check": check}
        options |= {"concurrency": concurrency}
        options |= {} if platform is DEFAULT_PLATFORM else {"platform": platform}
        options |= {"cache": os.path.abspath(cache) if isinstance(cache, os.PathLike) else cache}
        return load_isolated(
            cast("Source", path_or_bytes),
            method=method,
            data_path=data_path,
            limits=limits,
            integrity=integrity,
            trusted_keys=trusted_keys,
            types=types,
            **{name: value for name, value in options.items() if value is not None},
        )
    environment = Environment.of(kernels, backends, plugins, prefer, platform, limits, check, cache)
    program = Program.load(
        path_or_bytes, data_path=data_path, environment=environment, integrity=integrity, trusted_keys=trusted_keys
    )
    _require_backends(program, backends or {})
    return Module(
        program,
        method,
        event_tracer=event_tracer,
        backend_options=backend_options,
        borrowing=Borrowing(inputs, outputs),
        memory=memory,
        types=types,
        concurrency=concurrency,
    )


def _require_backends(program: Program, backends: Mapping[str, BackendInterface]) -> None:
    """Raise `InvalidArgument` for a backend that was handed over under an id which the program does not have."""
    for name in backends:
        if name not in program.backend_ids:
            from delegraph.plugins.discovery import did_you_mean

            known = sorted(program.backend_ids)
            raise InvalidArgument(
                f"the program has no backend {name!r}; its backends are {', '.join(known) or 'none'}"
                f"{did_you_mean(name, known)}"
            )


def _by_method(memory: CallersMemory, main_name: str, program: Program) -> Mapping[str, CallersBuffers]:
    """The caller's buffers by method. Raises `InvalidArgument` for a method that is not there."""
    named = {name: buffers for name, buffers in memory.items() if isinstance(name, str)}
    if not named:
        return {main_name: cast("CallersBuffers", memory)} if memory else {}
    for name in memory:
        if name not in program.method_names:
            known = ", ".join(sorted(program.method_names))
            raise InvalidArgument(f"memory is given for method {name!r}; the program has {known}")
    return cast("Mapping[str, CallersBuffers]", named)


def _load_again(
    program: Program,
    method: str,
    backend_options: BackendOptions | None,
    borrowing: Borrowing | None,
    types: Iterable[type[Any]] = (),
    concurrency: Concurrency | None = None,
) -> Module:
    return Module(
        program, method, backend_options=backend_options, borrowing=borrowing, types=types, concurrency=concurrency
    )


class Module:
    """A loaded program. Calling it calls its main method; the others are `module["name"]` or `module.name`.

    Any number of threads and tasks may call a method that keeps no state: see `Concurrency`. State is one session's,
    and so is a method that has some: one thread at a time, a second one gets `InvalidState`. `session()` and `fork()`
    give other sessions over the same program, for other threads or other courses of a conversation. The same holds of
    all methods where outputs are borrowed. Leaving `with`, or `close`, ends it.
    """

    def __init__(
        self,
        program: Program,
        method: str = "forward",
        *,
        event_tracer: EventTracer | None = None,
        backend_options: BackendOptions | None = None,
        borrowing: Borrowing | None = None,
        memory: CallersMemory | None = None,
        types: Iterable[type[Any]] = (),
        concurrency: Concurrency | None = None,
    ) -> None:
        sessions = Sessions(program, event_tracer, backend_options, borrowing, types_by_name(types))
        self._begin(sessions, method, memory, concurrency)
        self._main  # noqa: B018  # what loading raises is raised here

    def _begin(
        self,
        sessions: Sessions,
        main_name: str,
        memory: CallersMemory | None = None,
        concurrency: Concurrency | None = None,
    ) -> None:
        self.program = sessions.program
        self._sessions = sessions
        self._concurrency = concurrency
        self._main_name = main_name
        self._memory = _by_method(memory or {}, main_name, self.program)
        self._shared = SharedState(self.program)
        self._loaded: dict[str, StructuredMethod] = {}
        self._is_closed = False
        self._lock = Lock()

    @cached_property
    def _main(self) -> StructuredMethod:
        return self[self._main_name]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the main method; see `StructuredMethod.__call__`."""
        return self._main(*args, **kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> Call:
        """Have the main method called in a thread of the module's; see `StructuredMethod.submit`."""
        return self._main.submit(*args, **kwargs)

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """The main method's result, awaited; see `StructuredMethod.acall`."""
        return await self._main.acall(*args, **kwargs)

    def map(self, *iterables: Iterable[Any], buffersize: int | None = None) -> Iterator[Any]:
        """The main method's results for the items of `iterables`, in order; see `StructuredMethod.map`."""
        return self._main.map(*iterables, buffersize=buffersize)

    def close(self) -> None:
        """Refuse new calls, wait for those that run or stand in line, and destroy the delegates. Calls raise
        `InvalidState` from now on. Other sessions go on."""
        with self._lock:
            self._is_closed = True
            methods = list(self._loaded.values())
        for method in methods:
            method.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> StructuredMethod:
        """The method `name`, loaded when it is first asked for. Raises `NotFound`, or what loading raises."""
        with self._lock:
            if name not in self._loaded:
                if self._is_closed:
                    raise InvalidState("the module was closed; load it again")
                method = self._sessions.load(name, self._shared, self._memory.get(name))
                container = self.program.plan(name).container_meta_type
                workers = self._workers(name, method)
                batched = self._batched(name, method, workers)
                self._loaded[name] = StructuredMethod(method, container, self._sessions.types, workers, batched)
            return self._loaded[name]

    def _workers(self, name: str, first: Method) -> Workers:
        """The workers on which calls of the method `name` run."""
        views = self._sessions.borrowing is not None and self._sessions.borrowing.outputs == "borrow"
        concurrency = self._concurrency
        if self._sessions.event_tracer is not None or name in self._memory:  # there is one tracer, one such memory
            from delegraph.runtime.concurrency import Concurrency

            concurrency = replace(concurrency or Concurrency(), workers=1)
        more = partial(self._sessions.load, name, self._shared)
        planned = sum(self.program.plan(name).non_const_buffer_sizes)
        return Workers(name, first, more, lambda: views or first.keeps_state, planned, concurrency)

    def _batched(self, name: str, method: Method, workers: Workers) -> BatchedCalls | None:
        """The batches of the method `name`. Raises `InvalidArgument` if the main method's calls can be none."""
        if self._concurrency is None or self._concurrency.max_batch == 1:
            return None
        from delegraph.runtime.batched_calls import BatchedCalls, not_batched

        rows = self._concurrency.max_batch
        why = not_batched(self.program.contracts.get(name), method.keeps_state, rows)
        if why and name == self._main_name:
            raise InvalidArgument(f"Concurrency(max_batch={rows}): method {name!r}: {why}")
        return None if why else BatchedCalls(workers)

    def __getattr__(self, name: str) -> StructuredMethod:
        # Only for names that are no attributes. `program` is missing while an instance is being unpickled.
        if name == "program" or name not in self.program.method_names:
            raise AttributeError(f"{type(self).__name__} has neither an attribute nor a method {name!r}")
        return self[name]

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to another process with its options, not with its state: see `Program.__reduce__`."""
        if self._sessions.event_tracer is not None:
            raise InvalidState("a Module with an event tracer cannot be sent to another process; load it there")
        return _load_again, (
            self.program,
            self._main_name,
            self._sessions.backend_options,
            self._sessions.borrowing,
            tuple(self._sessions.types.values()),
            self._concurrency,
        )

    # ---- state -------------------------------------------------------------------------------------

    @cached_property
    def state(self) -> State:
        """The mutable buffers of all methods, by name; `method/name` where methods each have one of their own.

        The methods are loaded for it. Raises what loading raises.
        """
        return joined_state({name: self[name].method.state for name in self.methods})

    def session(self, method: str | None = None, *, concurrency: Concurrency | None = None) -> Module:
        """Another session over the same program, its state as it is at first. Calling it calls `method`, or the method
        that is this one's main one; `concurrency` takes the place of this one's. Raises what loading raises.

        Backends that can (`BackendInterface.fork`) share with it their programs compiled at load.
        """
        twin = self._twin(method or self._main_name, concurrency)
        twin._main  # noqa: B018
        return twin

    def _twin(self, main_name: str, concurrency: Concurrency | None = None) -> Module:
        """Another session, no method of it loaded yet."""
        twin = Module.__new__(Module)
        twin._begin(self._sessions, main_name, concurrency=concurrency or self._concurrency)
        return twin

    def fork(self) -> Module:
        """Another session that goes on from here: its state is a copy of this one's.

        Its bytes are copied, and nothing is compiled again that backends can share (`BackendInterface.fork`);
        calls bound to memory, of kernels above all, are bound to the copy when it is first called. Raises
        `InvalidState` while a method is executing.
        """
        twin = self._twin(self._main_name)
        twin._shared.copy_of(self._shared)
        with self._lock:
            own = [name for name in self._loaded if name not in self._shared.methods]
        for name in own:
            twin[name].method.copy_memory_of(self[name].method)
        return twin

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the program's methods, sorted."""
        return tuple(sorted(self.program.method_names))

    @property
    def metadata(self) -> MethodMeta:
        """The main method's inputs and outputs, flattened."""
        return self._main.metadata

    def __repr__(self) -> str:
        return f"Module({', '.join(map(printable, self.methods))}; main: {self._main!r})"

    def _repr_html_(self) -> str:
        """The HTML that notebooks show."""
        return self.program._repr_html_()
