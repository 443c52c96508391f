"""ExecuTorch's `executorch.extension.pybindings._portable_lib`, its runtime's bindings, on `delegraph.runtime`.

Errors are `RuntimeError`s, as there, and say what was wrong. Outputs are torch tensors, as there, unless an input is
a NumPy array or nobody imported torch. Methods of one program share the mutable buffers that they were lowered to
share; there they share all planned memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NoReturn

from delegraph.devtools import load_bundled_program, verify_case
from delegraph.errors import InvalidArgument, InvalidState, NotSupported
from delegraph.program.schema import Buffer
from delegraph.runtime import BufferDataLoader, DataLoader, Method, MmapDataLoader, Program, Runtime, Verification
from delegraph.runtime import DataLoader as PyDataLoader
from delegraph_executorch.extension.pybindings.values import (
    MethodMeta,
    TensorInfo,
    failing_to,
    flat_inputs,
    torch_outputs,
)

__all__ = [
    "BundledModule",
    "ExecuTorchMethod",
    "ExecuTorchModule",
    "ExecuTorchProgram",
    "MethodMeta",
    "PyDataLoader",
    "TensorInfo",
    "Verification",
    "_create_profile_block",
    "_dump_profile_results",
    "_get_operator_names",
    "_get_registered_backend_names",
    "_is_available",
    "_load_bundled_program_from_buffer",
    "_load_for_executorch",
    "_load_for_executorch_from_buffer",
    "_load_for_executorch_from_bundled_program",
    "_load_for_executorch_from_data_loader",
    "_load_program",
    "_load_program_from_buffer",
    "_reset_profile_results",
    "_threadpool_get_thread_count",
    "_unsafe_reset_threadpool",
]


# ---- what was loaded -------------------------------------------------------------------------------


class ExecuTorchMethod:
    """A loaded method: `call` it, or set inputs, execute and get outputs one after the other."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self._inputs: Sequence[Any] = ()

    def set_inputs(self, inputs: Sequence[Any]) -> None:
        """Set all inputs; they stay until others are set."""
        self._inputs = flat_inputs(inputs)
        self._method.set_inputs(self._inputs)

    def execute(self) -> None:
        """Run on the inputs that were set last."""
        self._method.run()

    def get_outputs(self, clone_outputs: bool = True) -> list[Any]:
        """What the last run gave; without `clone_outputs` views of planned memory, which the next run overwrites."""
        return torch_outputs(self._method.get_outputs(clone_outputs=clone_outputs), self._inputs)

    def call(self, inputs: Sequence[Any] = (), clone_outputs: bool = True) -> list[Any]:
        """Set the inputs (a sequence, or a single tensor), run, and get the outputs."""
        self.set_inputs(inputs)
        self.execute()
        return self.get_outputs(clone_outputs)

    __call__ = call

    def get_attribute(self, name: str) -> Any:
        """The named mutable buffer, over its own memory."""
        return torch_outputs([self._method.get_attribute(name)], self._inputs)[0]

    def method_meta(self) -> MethodMeta:
        """What the method takes and gives."""
        return MethodMeta(self._method.program.plan(self._method.metadata.name()))


class _Loaded:
    """The common part of a loaded program and a module."""

    _program: Program
    _has_etdump: bool

    def method_meta(self, method_name: str) -> MethodMeta:
        """The inputs and outputs of a method, without loading it."""
        return MethodMeta(self._program.plan(method_name))

    def has_etdump(self) -> bool:
        """Whether it was loaded with `enable_etdump`."""
        return self._has_etdump

    def write_etdump_result_to_file(self, path: str, debug_buffer_path: str | None = None) -> None:
        """Write what was traced since the last time, and the values that were kept."""
        self._program.write_etdump_result_to_file(path, debug_buffer_path)


class ExecuTorchProgram(_Loaded):
    """A loaded program, whose methods are loaded one by one."""

    def __init__(self, program: Program, has_etdump: bool) -> None:
        self._program, self._has_etdump = program, has_etdump
        self._names = [plan.name for plan in program.records.execution_plan]

    def num_methods(self) -> int:
        """How many methods there are."""
        return len(self._names)

    def get_method_name(self, method_index: int) -> str:
        """The name of a method by its place in the file."""
        if not 0 <= method_index < len(self._names):
            raise InvalidArgument(f"there is no method {method_index}; the program has {', '.join(self._names)}")
        return self._names[method_index]

    def load_method(self, method_name: str) -> ExecuTorchMethod:
        """A new loaded method, with memory of its own."""
        with failing_to(f"load method {method_name}"):
            return ExecuTorchMethod(self._program.load_method(method_name))


