"""Managers -> an ETRecord: what an Inspector needs to know of a lowering; and the file of it, a zip.

    ETRECORD_V0                            empty: what kind of file it is
    exported_program                       what torch.export gave (`forward`), each program in four files:
                                           <name>, …_state_dict, …_constants, …_example_inputs
    edge_dialect_exported_program/<method> the edge programs before delegation
    <name>/<method>                        further programs, such as edge_after_transform
    debug_handle_map                       {method: {instruction: debug handles}}
    delegate_map                           {method: {instruction: {"name": backend, "delegate_map": {its id: handles}}}}
    instruction_id_to_num_outs_map         {method: {instruction: number of a delegate's results}}
    export_graph_id                        id of the graph that `from_node` of the edge programs' nodes refers to
    reference_outputs, representative_inputs

The file is that of ExecuTorch's `devtools/etrecord/_etrecord.py`, and either reads the other's.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import IO, Any, Final, Protocol
from zipfile import ZipFile

import torch
from torch.export import ExportedProgram

from delegraph.aot.etrecord.archive import read_zip_members
from delegraph.aot.etrecord.program_json import (
    SerializedExportedProgram,
    deserialize_exported_program,
    serialize_exported_program,
)
from delegraph.aot.etrecord.tensors import read_tensors
from delegraph.aot.etrecord.typed_json import JsonReader, read_json
from delegraph.aot.graph.bodies import all_nodes
from delegraph.errors import ETRecordError, shown

__all__ = ["ETRecord", "ETRecordReservedFileNames", "generate_etrecord", "parse_etrecord"]


class ETRecordReservedFileNames(StrEnum):
    """The names in the file that no further program may have."""

    ETRECORD_IDENTIFIER = "ETRECORD_V0"
    EXPORTED_PROGRAM = "exported_program"
    EXPORT_GRAPH_ID = "export_graph_id"
    EDGE_DIALECT_EXPORTED_PROGRAM = "edge_dialect_exported_program"
    ET_DIALECT_GRAPH_MODULE = "et_dialect_graph_module"
    DEBUG_HANDLE_MAP_NAME = "debug_handle_map"
    DELEGATE_MAP_NAME = "delegate_map"
    INSTRUCTION_ID_TO_NUM_OUTS_MAP_NAME = "instruction_id_to_num_outs_map"
    REFERENCE_OUTPUTS = "reference_outputs"
    REPRESENTATIVE_INPUTS = "representative_inputs"


Files = ETRecordReservedFileNames


class _EdgePrograms(Protocol):
    """An `EdgeProgramManager`."""

    @property
    def methods(self) -> set[str]: ...
    def exported_program(self, method_name: str = "forward") -> ExportedProgram: ...


class ETRecord:
    """A record of a lowering for Inspectors: programs, and which instruction came from which of their nodes.

    `manager.get_etrecord()` gives it where `generate_etrecord=True` asked for it. `exported_program` is the method
    `forward`; `edge_dialect_program` one program, or several by method; `graph_map` further programs by `name/method`.
    """

    def __init__(
        self,
        exported_program: ExportedProgram | None = None,
        export_graph_id: int | None = None,
        edge_dialect_program: ExportedProgram | dict[str, ExportedProgram] | None = None,
        graph_map: dict[str, ExportedProgram] | None = None,
        _debug_handle_map: Mapping[str, Any] | None = None,
        _delegate_map: Mapping[str, Any] | None = None,
        _instruction_id_to_num_outs_map: Mapping[str, Any] | None = None,
        _reference_outputs: dict[str, list[Any]] | None = None,
        _representative_inputs: object = None,
    ) -> None:
        self.exported_program = exported_program
        self.export_graph_id = export_graph_id
        self.edge_dialect_program = edge_dialect_program
        self.graph_map = graph_map
        self._debug_handle_map = _debug_handle_map
        self._delegate_map = _delegate_map
        self._instruction_id_to_num_outs_map = _instruction_id_to_num_outs_map
        self._reference_outputs = _reference_outputs
        self._representative_inputs = _representative_inputs

    # ---- what is put in ----

    def add_exported_program(self, exported_program: ExportedProgram | Mapping[str, ExportedProgram] | None) -> None:
        """Add what torch.export gave; of several methods, `forward`. Raises `ETRecordError` if there is one already."""
        if self.exported_program is not None or self.export_graph_id is not None:
            raise ETRecordError(f"Exported program already exists in the ETRecord; {_ANOTHER}")
        if isinstance(exported_program, Mapping):
            exported_program = exported_program.get("forward")
        if exported_program is not None:
            self.exported_program = exported_program
            self.export_graph_id = id(exported_program.graph)

    def add_edge_dialect_program(self, edge_dialect_program: _EdgePrograms | ExportedProgram) -> None:
        """Add an `EdgeProgramManager`'s programs. Raises `ETRecordError` if there are some already."""
        if self.edge_dialect_program is not None:
            raise ETRecordError(f"Edge dialect program already exists in the ETRecord; {_ANOTHER}")
        if isinstance(edge_dialect_program, ExportedProgram):
            self.edge_dialect_program = edge_dialect_program
            return
        programs = _programs_by_method(edge_dialect_program)
        self.edge_dialect_program = next(iter(programs.values())) if len(programs) == 1 else programs

    def add_executorch_program(self, executorch_program: Any) -> None:
        """Add the maps of an `ExecutorchProgramManager`; of a `BundledProgram` its cases too.

        Raises `ETRecordError` if there are such maps already.
        """
        parts = (*map(self.__getattribute__, _JSON_OF_PROGRAM), self._reference_outputs, self._representative_inputs)
        if any(part is not None for part in parts):
            raise ETRecordError(f"Executorch program data already exists in the ETRecord; {_ANOTHER}")
        if hasattr(executorch_program, "method_test_suites"):
            self.update_reference_outputs(executorch_program)
            self.update_representative_inputs(executorch_program)
            executorch_program = executorch_program.executorch_program
        self._debug_handle_map = executorch_program.debug_handle_map
        self._delegate_map = {
            method: {step: {key: info[key] for key in ("name", "delegate_map")} for step, info in steps.items()}
            for method, steps in executorch_program.delegate_map.items()
        }
        self._instruction_id_to_num_outs_map = executorch_program.instruction_id_to_num_outs_map

    def add_extra_export_modules(self, extra_recorded_export_modules: Mapping[str, object]) -> None:
        """Add further programs: exported ones or managers, by a name of the caller's. Raises `ETRecordError`."""
        if self.graph_map is None:
            self.graph_map = {}
        for name, module in extra_recorded_export_modules.items():
            if any(reserved in name for reserved in Files):
                raise ETRecordError(f"{name!r} is a reserved name of ETRecords; give the program another")
            self.graph_map.update(
                {f"{name}/{method}": program for method, program in _programs_by_method(module).items()}
            )

    def update_representative_inputs(self, representative_inputs: object) -> None:
        """Set the inputs on which an Inspector runs the model: a list, or a `BundledProgram`'s first case."""
        if hasattr(representative_inputs, "method_test_suites"):
            representative_inputs = _get_representative_inputs(representative_inputs)
        self._representative_inputs = representative_inputs

    def update_reference_outputs(self, reference_outputs: Any) -> None:
        """Set the outputs that are right: for each input, by method; a list is `forward`'s; or a `BundledProgram`'s."""
        if hasattr(reference_outputs, "method_test_suites"):
            reference_outputs = _get_reference_outputs(reference_outputs)
        self._reference_outputs = (
            {"forward": reference_outputs} if isinstance(reference_outputs, list) else reference_outputs
        )

    def copy(self) -> ETRecord:
        """The programs, in a record of their own without what belongs to one finished program."""
        return ETRecord(self.exported_program, self.export_graph_id, self.edge_dialect_program, self.graph_map)

    # ---- the file ----

    def save(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write the file. Raises `ETRecordError` without an edge program and the maps, which every Inspector needs."""
        if not (self.edge_dialect_program and self._debug_handle_map):
            raise ETRecordError(
                "ETRecord must contain edge dialect program and executorch program to be saved: call"
                " add_edge_dialect_program(manager) and add_executorch_program(manager), or lower with"
                " generate_etrecord=True and take get_etrecord() of what to_executorch gives"
            )
        programs: dict[str, ExportedProgram] = dict(self.graph_map or {})
        edge = self.edge_dialect_program
        by_method = {"forward": edge} if isinstance(edge, ExportedProgram) else edge
        programs.update(
            {f"{Files.EDGE_DIALECT_EXPORTED_PROGRAM}/{name}": exported for name, exported in by_method.items()}
        )
        if self.exported_program is not None:
            programs[Files.EXPORTED_PROGRAM] = self.exported_program
        with ZipFile(path, "w") as file:
            file.writestr(Files.ETRECORD_IDENTIFIER, "")
            for name, program in programs.items():
                _check_undelegated(program)
                for suffix, data in zip(_SUFFIXES, serialize_exported_program(program), strict=True):
                    file.writestr(name + suffix, data)
            for attribute, name in _JSON.items():
                if getattr(self, attribute) is not None:
                    file.writestr(name, json.dumps(getattr(self, attribute)))
            for attribute, name in _TENSORS.items():
                if getattr(self, attribute) is not None:
                    buffer = io.BytesIO()
                    torch.save(getattr(self, attribute), buffer)
                    file.writestr(name, buffer.getvalue())


_ANOTHER = "make an ETRecord of its own for another lowering"
_SUFFIXES = ("", "_state_dict", "_constants", "_example_inputs")
_JSON_OF_PROGRAM = {
    "_debug_handle_map": Files.DEBUG_HANDLE_MAP_NAME,
    "_delegate_map": Files.DELEGATE_MAP_NAME,
    "_instruction_id_to_num_outs_map": Files.INSTRUCTION_ID_TO_NUM_OUTS_MAP_NAME,
}
_JSON = {**_JSON_OF_PROGRAM, "export_graph_id": Files.EXPORT_GRAPH_ID}
_TENSORS = {
    "_reference_outputs": Files.REFERENCE_OUTPUTS,
    "_representative_inputs": Files.REPRESENTATIVE_INPUTS,
}


def generate_etrecord(
    et_record: str | os.PathLike[str] | IO[bytes],
    edge_dialect_program: _EdgePrograms,
    executorch_program: object,
    exported_program: ExportedProgram | Mapping[str, ExportedProgram] | None = None,
    extra_recorded_export_modules: Mapping[str, object] | None = None,
) -> None:
    """Write the ETRecord of a lowering: what `to_edge` gave (a deepcopy, before delegation), what `to_executorch` gave.

    Raises `ETRecordError`.
    """
    record = ETRecord()
    if isinstance(exported_program, Mapping) and not {*exported_program} & {"forward"}:
        record.add_extra_export_modules(exported_program)
    else:
        record.add_exported_program(exported_program)
    record.add_edge_dialect_program(edge_dialect_program)
    record.add_executorch_program(executorch_program)
    record.add_extra_export_modules(extra_recorded_export_modules or {})
    record.save(et_record)


def parse_etrecord(etrecord_path: str | os.PathLike[str] | IO[bytes]) -> ETRecord:
    """Read an ETRecord, written here or by ExecuTorch. Raises `ETRecordError`.

    Nothing in the file is unpickled, evaluated or imported, and none of its operators runs.
    """
    files = read_zip_members(etrecord_path, f"{etrecord_path} is not an ETRecord")
    if Files.ETRECORD_IDENTIFIER not in files:
        raise ETRecordError(f"{etrecord_path} is not an ETRecord: it has no {Files.ETRECORD_IDENTIFIER.value}")
    names = [name for name in files if f"{name}_state_dict" in files]
    _check_members(files, names)
    programs = {name: _program(files, name) for name in names}
    edge_prefix = f"{Files.EDGE_DIALECT_EXPORTED_PROGRAM}/"
    edge = {name.removeprefix(edge_prefix): programs.pop(name) for name in names if name.startswith(edge_prefix)}
    if Files.EDGE_DIALECT_EXPORTED_PROGRAM in programs:  # how one program was written before there were several
        edge["forward"] = programs.pop(Files.EDGE_DIALECT_EXPORTED_PROGRAM)
    record = ETRecord(programs.pop(Files.EXPORTED_PROGRAM, None), 0, next(iter(edge.values()), None), programs)
    if len(edge) > 1:
        record.edge_dialect_program = edge
    for attribute, name in _JSON.items():
        if name in files:
            setattr(record, attribute, _map(name, files[name]))
    for attribute, name in _TENSORS.items():
        if name in files:
            setattr(record, attribute, read_tensors(files[name], name))
    return record


def _check_members(files: Mapping[str, bytes], programs: Sequence[str]) -> None:
    """Raise for a member that no ETRecord has, or a program without one of its files."""
    expected = {*Files, *(name + suffix for name in programs for suffix in _SUFFIXES)}
    for name in files.keys() - expected:
        raise ETRecordError(f"{name!r} is no member of an ETRecord; have whoever made the file write it again")
    for name in programs:
        if not all(name + suffix in files for suffix in _SUFFIXES):
            raise ETRecordError(f"the program {name!r} has not its four members; have it written again")


_Handles = dict[str, int | list[int] | None]
_MAPS: Final[dict[str, object]] = {
    Files.DEBUG_HANDLE_MAP_NAME: dict[str, _Handles],
    Files.DELEGATE_MAP_NAME: dict[str, dict[str, dict[str, str | _Handles]]],
    Files.INSTRUCTION_ID_TO_NUM_OUTS_MAP_NAME: dict[str, dict[str, int]],
    Files.EXPORT_GRAPH_ID: int,
}
"""The JSON of each map: by method, then by instruction."""


def _map(name: str, data: bytes) -> Any:
    return JsonReader(name, {}, {}).read(_MAPS[name], read_json(data, name), text=shown)


def _check_undelegated(program: ExportedProgram) -> None:
    if any(getattr(node.target, "__name__", "").endswith("call_delegate") for node in all_nodes(program.graph_module)):
        raise ETRecordError(
            "an ETRecord holds programs as they were before delegation, this one calls delegates; lower with"
            " generate_etrecord=True, or hand in a deepcopy of the manager that to_edge gave"
        )


def _program(files: Mapping[str, bytes], name: str) -> ExportedProgram:
    return deserialize_exported_program(
        SerializedExportedProgram(*(files[name + suffix] for suffix in _SUFFIXES)), name
    )


def _programs_by_method(module: Any) -> dict[str, ExportedProgram]:
    if isinstance(module, ExportedProgram):
        return {"forward": module}
    if isinstance(getattr(module, "exported_program", None), ExportedProgram):  # ExecuTorch's ExirExportedProgram
        return {"forward": module.exported_program}
    if not hasattr(module, "to_executorch"):
        raise ETRecordError(f"an ETRecord takes exported programs and EdgeProgramManagers, not {type(module).__name__}")
    return {method: module.exported_program(method) for method in sorted(module.methods)}


def _get_reference_outputs(bundled_program: Any) -> dict[str, list[Any]]:
    """The expected outputs of each case, by method. Raises `ValueError` for a case without."""
    for suite in bundled_program.method_test_suites:
        if not all(case.expected_outputs for case in suite.test_cases):
            raise ValueError(f"method {suite.method_name!r}: a test case without expected outputs")
    return {
        suite.method_name: [case.expected_outputs for case in suite.test_cases]
        for suite in bundled_program.method_test_suites
    }


def _get_representative_inputs(bundled_program: Any) -> object:
    """The inputs of the first case of `forward`; None without such a method. Raises `ValueError` without a case."""
    for suite in bundled_program.method_test_suites:
        if suite.method_name == "forward":
            if not suite.test_cases:
                raise ValueError("method 'forward' has no test cases to take inputs from")
            return suite.test_cases[0].inputs
    return None
