"""Blobs -> initialised delegates: find the backend, let it judge the blob's stamp, then initialise.

A delegate that cannot run here is refused when the method is loaded, and the message says which distribution made
the blob and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from delegraph.errors import (
    AccessFailed,
    BackendMissing,
    DelegateInvalidCompatibility,
    Internal,
    InvalidArgument,
    InvalidExternalData,
    InvalidProgram,
    InvalidState,
    InvalidType,
    LimitExceeded,
    PluginNotFound,
    RuntimeFault,
    UntrustedFile,
    cause_of,
    printable,
    restated,
)
from delegraph.interfaces.backend import (
    Argument,
    Availability,
    BackendExecutionContext,
    BackendInitContext,
    BackendInterface,
    Compatibility,
    Handle,
    Verdict,
)
from delegraph.interfaces.options import Options
from delegraph.interfaces.stamp import STAMP_KEY, BlobStamp, read_stamp
from delegraph.lazy_dataclass import dataclass, replace
from delegraph.logs import Logger
from delegraph.program.schema import BackendDelegate, Buffer, ExecutionPlan
from delegraph.runtime.lacking import lacking
from delegraph.runtime.resolution.alternatives import DelegatesFailed
from delegraph.runtime.resolution.backends import BackendRegistry

if TYPE_CHECKING:
    from delegraph.interfaces.submission import Event

_log = Logger(__name__)

Backends: TypeAlias = Mapping[str, BackendInterface]
"""The backends of a plan's delegates, by id."""

BindHook: TypeAlias = Callable[[BackendExecutionContext, Handle, Sequence[Argument]], Callable[[], object] | None]
"""`BackendInterface.bind`."""


SubmitHook: TypeAlias = "Callable[[BackendExecutionContext, Handle, Sequence[Argument]], Event]"
"""`BackendInterface.submit`."""

BindSubmitHook: TypeAlias = (
    "Callable[[BackendExecutionContext, Handle, Sequence[Argument]], Callable[[], Event] | None]"
)
"""`BackendInterface.bind_submit`."""


@dataclass(frozen=True, slots=True)
class Submission:
    """How a delegate is submitted: the hooks of its backend."""

    submit: SubmitHook
    bind: BindSubmitHook


@dataclass(frozen=True, slots=True)
class Delegate:
    """An initialised blob, which a `DelegateCall` calls. The hooks are the backend's, tools' wrappers around them."""

    backend_id: str
    handle: Handle
    num_outputs: int | None
    execute: Callable[[BackendExecutionContext, Handle, Sequence[Argument]], None]
    cancel: Callable[[bool], None]
    destroy: Callable[[Handle], None]
    bind_hook: BindHook
    binds_again: bool
    submission: Submission | None = None
    """None: it is not submitted, but executed."""

    def outputs_of(self, args: Sequence[Argument]) -> Sequence[Argument]:
        """Those of a call's arguments that are known to be written: the last, if the handle does not tell more."""
        return args[len(args) - (1 if self.num_outputs is None else self.num_outputs) :]

    def bind(self, context: BackendExecutionContext, args: Sequence[Argument]) -> Callable[[], object]:
        """A call that runs with exactly these arguments."""
        bound = self.bind_hook(context, self.handle, args)
        return partial(self.execute, context, self.handle, args) if bound is None else bound

    def bind_submit(self, context: BackendExecutionContext, args: Sequence[Argument]) -> Callable[[], Event]:
        """A call that submits a run with exactly these arguments."""
        assert self.submission is not None
        bound = self.submission.bind(context, self.handle, args)
        return partial(self.submission.submit, context, self.handle, args) if bound is None else bound


