"""ExecuTorch's `executorch.runtime`: the same names over `delegraph.runtime`, whose own new code imports directly.

What differs there: a method is loaded anew for each `load_method`, and outputs are arrays unless inputs are tensors.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import Any, BinaryIO

import delegraph.runtime
from delegraph.errors import NotFound
from delegraph.runtime import BackendRegistry, OperatorRegistry, Verification
from delegraph_executorch.extension.pybindings._portable_lib import ExecuTorchMethod, ExecuTorchProgram, MethodMeta

__all__ = [
    "BackendRegistry",
    "ExecuTorchMethod",
    "ExecuTorchProgram",
    "Method",
    "MethodMeta",
    "OperatorRegistry",
    "Program",
    "Runtime",
    "Verification",
]


class NoSuchMethod(NotFound, KeyError):
    """The program has no method of that name."""

    __str__ = Exception.__str__  # a KeyError shows its argument's repr


class Method:
    """A loaded method."""

    def __init__(self, method: ExecuTorchMethod) -> None:
        self._method = method

    def execute(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run on `inputs`, a flat sequence or a single tensor; its outputs, flat, as torch tensors and scalars.

        They are NumPy arrays where an input is one, or nobody imported torch into this process.
        """
        return self._method(inputs)

    @property
    def metadata(self) -> MethodMeta:
        """What the method takes and gives."""
        return self._method.method_meta()


class Program:
    """A loaded program. Each method is loaded once, and keeps its state."""

    def __init__(self, program: ExecuTorchProgram, data: bytes | None) -> None:
        self._program = program
        self._data = data
        names = [program.get_method_name(index) for index in range(program.num_methods())]
        self._methods: dict[str, Method | None] = dict.fromkeys(names)

    @property
    def method_names(self) -> set[str]:
        """The names of the methods."""
        return set(self._methods)

    def load_method(self, name: str) -> Method | None:
        """The method, loaded when it is first asked for. Raises `NoSuchMethod`, a `KeyError`."""
        if name not in self._methods:
            raise NoSuchMethod(f"no method {name!r}; the program has {', '.join(sorted(self._methods))}")
        if self._methods[name] is None:
            self._methods[name] = Method(self._program.load_method(name))
        return self._methods[name]

    def metadata(self, method_name: str) -> MethodMeta:
        """What a method takes and gives, without loading it."""
        return self._program.method_meta(method_name)

    def write_etdump_result_to_file(self, etdump_path: str, debug_buffer_path: str) -> None:
        """Write what was traced since the last time, and the values that were kept."""
        self._program.write_etdump_result_to_file(etdump_path, debug_buffer_path)


class Runtime:
    """What programs are loaded into; `Runtime.get()` gives it."""

    def __init__(self, *, runtime: delegraph.runtime.Runtime) -> None:
        self._runtime = runtime
        self.backend_registry: BackendRegistry = runtime.backend_registry
        self.operator_registry: OperatorRegistry = runtime.operator_registry

    @staticmethod
    @cache
    def get() -> Runtime:
        """The process's Runtime; always the same one."""
        return Runtime(runtime=delegraph.runtime.Runtime.get())

    def load_program(
        self,
        data: bytes | bytearray | BinaryIO | os.PathLike[str] | str,
        *,
        verification: Verification = Verification.InternalConsistency,
        enable_etdump: bool = False,
        debug_buffer_size: int = 0,
        data_path: os.PathLike[str] | str | None = None,
    ) -> Program:
        """Load a `.pte` from bytes, a binary file object, or a path, which is mapped; `data_path` is the `.ptd` with
        weights that are outside it.

        With `enable_etdump` its methods are traced; a `debug_buffer_size` in bytes keeps what instructions write.
        """
        program = self._runtime.load_program(
            data,
            verification=verification,
            data_path=data_path,
            enable_etdump=enable_etdump,
            debug_buffer_size=debug_buffer_size,
        )
        return Program(ExecuTorchProgram(program, enable_etdump), None)
