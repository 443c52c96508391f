"""A finished program -> its bytes, its files, and what is known about it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO

from torch.export import ExportedProgram

from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.emission.instructions import DelegateInfo
from delegraph.aot.emission.memory import MemoryReport
from delegraph.errors import LoweringError
from delegraph.program.flat_tensor import FlatTensor, write_flat_tensor
from delegraph.program.schema import Program
from delegraph.program.serialize import serialize_program, write_program

__all__ = ["ExecutorchProgramManager"]


@dataclass(frozen=True)
class ExecutorchProgramManager:
    """A finished program: its records, its bytes, and what is known about it.

    `debug_handle_map` and `delegate_map` map method and instruction to debug handles and to delegates; `memory` has
    each method's planned bytes and their lower bound; `tensor_data` the `.ptd` files by name.
    """

    executorch_program: Program
    config: ExecutorchBackendConfig
    exported_programs: Mapping[str, ExportedProgram]
    debug_handle_map: Mapping[str, Mapping[int, Any]]
    delegate_map: Mapping[str, Mapping[int, DelegateInfo]]
    memory: Mapping[str, MemoryReport]
    tensor_data: Mapping[str, FlatTensor]

    def __repr__(self) -> str:
        files = "".join(f", {name}.ptd: {data}" for name, data in self.tensor_data.items())
        return f"ExecutorchProgramManager({self.executorch_program}{files})"

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of all methods, sorted."""
        return tuple(plan.name for plan in self.executorch_program.execution_plan)

    def exported_program(self, method_name: str = "forward") -> ExportedProgram:
        """The edge program that a method was emitted from, passes applied. Raises `LoweringError` if there is none."""
        if method_name not in self.exported_programs:
            raise LoweringError(f"no edge program {method_name!r}; there are {', '.join(self.exported_programs)}")
        return self.exported_programs[method_name]

    @cached_property
    def buffer(self) -> bytes:
        """The bytes of the `.pte`."""
        return serialize_program(self.executorch_program, self.config.serialization)

    def write_to_file(self, open_file: BinaryIO) -> None:
        """Write the `.pte` to an open binary file."""
        open_file.write(self.buffer)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the `.pte` to `path`, whole or not at all; its `.ptd` files, if it has any, go beside it first."""
        if self.tensor_data:
            self.write_tensor_data_to_file(os.path.dirname(os.path.abspath(path)))
        write_program(self.executorch_program, path, self.config.serialization)

    def write_tensor_data_to_file(self, outdir: str | os.PathLike[str]) -> None:
        """Write each `.ptd` of the program into the directory `outdir`, as `<name>.ptd`."""
        os.makedirs(outdir, exist_ok=True)
        for name, flat_tensor in self.tensor_data.items():
            path = os.path.join(outdir, name if name.endswith(".ptd") else f"{name}.ptd")
            write_flat_tensor(flat_tensor, path, self.config.segment_alignment)
