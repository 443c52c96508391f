"""A source of bytes -> Program, which is read once and shared by all threads and methods."""

from __future__ import annotations

import os
from _thread import allocate_lock as Lock
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from delegraph.errors import InvalidArgument, InvalidExternalData, InvalidProgram, InvalidState, NotFound, printable
from delegraph.interfaces.data_loader import DataLoader
from delegraph.logs import Logger
from delegraph.program import schema
from delegraph.program.alternatives import alternatives_of, methods_of
from delegraph.program.contract import contracts_of
from delegraph.program.files.byte_order import refuse_big_endian
from delegraph.program.files.checked_source import CheckedSource
from delegraph.program.limits import Limits
from delegraph.program.schema import Buffer, ExecutionPlan
from delegraph.program.shared_state import shared_buffers_of
from delegraph.program.walk import delegates
from delegraph.runtime.data_loader import MmapDataLoader, Source, open_data_loader
from delegraph.runtime.integrity import UNSIGNED, IntegrityMode, OpenedFile, Trust, data_of, naming_file, open_file
from delegraph.runtime.loading import Choices, load_plan
from delegraph.runtime.method import Method
from delegraph.runtime.method_meta import MethodMeta
from delegraph.runtime.resolution.backend_options import BackendOptions
from delegraph.runtime.resolution.environment import Environment
from delegraph.runtime.shared_state import SharedState
from delegraph.runtime.values.borrowing import Borrowing
from delegraph.runtime.values.memory import CallersBuffers, HierarchicalAllocator, MemoryManager, allocate
from delegraph.runtime.values.value_parser import TensorSources

if TYPE_CHECKING:
    from delegraph.plugins.registry import PluginRegistry
    from delegraph.program.flat_tensor import ExternalData
    from delegraph.program.signatures import Key
    from delegraph.program.user_metadata import UserMetadata
    from delegraph.runtime.execution.tracing import EventTracer
    from delegraph.runtime.external_data import DataSources


_log = Logger(__name__)


class Verification(Enum):
    """How much of a program is checked when it is loaded.

    A program from bytes is always checked in full; `Minimal` trusts records that were made in this process.
    """

    Minimal = "minimal"
    InternalConsistency = "internal consistency"


