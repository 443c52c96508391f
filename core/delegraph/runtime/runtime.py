"""The front door, with ExecuTorch's names: `Runtime.get().load_program(…).load_method("forward").execute(inputs)`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from delegraph.errors import InvalidArgument
from delegraph.interfaces.backend import BackendInterface
from delegraph.interfaces.platform import DEFAULT_PLATFORM, Platform
from delegraph.program import schema
from delegraph.program.limits import Limits
from delegraph.program.prim_op_names import BUILT_IN
from delegraph.runtime.data_loader import Source
from delegraph.runtime.execution.tracing import DebugLevel, EventTracer
from delegraph.runtime.external_data import DataSources
from delegraph.runtime.integrity import IntegrityMode
from delegraph.runtime.program import Program, Verification
from delegraph.runtime.resolution.backends import BackendRegistry
from delegraph.runtime.resolution.environment import Environment
from delegraph.runtime.resolution.kernels import KernelOrder, KernelRegistry

if TYPE_CHECKING:
    from delegraph.interfaces.compilation_cache import CacheChoice
    from delegraph.plugins.registry import PluginRegistry
    from delegraph.program.signatures import Key


class OperatorRegistry:
    """The operators that programs may call."""

    def __init__(self, kernels: KernelRegistry) -> None:
        self._kernels = kernels

    @property
    def operator_names(self) -> set[str]:
        """Every operator that some kernel library has, and the runtime's own. Loads all libraries."""
        return {*self._kernels.operator_names(), *BUILT_IN}


class Runtime:
    """The runtime that loads programs. `Runtime.get()` uses everything that is installed.

    A Runtime of one's own has explicit choices instead; `Environment` describes them. `prefer` says which distribution
    is meant where two offer one name: `{"backends:Npu": "acme-npu"}`; `limits`, `check` and `cache` (see `load`) hold
    for every method that it loads.
    """

    def __init__(
        self,
        *,
        kernels: KernelOrder | None = None,
        backends: Mapping[str, BackendInterface] | None = None,
        plugins: PluginRegistry | None = None,
        platform: Platform | str = DEFAULT_PLATFORM,
        prefer: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        check: bool | None = None,
        cache: CacheChoice = None,
    ) -> None:
        self.environment = Environment.of(kernels, backends, plugins, prefer, platform, limits, check, cache)

    @staticmethod
    @cache
    def get() -> Runtime:
        """The process's Runtime; always the same one."""
        return Runtime()

    @property
    def backend_registry(self) -> BackendRegistry:
        """The backends that programs may use."""
        return self.environment.backend_registry()

    @property
    def operator_registry(self) -> OperatorRegistry:
        """The operators that programs may call."""
        return OperatorRegistry(self.environment.kernel_registry())

    def load_program(
        self,
        data: Source | schema.Program,
        *,
        verification: Verification = Verification.InternalConsistency,
        data_path: DataSources | None = None,
        enable_etdump: bool = False,
        debug_buffer_size: int = 0,
        integrity: IntegrityMode = "lazy",
        trusted_keys: Iterable[Key] | None = None,
    ) -> Program:
        """Load a program from bytes, a path (mapped), a binary file object or a `DataLoader`.

        `data_path` is the `.ptd` with the program's external weights, if it has any, or several: where two have the
        same key, the later one counts. With `enable_etdump` its methods are traced, for
        `Program.write_etdump_result_to_file`: times, and with a `debug_buffer_size` in bytes, what the instructions
        write as well. `integrity` and `trusted_keys` are those of `Program.load`. Raises as that does, and
        `InvalidArgument` for a debug buffer without an ETDump.
        """
        tracer = _etdump_tracer(enable_etdump, debug_buffer_size, self.environment.platform)
        return Program.load(
            data,
            verification=verification,
            data_path=data_path,
            environment=self.environment,
            event_tracer=tracer,
            integrity=integrity,
            trusted_keys=trusted_keys,
        )


def _etdump_tracer(enable: bool, debug_buffer_size: int, platform: Platform) -> EventTracer | None:
    if debug_buffer_size < 0 or (debug_buffer_size and not enable):
        raise InvalidArgument(
            f"debug_buffer_size={debug_buffer_size} with enable_etdump={enable}: a debug buffer is part of an ETDump;"
            " give enable_etdump=True and a size in bytes"
        )
    level = DebugLevel.INTERMEDIATE_OUTPUTS if debug_buffer_size else DebugLevel.NO_LOGGING
    return EventTracer(level, platform=platform, debug_buffer_size=debug_buffer_size or None) if enable else None
