"""The front door, with ExecuTorch's names: `Runtime.get().load_program(…).load_method("forward").execute(inputs)`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from delegraph.interfaces.backend import BackendInterface
from delegraph.interfaces.platform import DEFAULT_PLATFORM, Platform
from delegraph.program import schema
from delegraph.program.prim_op_names import PRIM_OPS
from delegraph.runtime.backends import BackendRegistry
from delegraph.runtime.environment import Environment, preferring
from delegraph.runtime.kernels import KernelOrder, KernelRegistry
from delegraph.runtime.program import Program, Source, Verification

if TYPE_CHECKING:
    from delegraph.plugins.registry import PluginRegistry


class OperatorRegistry:
    """The operators that programs may call."""

    def __init__(self, kernels: KernelRegistry) -> None:
        self._kernels = kernels

    @property
    def operator_names(self) -> set[str]:
        """Every operator that some kernel library has, and the runtime's own. Loads all libraries."""
        return {*self._kernels.operator_names(), *PRIM_OPS}


class Runtime:
    """What programs are loaded into. `Runtime.get()` uses everything that is installed.

    A Runtime of one's own has explicit choices instead; `Environment` describes them. `prefer` says which distribution
    is meant where two offer one name: `{"backends:Npu": "acme-npu"}`.
    """

    def __init__(
        self,
        *,
        kernels: KernelOrder | None = None,
        backends: Mapping[str, BackendInterface] | None = None,
        plugins: PluginRegistry | None = None,
        platform: Platform = DEFAULT_PLATFORM,
        prefer: Mapping[str, str] | None = None,
    ) -> None:
        self.environment = Environment(kernels, backends, preferring(plugins, prefer), platform)

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
        data_path: Source | None = None,
    ) -> Program:
        """Load a program from bytes, a path (mapped), a binary file object or a `DataLoader`.

        `data_path` is the `.ptd` with the program's external constants, if it has any. Raises `AccessFailed`,
        `InvalidProgram` or `InvalidExternalData`.
        """
        return Program.load(data, verification=verification, data_path=data_path, environment=self.environment)
