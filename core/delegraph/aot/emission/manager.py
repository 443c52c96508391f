"""A finished program -> its bytes, its files, and what is known about it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pprint import pformat
from types import MappingProxyType
from typing import BinaryIO, TextIO

from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.delegation.report import FallbackEntry
from delegraph.aot.emission.instructions import DelegateInfo
from delegraph.aot.emission.memory import MemoryReport
from delegraph.aot.etrecord.record import ETRecord
from delegraph.errors import ETRecordError, LoweringError
from delegraph.logs import Logger
from delegraph.program.alternatives import methods_of
from delegraph.program.files.atomic_file import write_together
from delegraph.program.files.seal import sealed
from delegraph.program.files.serialize import program_pieces
from delegraph.program.flat_tensor import FlatTensor, flat_tensor_pieces
from delegraph.program.raw_tables import read_tables
from delegraph.program.schema import Buffer, Program
from delegraph.program.text.html import program_html
from delegraph.program.text.to_text import to_text

__all__ = ["ExecutorchProgramManager"]


_log = Logger(__name__)


@dataclass(frozen=True)
class ExecutorchProgramManager:
    """A finished program: its records, its bytes, and what is known about it.

    `debug_handle_map`, `delegate_map` and `instruction_id_to_num_outs_map` map method and instruction to debug handles,
    to delegates and to the number of results; `memory` has each method's planned bytes and their lower bound;
    `tensor_data` the `.ptd` files by name. `node_values` has, by method, for each tensor (a node of `exported_programs`
    and which of its results) the index of the value whose memory it is in. `fallbacks` are those that were asked for.
    """

    executorch_program: Program
    config: ExecutorchBackendConfig
    exported_programs: Mapping[str, ExportedProgram]
    debug_handle_map: Mapping[str, Mapping[int, object]]
    delegate_map: Mapping[str, Mapping[int, DelegateInfo]]
    instruction_id_to_num_outs_map: Mapping[str, Mapping[int, int]]
    memory: Mapping[str, MemoryReport]
    tensor_data: Mapping[str, FlatTensor]
    node_values: Mapping[str, Mapping[tuple[Node, int], int]]
    fallbacks: tuple[FallbackEntry, ...] = ()
    _etrecord: ETRecord | None = None

    def __repr__(self) -> str:
        files = "".join(f", {name}.ptd: {data}" for name, data in self.tensor_data.items())
        return f"ExecutorchProgramManager({self.executorch_program}{files})"

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        return program_html(self.executorch_program)

    def __deepcopy__(self, memo: dict[int, object]) -> ExecutorchProgramManager:
        """Edge programs are what can be edited; all else is finished and shared."""
        programs = {method: deepcopy(program, memo) for method, program in self.exported_programs.items()}
        return replace(self, exported_programs=MappingProxyType(programs))

    @property
    def methods(self) -> set[str]:
        """The names of the methods that have a graph."""
        return set(self.exported_programs)

    @property
    def config_methods(self) -> set[str]:
        """The names of the methods that give a constant."""
        return {plan.name for plan in methods_of(self.executorch_program)} - self.methods

    def exported_program(self, method_name: str = "forward") -> ExportedProgram:
        """The edge program that a method was emitted from, passes applied. Raises `LoweringError` if there is none."""
        if method_name not in self.exported_programs:
            raise LoweringError(f"no edge program {method_name!r}; there are {', '.join(self.exported_programs)}")
        return self.exported_programs[method_name]

    def get_etrecord(self) -> ETRecord:
        """The ETRecord of the lowering. Raises `ETRecordError` unless `generate_etrecord` asked for it."""
        if self._etrecord is None:
            raise ETRecordError("ETRecord was not generated; lower with generate_etrecord=True")
        return self._etrecord

    def with_etrecord(self, edge: ETRecord | None) -> ExecutorchProgramManager:
        """The same program with the ETRecord of what it was made of, and of itself."""
        if edge is None:
            return self
        record = edge.copy()
        record.add_executorch_program(self)
        return replace(self, _etrecord=record)

    @cached_property
    def buffer(self) -> bytes:
        """The bytes of the `.pte`, sealed."""
        return b"".join(sealed(program_pieces(self.executorch_program, self.config.serialization)))

    def dump_executorch_program(self, verbose: bool = False, out: TextIO | None = None) -> None:
        """Print the program to `out` (None: standard output); every field of every table of its file if `verbose`."""
        text = pformat(read_tables(self.buffer)) if verbose else to_text(self.executorch_program)
        print(text, file=out)

    def write_to_file(self, open_file: BinaryIO) -> None:
        """Write the `.pte` to an open binary file."""
        open_file.write(self.buffer)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the `.pte` to `path` and its `.ptd` files, if it has any, beside it: all of them, or none.

        The `.ptd` files get their names first. Who reads in that moment gets the old model, the new one or an error
        (`runtime/external_data.py`), never a mix. Raises `OSError`.
        """
        program = (path, sealed(program_pieces(self.executorch_program, self.config.serialization)))
        files = [*self._data_files(os.path.dirname(os.path.abspath(path))), program]
        write_together(files)
        _log.info("wrote %s", ", ".join(os.fspath(name) for name, _ in files))

    def write_tensor_data_to_file(self, outdir: str | os.PathLike[str]) -> None:
        """Write each `.ptd` of the program into the directory `outdir`, as `<name>.ptd`: all of them, or none."""
        os.makedirs(outdir, exist_ok=True)
        write_together(self._data_files(outdir))

    def _data_files(self, folder: str | os.PathLike[str]) -> list[tuple[str, Iterable[Buffer]]]:
        return [
            (
                os.path.join(folder, name.removesuffix(".ptd") + ".ptd"),
                sealed(flat_tensor_pieces(data, self.config.segment_alignment)),
            )
            for name, data in self.tensor_data.items()
        ]