def load_delegates(
    plan: ExecutionPlan,
    blobs: Sequence[Buffer],
    registry: BackendRegistry,
    backends: Backends,
    context_for: Callable[[int], BackendInitContext],
    release: Callable[[Buffer], None],
    like: Sequence[Delegate] = (),
    replaceable: Container[BackendDelegate] = (),
) -> tuple[tuple[Delegate, ...], Callable[[], None]]:
    """All delegates of `plan`, which are of `backends`, and the call that destroys them.

    `context_for(index)` is the context for its `init`; blobs that a backend does not keep are passed to `release`.
    `like` are those of another session, loaded likewise. `replaceable` are delegates in whose place others can run.

    Raises `DelegateInvalidCompatibility`, or the error of an `init`; and `DelegatesFailed` for all of the replaceable
    that failed. Those that were initialised are then destroyed.
    """
    loaded: list[Delegate] = []
    failures: dict[BackendDelegate, RuntimeFault] = {}
    with ExitStack() as destroy:
        for index, record in enumerate(plan.delegates):
            backend, start = backends[record.id], perf_counter()
            try:
                context = context_for(index)
                delegate = _fork(backend, like[index], context) if like else None
                if delegate is None:
                    check_stamp(backend, record)
                    delegate = _init(backend, record, blobs[record.processed], registry, context)
            except Exception as error:
                fault = _fault(error)
                if record not in replaceable or isinstance(fault, _OF_THE_CALLER):
                    where = f"method {plan.name!r}, delegate {index} ({printable(record.id)})"
                    raise restated(fault, f"{where}: {fault}") from error
                failures[record] = fault
                continue
            loaded.append(delegate)
            told = (index, printable(plan.name), printable(record.id), perf_counter() - start)
            _log.debug("delegate %d of %s: %s initialised it in %.3f s", *told)
            destroy.callback(delegate.destroy, delegate.handle)
            if not backend.keeps_processed:
                release(blobs[record.processed])
        if failures:
            raise DelegatesFailed(failures)
        return tuple(loaded), destroy.pop_all().close


_OF_THE_CALLER: Final = (
    *(InvalidArgument, InvalidType, InvalidState, LimitExceeded),
    *(InvalidProgram, InvalidExternalData, UntrustedFile, AccessFailed),
)
"""Faults of an `init` that say nothing of the device: the caller's options and limits, files that are damaged."""


def _fault(error: Exception) -> RuntimeFault:
    if isinstance(error, RuntimeFault):
        return error
    fault = lacking(error) or Internal(f"while initialising: {cause_of(error)}")
    fault.__cause__ = error
    return fault


def find_backends(plan: ExecutionPlan, registry: BackendRegistry) -> dict[str, BackendInterface]:
    """The backends of the delegates of `plan`, by id. Raises a `BackendMissing` that names all missing ones."""
    backends: dict[str, BackendInterface] = {}
    missing: list[str] = []
    for record in {record.id: record for record in plan.delegates}.values():
        absence = absence_of(record, registry)
        if absence is None:
            backends[record.id] = registry.get(record.id)
        else:
            missing.append(absence)
    if missing:
        raise BackendMissing(f"method {plan.name!r} cannot be loaded:\n  " + "\n  ".join(missing))
    return backends


def absence_of(record: BackendDelegate, registry: BackendRegistry) -> str | None:
    """Why the backend of a delegate is not installed, or not available here; None if it is.

    Raises a `PluginError` for one that cannot be loaded.
    """
    try:
        answer = Availability.of(registry.get(record.id))
    except PluginNotFound:
        return _not_installed(record, registry)
    if answer:
        return None
    fix = f"; {answer.fix}" if answer.fix else ""
    return f"backend {record.id!r} is installed but not available here: {answer.reason}{fix}"


def _not_installed(record: BackendDelegate, registry: BackendRegistry) -> str:
    from delegraph.plugins.missing import missing_remedy

    installed = ", ".join(registry.registered_backend_names) or "none"
    remedy = missing_remedy(record.id, read_stamp(record.compile_specs), registry.plugins)
    return f"backend {record.id!r} is not installed (installed: {installed}); {remedy}"


def check_stamp(backend: BackendInterface, record: BackendDelegate) -> None:
    """Let the backend judge a blob by its stamp. Raises `DelegateInvalidCompatibility` if it refuses it."""
    stamp = _stamp_of(record)
    compatibility: object = backend.check(stamp)
    if not isinstance(compatibility, Compatibility):
        raise Internal(f"its check returned {compatibility!r}; it has to return a delegraph.interfaces.Compatibility")
    if compatibility.verdict is Verdict.OK:
        return
    origin = str(stamp) if stamp is not None else "a blob without a stamp"
    if compatibility.reason.startswith(origin):  # as `BackendInterface.check` does, which also says what to do
        raise DelegateInvalidCompatibility(f"the backend refuses {compatibility.reason}")
    remedy = "lower the model again with what is installed here"
    if compatibility.verdict is Verdict.REFUSE and stamp is not None:
        remedy = f"use the release of the backend that reads it, or {remedy}"
    raise DelegateInvalidCompatibility(f"the backend refuses {origin}: {compatibility.reason}; {remedy}")


