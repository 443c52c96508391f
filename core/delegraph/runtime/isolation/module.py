"""An isolated program, as its user has it: called like a `Module`, with the model's own arguments and results."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict
from functools import cached_property
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces.data_loader import DataLoader
from delegraph.program.limits import DEFAULT_LIMITS, Limits
from delegraph.runtime.calls.arguments import Arguments
from delegraph.runtime.calls.pytree import types_by_name
from delegraph.runtime.data_loader import Source, open_data_loader
from delegraph.runtime.integrity import IntegrityMode, Trust
from delegraph.runtime.isolation.frames import Arrays, value_of
from delegraph.runtime.isolation.process import Process
from delegraph.runtime.method_meta import MethodMeta
from delegraph.runtime.program import Program
from delegraph.runtime.state import NoSuchBuffer
from delegraph.runtime.structured_method import StructuredMethod
from delegraph.runtime.values.tensors import any_torch_tensor, as_array, to_torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delegraph.program.signatures import Key
    from delegraph.runtime.external_data import DataSources

__all__ = ["IsolatedMethod", "IsolatedModule", "IsolatedState", "load_isolated"]


def load_isolated(
    path_or_bytes: Source,
    *,
    method: str = "forward",
    data_path: DataSources | None = None,
    limits: Limits | None = None,
    integrity: IntegrityMode = "lazy",
    trusted_keys: Iterable[Key] | None = None,
    types: Iterable[type[Any]] = (),
    **options: Any,
) -> IsolatedModule:
    """Load a program in a process of its own: `delegraph.load(…, isolated=True)`, which says what the arguments are.

    `options` are `kernels`, `backend_options`, `prefer`, `check` and `cache`, of names, numbers and truth values.
    Raises what loading raises, and `InvalidType` for options that are objects of this process.
    """
    by_name = types_by_name(types)
    trust = Trust.of(integrity, trusted_keys)
    limits = limits or DEFAULT_LIMITS
    data_files = [] if data_path is None else [data_path] if isinstance(data_path, _ONE) else list(data_path)
    arrays: Arrays = []
    sources = [_sent(source, arrays) for source in (path_or_bytes, *data_files)]
    program = Program.load(
        _again(sources[0], arrays),
        data_path=[_again(source, arrays) for source in sources[1:]] or None,
        integrity=integrity,
        trusted_keys=trust.keys,
    )
    process = Process(limits)
    try:
        lacking = process.load(
            {
                "sources": sources,
                "limits": asdict(limits),
                "keys": None if trust.keys is None else [key.hex() for key in trust.keys],
                "options": {"method": method, "integrity": integrity, **_plain(options)},
            },
            arrays,
        )
    except BaseException:
        process.close()
        raise
    return IsolatedModule(program, method, process, str(lacking), by_name)


_ONE = (str, os.PathLike, bytes, bytearray, memoryview, DataLoader)


def _sent(source: Any, arrays: Arrays) -> str | int:
    """A path as it is, anything else as the number of the array of its bytes."""
    if isinstance(source, os.PathLike) or (isinstance(source, str) and "://" not in source):
        return os.path.abspath(os.fspath(source))
    loader = open_data_loader(source)
    arrays.append(np.frombuffer(loader.load(0, loader.size()), np.uint8))
    return len(arrays) - 1


def _again(source: str | int, arrays: Arrays) -> Source:
    return source if isinstance(source, str) else arrays[source].data


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in options.items():
        if not _is_plain(value):
            raise InvalidType(f"{name}={value!r:.80} is of this process; an isolated program takes names and numbers")
    return dict(options)


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


class IsolatedModule:
    """A loaded program whose methods run in a process of their own. `with` ends it, or `close`, or its last reference.

    Threads that call it wait for each other. If the process dies, the call raises `Internal`, which names the signal,
    and those after it raise `InvalidState`. A run that is cancelled, or is over its time, ends the process.
    """

    def __init__(
        self,
        program: Program,
        method: str,
        process: Process,
        lacking: str = "",
        types: Mapping[str, type[Any]] = MappingProxyType({}),
    ) -> None:
        self.program = program
        """The program as this process read it, which runs nothing."""
        self.lacking = lacking
        """Why the process may still open files and sockets, in words; "": it may not."""
        self._process = process
        self._types = types
        self._main = self[method]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the main method; see `StructuredMethod.__call__`."""
        return self._main(*args, **kwargs)

    def __getitem__(self, name: str) -> StructuredMethod:
        """The method `name`. Raises `NotFound`."""
        plan = self.program.plan(name)
        method: Any = IsolatedMethod(self.program, name, self._process)
        return StructuredMethod(method, plan.container_meta_type, self._types)

    def __getattr__(self, name: str) -> StructuredMethod:
        if name.startswith("_") or name == "program" or name not in self.program.method_names:
            raise AttributeError(f"{type(self).__name__} has neither an attribute nor a method {name!r}")
        return self[name]

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the program's methods, sorted."""
        return tuple(sorted(self.program.method_names))

    @property
    def metadata(self) -> MethodMeta:
        """The main method's inputs and outputs, flattened."""
        return self._main.metadata

    @cached_property
    def state(self) -> IsolatedState:
        """The mutable buffers of all methods, by name, as `Module.state` has them."""
        return IsolatedState(self._process)

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def cancel(self) -> bool:
        """End the call that runs now, from another thread, and the process with it; False if none runs."""
        return self._process.cancel()

    def close(self) -> None:
        """End the process. Calls raise `InvalidState` from now on."""
        self._process.close()

    def __enter__(self) -> IsolatedModule:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class IsolatedMethod:
    """A method in another process: that of `Method` which a `StructuredMethod` needs."""

    def __init__(self, program: Program, name: str, process: Process) -> None:
        self.metadata = program.metadata(name)
        """The method's inputs and outputs, flattened."""
        contract = program.contracts.get(name)
        parameters = () if contract is None else contract.parameters
        encoded = program.plan(name).container_meta_type.encoded_inp_str
        self.arguments = Arguments(encoded, self.metadata.num_inputs(), parameters)
        """The inputs' names, and how a call's arguments become inputs."""
        self._name, self._process = name, process

    def execute(
        self, inputs: Sequence[object], *, clone_outputs: bool | None = None, out: Sequence[object] | None = None
    ) -> list[Any]:
        """Run once on the inputs, sent there; the outputs are the caller's own, whatever `clone_outputs` says.

        Raises as `Method.execute`, as `IsolatedModule` says, and `InvalidArgument` for `out`.
        """
        if out is not None:
            raise InvalidArgument(f"method {self._name!r} is isolated, and has no out=")
        arrays: Arrays = []
        sent = [value_of(_value(value), arrays) for value in inputs]
        outputs = self._process.ask({"action": "execute", "method": self._name, "inputs": sent}, arrays)
        outputs = outputs if isinstance(outputs, list) else [outputs]
        return to_torch(outputs) if any_torch_tensor(inputs) else outputs


def _value(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | float | str) else as_array(value)


class IsolatedState(MutableMapping[str, NDArray[Any]]):
    """The mutable buffers of a program in another process: each is read, and set, as a copy."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A copy of the buffer. Raises `NoSuchBuffer`, which is a KeyError, for a name that is none."""
        if name not in list(self):
            raise NoSuchBuffer(f"the program has no mutable buffer {name!r}")
        (array,) = self._process.ask({"action": "get state", "name": name})
        return np.asarray(array)

    def __setitem__(self, name: str, value: object) -> None:
        self._process.ask({"action": "set state", "name": name}, [as_array(value)])

    def __delitem__(self, name: str) -> None:
        raise InvalidArgument(f"buffer {name!r} is a part of the program, and cannot be taken out")

    def __iter__(self) -> Iterator[str]:
        return iter(self._process.ask({"action": "state"}))

    def __len__(self) -> int:
        return len(self._process.ask({"action": "state"}))

    def reset(self) -> None:
        """Set all buffers to what they were when the program was loaded."""
        self._process.ask({"action": "reset state"})