class Program:
    """A loaded `.pte`: immutable, and used by any number of threads at a time. Constants are views into its source."""

    def __init__(
        self,
        records: schema.Program,
        *,
        environment: Environment | None = None,
        external_data: Mapping[str, ExternalData] | None = None,
        event_tracer: EventTracer | None = None,
        loaders: Sequence[DataLoader] = (),
        trust: Trust = UNSIGNED,
        files: Sequence[OpenedFile] = (),
    ) -> None:
        self.records = records
        self._trust = trust
        self._files = tuple(files)  # of these, those of which some bytes may have to be checked
        self._mapped = tuple(loader for loader in loaders if isinstance(loader, MmapDataLoader) and loader.is_mapped)
        self._digests: dict[tuple[int, int], bytes] = {}
        self._loaders = tuple(loaders)  # of the .pte, then of its .ptd files; none for records
        self._tracer = event_tracer
        self.environment = environment or Environment()
        self.external_data = external_data
        self.named_data: Mapping[str, Buffer] = MappingProxyType(_merged(records, external_data))
        """The data that delegates share, by key: of the `.pte`, and of the `.ptd` if there is one."""
        self.contracts = MappingProxyType(contracts_of(records))
        """The contracts of the methods' inputs, by method; a file that ExecuTorch wrote has none."""
        self.shared_buffers = shared_buffers_of(records)
        """Which methods share their mutable buffers; None: each has its own."""
        self.alternatives = alternatives_of(records)
        """The plans that may run in the place of delegates, by method and the delegate's index."""
        self._plans = {plan.name: plan for plan in methods_of(records)}
        self._lock = Lock()
        self.environment.plugin_registry().notify("program_loaded", program=self)

    @classmethod
    def load(
        cls,
        source: Source | schema.Program,
        *,
        verification: Verification = Verification.InternalConsistency,
        data_path: DataSources | None = None,
        environment: Environment | None = None,
        event_tracer: EventTracer | None = None,
        integrity: IntegrityMode = "lazy",
        trusted_keys: Iterable[Key] | None = None,
    ) -> Program:
        """Read a program from `source`; its external weights from `data_path`, a `.ptd` or several, the last one first.

        Records may be given in place of bytes. `event_tracer` is for all methods that are loaded without one of their
        own; `write_etdump_result_to_file` writes its events.
        `integrity` says when the checksums that the files have are checked: `"full"` all of them now, `"lazy"` what is
        read now, and large data in a mapped file or a buffer before the first run, `"none"` never. With `trusted_keys`,
        public Ed25519 keys (paths of PEM files, their bytes, or 32 bytes), each file is checked now, and must be signed
        with one of them; a file that is replaced in place afterwards is not checked again, so give bytes where others
        can write to it.

        Raises `AccessFailed`, `InvalidProgram`, `InvalidExternalData`, `UntrustedFile`, `InvalidArgument` for keys that
        are none, or `NotSupported` for keys without `cryptography` and on a big-endian machine.
        """
        refuse_big_endian()
        plugins = None if environment is None else environment.plugins
        trust = Trust.of(integrity, trusted_keys)
        opened = None if isinstance(source, schema.Program) else _open_program(source, plugins, trust)
        records = _records(source, opened, trust)
        if isinstance(source, schema.Program) and verification is Verification.InternalConsistency:
            from delegraph.program.checks.verify import verify_program

            verify_program(source)
        files: list[OpenedFile] = []
        if data_path is not None:
            from delegraph.runtime.external_data import open_data_files, read_external_data

            files = open_data_files(data_path, trust, plugins)
        external = read_external_data(files, records) if files else None
        opened_all = [*([] if opened is None else [opened]), *files]
        for file in opened_all:
            _log.info("opened %s: %d bytes", file.name or "a program in memory", file.loader.size())
        return cls(
            records,
            environment=environment,
            external_data=external,
            event_tracer=event_tracer,
            loaders=[] if opened is None else [file.loader for file in opened_all],
            trust=trust,
            files=[file for file in opened_all if isinstance(file.content, CheckedSource)],
        )

    @property
    def method_names(self) -> set[str]:
        """The names of the methods."""
        return set(self._plans)

    @property
    def backend_ids(self) -> frozenset[str]:
        """The backends that the methods have delegates or alternatives for, as the file calls them."""
        return frozenset(delegate.id for delegate in delegates(self.records))

    def metadata(self, method_name: str) -> MethodMeta:
        """A method's inputs and outputs, without loading it. Raises `NotFound`."""
        return MethodMeta(self.plan(method_name), self.contracts.get(method_name), lambda: self.user_metadata)

    @cached_property
    def user_metadata(self) -> UserMetadata:
        """The words of `lower(…, metadata=…)` about the model, lists as tuples; {} if there are none.

        Raises `InvalidProgram` if they are damaged."""
        from delegraph.program.user_metadata import user_metadata_of

        return user_metadata_of(self.records)

    def plan(self, method_name: str) -> ExecutionPlan:
        """The method's record. Raises `NotFound`."""
        plan = self._plans.get(method_name)
        if plan is None:
            known = ", ".join(map(printable, sorted(self._plans)))
            raise NotFound(f"no method {method_name!r}; the program has {known or 'none'}")
        return plan

    def load_method(
        self,
        name: str,
        *,
        memory_manager: MemoryManager | None = None,
        event_tracer: EventTracer | None = None,
        backend_options: BackendOptions | None = None,
        limits: Limits | None = None,
        shared_state: SharedState | None = None,
        like: Method | None = None,
        borrowing: Borrowing | None = None,
        memory: CallersBuffers | None = None,
    ) -> Method:
        """A new Method with memory of its own, which is freed with it.

        Only mutable buffers that the program's methods share, if they do, lie in `shared_state`, which is the program's
        one if none is given. `memory_manager` gives the Method the caller's memory, and then nothing is shared but
        what the caller shares; `backend_options` are load-time options by backend: by
        its id in the file, or by the name that it has in lowering; `limits` take the place of the environment's, and
        `borrowing` says where inputs are read and what outputs are.
        `memory` has buffers of the caller's for some of the method's planned memories, by memory id: of the size that
        `MethodMeta` says or more, writable, beginning at a multiple of 16 bytes. They are zeroed, and the Method's for
        as long as it lives.
        With `like`, this method as it was loaded before, kernels are not looked up again, and delegates share with
        those of `like` what no run changes, where their backends can (`BackendInterface.fork`) and options and tracer
        are the same.
        Raises `NotFound`, `OperatorMissing`, `BackendMissing`, `DelegateInvalidCompatibility`, `InvalidProgram`,
        `InvalidExternalData`, `MemoryAllocationFailed`, `LimitExceeded`, `NotSupported`, `InvalidArgument` for options
        that name no backend of the program or that it does not have, or what a backend's `init` raises.
        """
        if shared_state is not None and shared_state.records is not self.records:
            raise InvalidArgument("shared_state is of another program; make one of this one: SharedState(program)")
        if like is not None and (like.program is not self or like.metadata.name() != name):
            raise InvalidArgument(f"like is another method than {name!r} of this program")
        if memory_manager is not None and memory is not None:
            raise InvalidArgument("memory_manager gives all of a method's memory, so that memory has no use beside it")
        shared = None if memory_manager is not None else shared_state or self._own_shared_state()
        self.require_unchanged()
        plan = self.plan(name)
        choices = Choices(
            limits=limits or self.environment.limits,
            memory_manager=memory_manager,
            memory=memory or {},
            shared_state=shared if shared is not None and name in shared.methods else None,
            borrowing=borrowing or Borrowing(),
            backend_options=backend_options or {},
            event_tracer=event_tracer or self._tracer,
        )
        method = Method(self, load_plan(self, plan, choices, None if like is None else like._loaded))
        self.require_unchanged()
        self.environment.plugin_registry().notify("method_loaded", method=method)
        return method

    def _own_shared_state(self) -> SharedState | None:
        if self.shared_buffers is None:
            return None
        with self._lock:
            return self._shared_state

    @cached_property
    def _shared_state(self) -> SharedState:
        return SharedState(self)

    def tensor_sources(self, planned: HierarchicalAllocator, kept: int = 0) -> TensorSources:
        """Where the bytes of tensors come from, for a method with that planned memory (see `TensorSources`)."""
        return TensorSources(
            self.records.constants,
            self.records.mutable_data,
            self.external_data,
            planned,
            partial(allocate, self.environment.platform),
            kept,
            self.records.named_data,
        )

    def write_etdump_result_to_file(
        self, etdump_path: str | os.PathLike[str], debug_buffer_path: str | os.PathLike[str] | None = None
    ) -> None:
        """Write the events traced since the last time: an ETDump, and the values that it refers to in a file beside it.

        The second is written only where it is named and values were kept. Raises `InvalidState` unless the program was
        loaded with `enable_etdump=True` and a method of it has been loaded since.
        """
        if self._tracer is None:
            raise InvalidState("no ETDump was recorded; load the program with load_program(…, enable_etdump=True)")
        if not self._tracer.blocks:
            raise InvalidState("nothing was traced since the last ETDump was written; execute a method first")
        from delegraph.program.etdump import serialize_etdump
        from delegraph.program.files.atomic_file import write_atomically
        from delegraph.runtime.execution.etdump import make_etdump

        etdump, debug_buffer = make_etdump(self._tracer.take_blocks())
        write_atomically(etdump_path, [serialize_etdump(etdump)])
        kept = debug_buffer or self._tracer.keeps_outputs
        if kept and debug_buffer_path is not None:
            write_atomically(debug_buffer_path, [debug_buffer])

    def check_files(self, plan: ExecutionPlan, keys: Collection[str] | None = None) -> None:
        """Check the data that a plan uses, where that has not been done; a Method does it before its first run. Of the
        named data those of `keys` (None: all).

        Pages that are read for it are let go of again. Raises `InvalidProgram` or `InvalidExternalData` for damage.
        Nothing is checked with `integrity="none"`.
        """
        for file in self._files:
            content = file.content
            if not isinstance(content, CheckedSource) or content.is_checked:
                continue
            with naming_file(file.name):
                for data in data_of(plan, self.records, self.external_data or {}, keys):
                    if content.check(data):
                        file.loader.release(data)

    @property
    def is_mapped(self) -> bool:
        """Whether it uses the own memory of a file, which nobody may change."""
        return bool(self._mapped)

    def require_unchanged(self) -> None:
        """Raise `AccessFailed` if a file that is mapped was written to, or cut, since it was opened."""
        for file in self._mapped:
            file.require_unchanged()

    def release(self, data: Buffer) -> None:
        """Let go of the memory behind a buffer of the file that nobody reads soon: see `DataLoader.release`."""
        if self._loaders:
            self._loaders[0].release(data)

    def digest(self, data: Buffer) -> bytes:
        """SHA-256 of `data`. What lies in a mapped file is hashed once, and its pages are let go of."""
        view = memoryview(data)
        from mmap import mmap

        from delegraph.interfaces.backend_cache import sha256

        if not isinstance(view.obj, mmap):
            return sha256(data)
        place = np.frombuffer(view, np.uint8).ctypes.data, view.nbytes
        if place not in self._digests:
            self._digests[place] = sha256(data)
            for loader in self._mapped:  # who has not mapped it does nothing
                loader.release(data)
        return self._digests[place]

    def content_digest(self) -> str:
        """SHA-256 of the bytes of its files, the `.pte` and then each `.ptd`, in hexadecimal digits.

        Raises `InvalidState` for a program made of records, which has none."""
        if not self._loaders:
            raise InvalidState("this Program was made of records, and has no file")
        import hashlib

        content = hashlib.sha256()
        for loader in self._loaders:
            for start in range(0, loader.size(), 2**24):
                piece = loader.load(start, min(2**24, loader.size() - start))
                content.update(piece)
                loader.release(piece)
        return content.hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to another process, where its files are opened, and mapped, again; bytes are sent along.

        Raises `InvalidState` for parts of this process alone: records, plug-ins that were handed in, a tracer.
        """
        mine = [
            what
            for what, is_mine in (
                ("was made of records", not self._loaders),
                ("has a plug-in registry of its own", self.environment.has_own_plugins),
                ("has an event tracer", self._tracer is not None),
            )
            if is_mine
        ]
        if mine:
            raise InvalidState(f"this Program cannot be sent to another process: it {', '.join(mine)}; load it there")
        return _load_again, (self._loaders, self.environment, self._trust)

    def __repr__(self) -> str:
        return f"Program({', '.join(map(printable, sorted(self._plans)))})"

    def _repr_html_(self) -> str:
        """The HTML that notebooks show."""
        return self.records._repr_html_()


def _open_program(source: Source, plugins: PluginRegistry | None, trust: Trust) -> OpenedFile:
    loader = open_data_loader(source, plugins)
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else ""
    return open_file(name, loader, trust, InvalidProgram)


def _records(source: Source | schema.Program, opened: OpenedFile | None, trust: Trust) -> schema.Program:
    """The program in the file that was opened; records that were given are their own."""
    if opened is None:
        assert isinstance(source, schema.Program)
        if trust.keys is not None:
            raise InvalidArgument("trusted_keys are given for records, which nobody can sign; load the file")
        return source
    from delegraph.program.files.deserialize import deserialize_program

    with naming_file(opened.name):
        return deserialize_program(opened.content)


def _load_again(loaders: Sequence[DataLoader], environment: Environment, trust: Trust) -> Program:
    program, *data = loaders
    return Program.load(
        program,
        data_path=data or None,
        environment=environment,
        integrity=trust.integrity,
        trusted_keys=trust.keys,
    )


def _merged(records: schema.Program, external: Mapping[str, ExternalData] | None) -> dict[str, Buffer]:
    """The data that delegates share, by key. Raises `InvalidExternalData` for a key that both files have."""
    merged: dict[str, Buffer] = {key: named.data for key, named in records.named_data.items()}
    for key, entry in (external or {}).items():
        if key in merged:
            raise InvalidExternalData(
                f"both the program and its .ptd have data named {key!r}; use the .ptd that was written with this .pte"
            )
        merged[key] = entry.data
    return merged
