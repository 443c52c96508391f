"""`delegraph_executorch.backends.X` -> ExecuTorch's own `executorch.backends.X`, the same module, from its wheel.

For packages that are ExecuTorch's alone: its backends, and its example models. Where the wheel is not installed, an
import raises `PluginUnavailable`, which says what to install.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from delegraph_executorch.bridge.imports import executorch

__all__ = ["let_modules_stand_for"]


class _Theirs(Loader):
    """Has a module of ExecuTorch's stand under a second name, and leaves it as it is."""

    own_spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module: ModuleType = executorch(spec.name.removeprefix("delegraph_executorch."))
        self.own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.own_spec  # which the import system has just replaced by that of the second name


class _Finder(MetaPathFinder):
    """Finds the modules below one package."""

    def __init__(self, package: str) -> None:
        self.prefix = f"{package}."

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, _Theirs()) if fullname.startswith(self.prefix) else None


def let_modules_stand_for(package: str) -> None:
    """Find every module below `package`, one of `delegraph_executorch`, at the same place in `executorch`."""
    sys.meta_path.insert(0, _Finder(package))