class ExecuTorchModule(_Loaded):
    """A program whose methods are loaded when they are first run, and then kept with their state.

    As in ExecuTorch, what is wrong with a program or its `.ptd` shows at the first use.
    """

    def __init__(
        self,
        program: DataLoader,
        data: DataLoader | None,
        enable_etdump: bool,
        debug_buffer_size: int,
        verification: Verification = Verification.InternalConsistency,
    ) -> None:
        self._source, self._data, self._verification = program, data, verification
        self._has_etdump, self._debug_buffer_size = enable_etdump, debug_buffer_size
        self._methods: dict[str, ExecuTorchMethod] = {}

    @cached_property
    def _program(self) -> Program:  # type: ignore[override]
        return Runtime.get().load_program(
            self._source,
            verification=self._verification,
            data_path=self._data,
            enable_etdump=self._has_etdump,
            debug_buffer_size=self._debug_buffer_size,
        )

    def _method(self, name: str) -> ExecuTorchMethod:
        if name not in self._methods:
            self._methods[name] = ExecuTorchMethod(self._program.load_method(name))
        return self._methods[name]

    def run_method(self, method_name: str, inputs: Sequence[Any] = (), clone_outputs: bool = True) -> list[Any]:
        """Run a method on `inputs`, a flat sequence or a single tensor; its outputs, flat."""
        with failing_to(f"execute method {method_name}"):
            return self._method(method_name).call(inputs, clone_outputs)

    def forward(self, inputs: Sequence[Any] = (), clone_outputs: bool = True) -> list[Any]:
        """`run_method("forward", …)`."""
        return self.run_method("forward", inputs, clone_outputs)

    __call__ = forward

    def plan_execute(self, method_name: str, clone_outputs: bool = True) -> list[Any]:
        """Run a method on the inputs that were set last."""
        with failing_to(f"execute method {method_name}"):
            method = self._method(method_name)
            method.execute()
            return method.get_outputs(clone_outputs)

    def method_names(self) -> list[str]:
        """The names of the methods."""
        return sorted(self._program.method_names)


class BundledModule:
    """A bundled program; each method is loaded when a case of it is first verified, and keeps its state."""

    def __init__(self, buffer: Buffer) -> None:
        self._bundled = load_bundled_program(buffer)
        self._cases = {suite.method_name: suite.test_cases for suite in self._bundled.method_test_suites}
        self._methods: dict[str, Method] = {}

    @property
    def program(self) -> Buffer:
        """The bytes of the program alone."""
        return self._bundled.buffer

    def verify_result_with_bundled_expected_output(
        self, method_name: str, testset_idx: int, rtol: float = 1e-5, atol: float = 1e-8
    ) -> list[Any]:
        """Run a case and give its outputs. Raises `InvalidState` if they are not what is expected."""
        cases = self._cases.get(method_name, ())
        if not 0 <= testset_idx < len(cases):
            raise InvalidArgument(f"method {method_name!r} has {len(cases)} bundled test cases, none {testset_idx}")
        if method_name not in self._methods:
            self._methods[method_name] = Runtime.get().load_program(self.program).load_method(method_name)
        result = verify_case(self._methods[method_name], cases[testset_idx], testset_idx, rtol=rtol, atol=atol)
        if result.fault is not None:
            raise result.fault
        if not result.comparisons:
            raise NotSupported(f"method {method_name!r}, test case {testset_idx}: it has no expected outputs")
        if not result.ok:
            raise InvalidState(f"method {method_name!r}, test case {testset_idx}: {result.reason}")
        return torch_outputs(list(result.outputs), ())


# ---- loading ---------------------------------------------------------------------------------------


def _load_for_executorch(
    program_path: str,
    data_path: str | None = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.InternalConsistency,
) -> ExecuTorchModule:
    """A module of the `.pte` at `program_path`, and the `.ptd` at `data_path` if it has one."""
    program, data = MmapDataLoader(program_path), _loader(data_path)
    return ExecuTorchModule(program, data, enable_etdump, debug_buffer_size, program_verification)


def _load_for_executorch_from_buffer(
    buffer: Buffer,
    data_map_buffer: Buffer | None = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.InternalConsistency,
) -> ExecuTorchModule:
    """A module of the bytes of a `.pte`, and of a `.ptd` if it has one."""
    program, data = BufferDataLoader(buffer), _loader(data_map_buffer)
    return ExecuTorchModule(program, data, enable_etdump, debug_buffer_size, program_verification)