def _stamp_of(record: BackendDelegate) -> BlobStamp | None:
    """The blob's stamp, None if it has none.

    Raises `DelegateInvalidCompatibility` for one that cannot be read, which is not the same as none, or is another's.
    """
    stamp = read_stamp(record.compile_specs)
    if stamp is None and any(spec.key == STAMP_KEY for spec in record.compile_specs):
        raise DelegateInvalidCompatibility(
            "the stamp of its blob cannot be read: the file is damaged, or was made by a Delegraph to come; get it"
            " again, or lower the model again with what is installed here"
        )
    if stamp is not None and stamp.backend != record.id:
        raise DelegateInvalidCompatibility(
            f"the stamp of its blob is one of backend {stamp.backend!r}: the file is damaged; get it again, or lower"
            " the model again"
        )
    return stamp


def _init(
    backend: BackendInterface,
    record: BackendDelegate,
    blob: Buffer,
    registry: BackendRegistry,
    context: BackendInitContext,
) -> Delegate:
    hook = partial(registry.plugins.bound, "delegraph.backends", backend)
    specs = tuple(spec for spec in record.compile_specs if spec.key != STAMP_KEY)
    with _traced(context, record.id):
        handle = hook("init")(context, blob, specs)
    _refuse_unread(context.runtime_specs, record.id)
    execute = np.errstate(all="ignore")(hook("execute"))
    bind: BindHook = backend.bind
    if registry.plugins.is_wrapped("execute"):
        bind = _bind_within_wrappers(backend, registry)
    cancel = partial(backend.cancel, handle)
    return Delegate(
        record.id,
        handle,
        backend.num_outputs(handle),
        execute,
        cancel,
        hook("destroy"),
        bind,
        backend.binds_again,
        _submission(backend, handle, registry),
    )


def _submission(backend: BackendInterface, handle: Handle, registry: BackendRegistry) -> Submission | None:
    """A tool that surrounds executions, and knows nothing of submitted ones, would miss them: then there are none."""
    plugins = registry.plugins
    surrounded = plugins.is_wrapped("submit")
    if not backend.submits(handle) or (plugins.is_wrapped("execute") and not surrounded):
        return None
    submit = np.errstate(all="ignore")(plugins.bound("delegraph.backends", backend, "submit"))
    return Submission(submit, (lambda context, handle, args: None) if surrounded else backend.bind_submit)


def _fork(backend: BackendInterface, like: Delegate, context: BackendInitContext) -> Delegate | None:
    """The delegate that `backend` makes of one of another session; None if it makes it of the blob."""
    handle = backend.fork(context, like.handle)
    if handle is None:
        return None
    return replace(like, handle=handle, num_outputs=backend.num_outputs(handle), cancel=partial(backend.cancel, handle))


def _traced(context: BackendInitContext, backend_id: str) -> AbstractContextManager[None]:
    if context.event_tracer is None:
        return nullcontext()
    from delegraph.runtime.execution.tracing import LOAD_DELEGATE

    return context.event_tracer.profile(f"{LOAD_DELEGATE} {backend_id}")


def _refuse_unread(options: Mapping[str, object], backend_id: str) -> None:
    """Raise `InvalidArgument` for options that the backend did not look at."""
    if isinstance(options, Options) and options.unread:
        from delegraph.plugins.factory import unknown_options_text

        raise InvalidArgument(unknown_options_text(f"backend {backend_id!r}", options.unread, options.asked))


def _bind_within_wrappers(backend: BackendInterface, registry: BackendRegistry) -> BindHook:
    """`bind`, whose calls tools see as the `execute`s that they stand for. Wrappers are bound once, as binds are many,
    and by threads, for sessions share them."""
    from threading import local

    bound = local()
    execute = registry.plugins.bound("delegraph.backends", backend, "execute", lambda *_: bound.call())

    def bind(context: BackendExecutionContext, handle: Handle, args: Sequence[Argument]) -> Callable[[], object] | None:
        call = backend.bind(context, handle, args)
        if call is None:
            return None

        def run() -> None:
            bound.call = call
            execute(context, handle, args)

        return run

    return bind