def _load_for_executorch_from_data_loader(
    loader: PyDataLoader, data_path: str | None = None, enable_etdump: bool = False, debug_buffer_size: int = 0
) -> ExecuTorchModule:
    """A module of what `loader` reads, a `delegraph.runtime.DataLoader`."""
    return ExecuTorchModule(loader, _loader(data_path), enable_etdump, debug_buffer_size)


def _load_bundled_program_from_buffer(buffer: Buffer, non_const_pool_size: int = 16 * 1024) -> BundledModule:
    """A bundled program of its bytes. Of a pool size other than ExecuTorch's default it raises `NotSupported`."""
    if non_const_pool_size != 16 * 1024:
        raise NotSupported(
            f"non_const_pool_size={non_const_pool_size}: there is no such pool here, inputs lie in the buffer itself;"
            " leave it out"
        )
    return BundledModule(buffer)


def _load_for_executorch_from_bundled_program(
    module: BundledModule,
    data_map_buffer: Buffer | str | None = None,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    *,
    data_path: str | None = None,
) -> ExecuTorchModule:
    """A module of the program in `module`; of its `.ptd`, if it has one, give bytes or a path."""
    data = _loader(data_map_buffer if data_path is None else data_path)
    return ExecuTorchModule(BufferDataLoader(module.program), data, enable_etdump, debug_buffer_size)


def _loader(data: Buffer | str | os.PathLike[str] | None) -> DataLoader | None:
    if data is None:
        return None
    return MmapDataLoader(data) if isinstance(data, str | os.PathLike) else BufferDataLoader(data)


def _load_program(
    path: str,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.Minimal,
    data_path: str | None = None,
) -> ExecuTorchProgram:
    """The program in the `.pte` at `path`, and the `.ptd` at `data_path` if it has one."""
    return _loaded(MmapDataLoader(path), enable_etdump, debug_buffer_size, program_verification, data_path)


def _load_program_from_buffer(
    buffer: Buffer,
    enable_etdump: bool = False,
    debug_buffer_size: int = 0,
    program_verification: Verification = Verification.Minimal,
    data_path: str | None = None,
) -> ExecuTorchProgram:
    """The program in the bytes of a `.pte`, and the `.ptd` at `data_path` if it has one."""
    return _loaded(BufferDataLoader(buffer), enable_etdump, debug_buffer_size, program_verification, data_path)


def _loaded(
    source: DataLoader,
    enable_etdump: bool,
    debug_buffer_size: int,
    verification: Verification,
    data_path: str | None,
) -> ExecuTorchProgram:
    with failing_to("load program"):
        program = Runtime.get().load_program(
            source,
            verification=verification,
            data_path=data_path,
            enable_etdump=enable_etdump,
            debug_buffer_size=debug_buffer_size,
        )
    return ExecuTorchProgram(program, enable_etdump)


# ---- what is there ---------------------------------------------------------------------------------


def _get_operator_names() -> list[str]:
    """Every operator that an installed kernel library has, and the runtime's own."""
    return sorted(Runtime.get().operator_registry.operator_names)


def _get_registered_backend_names() -> list[str]:
    """The ids of all installed backends."""
    return Runtime.get().backend_registry.registered_backend_names


def _is_available(backend_name: str) -> bool:
    """Whether a backend is installed and finds its device; `Runtime.get().backend_registry` also says why not."""
    return bool(Runtime.get().backend_registry.is_available(backend_name))


def _threadpool_get_thread_count() -> int:
    """The CPUs that this process may use: as many threads as libraries take that nobody told otherwise."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---- what has no equal -----------------------------------------------------------------------------


def _unsafe_reset_threadpool(num_threads: int) -> None:
    """Raises `NotSupported`, which says how to limit threads."""
    raise NotSupported(
        f"_unsafe_reset_threadpool({num_threads}): there is no one pool of threads here. Tell the backend when loading,"
        f" as in delegraph.load(path, backend_options={{'cpu': {{'num_threads': {num_threads}}}}}), and NumPy's"
        f" library with OMP_NUM_THREADS={num_threads} in the environment"
    )


_PROFILING = (
    "ExecuTorch's old profiler, which its wheels leave out, is not here; load with enable_etdump=True and give the"
    " file to Inspector, or load_method(…, event_tracer=delegraph.EventTracer()), or `delegraph run --trace`"
)


def _no_profiler(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any) -> NoReturn:
        """Raises `NotSupported`, which says how to profile."""
        raise NotSupported(f"{name}({', '.join(map(repr, args))}): {_PROFILING}")

    return refuse


_create_profile_block = _no_profiler("_create_profile_block")
_dump_profile_results = _no_profiler("_dump_profile_results")
_reset_profile_results = _no_profiler("_reset_profile_results")
