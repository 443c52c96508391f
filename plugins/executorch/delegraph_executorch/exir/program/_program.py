"""The managers under ExecuTorch's names (`exir/program/_program.py`): Delegraph's, with ExecuTorch's records around.

to_edge -> EdgeProgramManager.to_executorch -> ExecutorchProgramManager
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from copy import deepcopy
from functools import cached_property, partial
from importlib import import_module
from typing import Any, BinaryIO, Self, TextIO

from torch.export import ExportedProgram

from delegraph import aot
from delegraph.aot import EdgeCompileConfig, ResolvedSignature, graph_modules
from delegraph.errors import LoweringError
from delegraph.program import sealed, serialize_flat_tensor
from delegraph_executorch.bridge.passes import adapted_passes
from delegraph_executorch.bridge.settings import own_backend_config, own_edge_config
from delegraph_executorch.exir._execution import execution_of, source_of
from delegraph_executorch.exir._serialize.data import Cord, NamedDataStore
from delegraph_executorch.exir.backend_config import ExecutorchBackendConfig
from delegraph_executorch.exir.emission import EmitterOutput, output_of
from delegraph_executorch.exir.error import executorchs_errors
from delegraph_executorch.exir.lowered_backend_module import get_lowered_backend_modules
from delegraph_executorch.exir.program._transform import (
    _copy_module,
    _get_updated_graph_signature,
    _transform,
    _update_exported_program_graph_module,
    lift_constant_tensor_pass,
    transform_exported_program,
    with_values,
)
from delegraph_executorch.exir.schema import Program

__all__ = [
    "EdgeProgramManager",
    "ExecutorchProgram",
    "ExecutorchProgramManager",
    "ExirExportedProgram",
    "_copy_module",
    "_get_updated_graph_signature",
    "_transform",
    "_update_exported_program_graph_module",
    "edge_to_executorch_passes",
    "lift_constant_tensor_pass",
    "to_edge",
    "to_edge_transform_and_lower",
    "transform_exported_program",
]

Programs = ExportedProgram | Mapping[str, ExportedProgram]


class EdgeProgramManager(aot.EdgeProgramManager):
    """Edge programs by method; each step gives a new manager."""

    def __init__(
        self,
        edge_programs: Programs,
        constant_methods: Mapping[str, Any] | None = None,
        compile_config: EdgeCompileConfig | None = None,
        core_aten_ops_exception_list: Sequence[Any] | None = None,
        preserve_ops: Sequence[Any] | None = None,
    ) -> None:
        config = own_edge_config(compile_config) or EdgeCompileConfig()
        if core_aten_ops_exception_list or preserve_ops:
            config = EdgeCompileConfig(
                preserve_ops=[*config.preserve_ops, *(preserve_ops or ())],
                _core_aten_ops_exception_list=[
                    *(config._core_aten_ops_exception_list or ()),
                    *(core_aten_ops_exception_list or ()),
                ],
                _check_ir_validity=config._check_ir_validity,
                _skip_dim_order=config._skip_dim_order,
            )
        super().__init__(edge_programs, constant_methods, config)

    @classmethod
    def of(cls, manager: aot.EdgeProgramManager) -> Self:
        """`manager` with ExecuTorch's records around what it gives."""
        return cls._of(manager._lowering)

    @property
    def _edge_programs(self) -> _ManagersPrograms:
        return _ManagersPrograms(self)

    @property
    def _named_data_store(self) -> NamedDataStore:
        """What the delegates share by key."""
        store = NamedDataStore()
        for program in self._lowering.programs.values():
            for _, module in graph_modules(program.graph_module):
                for lowered in get_lowered_backend_modules(module):
                    if lowered.named_data_store_output is not None:
                        store.merge(lowered.named_data_store_output)
        return store

    @property
    def _config_methods(self) -> dict[str, Any]:
        return _ConstantMethods(self)

    @_config_methods.setter
    def _config_methods(self, methods: Mapping[str, Any]) -> None:
        self.add_constant_methods(methods)

    @executorchs_errors()
    def transform(self, passes: Any, compile_config: EdgeCompileConfig | None = None) -> Self:
        """Run passes, on every method or by method name; the new manager has `compile_config`."""
        return super().transform(adapted_passes(passes), compile_config)

    @executorchs_errors()
    def to_backend(self, partitioner: Any) -> Self:
        """Delegate what `partitioner`, one or a mapping by method name, tags."""
        return super().to_backend(partitioner)

    def to_executorch(  # type: ignore[override]
        self, config: ExecutorchBackendConfig | aot.ExecutorchBackendConfig | None = None
    ) -> ExecutorchProgramManager:
        """Choose out variants, plan memory and emit. Raises `LoweringError` for what no runtime could run."""
        config = own_backend_config(config)
        with_values(self._lowering.programs)
        if isinstance(config, aot.ExecutorchBackendConfig):
            return ExecutorchProgramManager.of(super().to_executorch(config))
        settings = config.for_delegraph(self.methods)
        return ExecutorchProgramManager.of(super(EdgeProgramManager, self._prepared(config)).to_executorch(settings))

    def _prepared(self, config: ExecutorchBackendConfig) -> Self:
        """After the passes that ExecuTorch runs over whole programs, where they are asked for."""
        changes: list[Any] = []
        if config.do_quant_fusion_and_const_prop:
            self._check_no_gradients()
            from delegraph_executorch.exir.passes.quantization import quant_fusion_and_const_prop_pass

            changes.append(quant_fusion_and_const_prop_pass)
        if config.run_reinplace_pass or config.reinplace_extra_ops:
            reinplace = import_module("delegraph_executorch.exir.passes.reinplace")  # the wheel's own

            operators = reinplace.DEFAULT_INPLACEABLE_OPS | (config.reinplace_extra_ops or frozenset())
            changes.append(partial(reinplace.reinplace_pass, ops_to_inplace=operators))
        if not changes:
            return self
        manager = deepcopy(self)
        programs = dict(manager._edge_programs)
        for change in changes:
            programs = {method: change(program) for method, program in programs.items()}
        return self._of(self._lowering.with_programs(programs))

    def _check_no_gradients(self) -> None:
        for method, program in self._lowering.programs.items():
            if ResolvedSignature.of(program).trained:
                raise LoweringError(
                    f"method {method!r} trains weights, which do_quant_fusion_and_const_prop would make constants;"
                    " leave the option out of the ExecutorchBackendConfig"
                )


class _ManagersPrograms(MutableMapping[str, ExportedProgram]):
    """The programs of a manager; one that is put in the place of another is the manager's from then on."""

    def __init__(self, manager: EdgeProgramManager) -> None:
        self._manager = manager

    def __getitem__(self, method: str) -> ExportedProgram:
        return self._manager._lowering.programs[method]

    def __setitem__(self, method: str, program: ExportedProgram) -> None:
        self[method]  # a manager's methods are given to it when it is made
        self._manager._lowering = self._manager._lowering.with_programs({method: program})

    def __delitem__(self, method: str) -> None:
        raise LoweringError(f"method {method!r}: make an EdgeProgramManager of the programs that shall stay")

    def __iter__(self) -> Iterator[str]:
        return iter(self._manager._lowering.programs)

    def __len__(self) -> int:
        return len(self._manager._lowering.programs)


class _ConstantMethods(dict[str, Any]):
    """The constant methods of a manager, which gets those that are put there."""

    def __init__(self, manager: EdgeProgramManager) -> None:
        super().__init__(manager._lowering.config.constant_methods)
        self._manager = manager

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._manager.add_constant_methods({name: value})


class _FinishedProgram:
    """What is known about a finished program, in ExecuTorch's records."""

    _result: aot.ExecutorchProgramManager

    @cached_property
    def _emitter_output(self) -> EmitterOutput:
        return output_of(self._result)

    @property
    def debug_handle_map(self) -> dict[str, dict[int, Any]]:
        """Method and instruction -> debug handle, or handles."""
        return self._emitter_output.debug_handle_map

    @property
    def delegate_map(self) -> dict[str, dict[int, dict[str, Any]]]:
        """Method and instruction -> the delegate's name and its own map."""
        return self._emitter_output.method_to_delegate_debug_id_map

    @property
    def instruction_id_to_num_outs_map(self) -> dict[str, dict[int, int]]:
        """Method and instruction -> the number of results."""
        return self._emitter_output.instruction_id_to_num_outs_map

    @property
    def buffer(self) -> bytes:
        """The bytes of the `.pte`."""
        return self._result.buffer

    @cached_property
    def _tensor_data(self) -> dict[str, Cord]:
        """The bytes of each `.ptd`, by name."""
        alignment = self._result.config.segment_alignment
        return {
            name: Cord(b"".join(sealed([serialize_flat_tensor(data, alignment)])))
            for name, data in self._result.tensor_data.items()
        }

    def write_to_file(self, open_file: BinaryIO) -> None:
        """Write the `.pte` to an open binary file."""
        self._result.write_to_file(open_file)

    def write_tensor_data_to_file(self, outdir: str | os.PathLike[str]) -> None:
        """Write each `.ptd` into a directory."""
        self._result.write_tensor_data_to_file(outdir)


class ExecutorchProgramManager(_FinishedProgram):
    """A finished program: its bytes, and what is known about it, in ExecuTorch's records."""

    def __init__(
        self,
        execution_programs: Mapping[str, ExportedProgram],
        config_methods: Mapping[str, Any] | None = None,
        backend_config: ExecutorchBackendConfig | None = None,
        named_data: Any = None,
    ) -> None:
        if named_data is not None:
            raise LoweringError("named_data: emission collects what delegates store; leave the argument out")
        programs = {name: source_of(program) for name, program in execution_programs.items()}
        config = (backend_config or ExecutorchBackendConfig()).for_delegraph(set(programs))
        self._result = aot.EdgeProgramManager(programs, config_methods).to_executorch(config)

    @classmethod
    def of(cls, result: aot.ExecutorchProgramManager) -> Self:
        """`result` in ExecuTorch's records."""
        manager = cls.__new__(cls)
        manager._result = result
        return manager

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.of(deepcopy(self._result, memo))

    def __repr__(self) -> str:
        return repr(self._result)

    @property
    def delegraph(self) -> aot.ExecutorchProgramManager:
        """The same as Delegraph's own manager."""
        return self._result

    @property
    def methods(self) -> set[str]:
        """The names of the methods that have a graph."""
        return self._result.methods

    @property
    def config_methods(self) -> set[str]:
        """The names of the methods that give a constant."""
        return self._result.config_methods

    def exported_program(self, method_name: str = "forward") -> ExportedProgram:
        """A method in the execution dialect; `meta["spec"]` of its nodes says where their tensors lie in the file."""
        return self._execution_programs[method_name]

    @cached_property
    def _execution_programs(self) -> dict[str, ExportedProgram]:
        programs: dict[str, ExportedProgram] = {}
        for plan in self._result.executorch_program.execution_plan:
            if plan.name in self.methods:
                values = self._result.node_values[plan.name]
                execution = execution_of(self._result.exported_program(plan.name), values)
                execution.place(plan)
                programs[plan.name] = execution.program
        return programs

    @property
    def executorch_program(self) -> Program:
        """The program before it is serialized."""
        return self._emitter_output.program

    @cached_property
    def _pte_data(self) -> Cord:
        return Cord(self.buffer)

    @property
    def _etrecord(self) -> aot.ETRecord | None:
        return self._result._etrecord

    def get_etrecord(self) -> aot.ETRecord:
        """What an Inspector needs to know of the lowering. Raises `ETRecordError` unless it was asked for."""
        return self._result.get_etrecord()

    def dump_executorch_program(self, verbose: bool = False, out: TextIO | None = None) -> None:
        """Print the program to `out` (None: standard output), with every field of every record if `verbose`."""
        self._result.dump_executorch_program(verbose, out)

    def save(self, path: str) -> None:
        """Write the `.pte`, whole or not at all. Raises ValueError unless `path` ends with ".pte"."""
        if not str(path).endswith(".pte"):
            raise ValueError(f"the path {path} does not end with .pte")
        self._result.save(path)


@executorchs_errors()
def to_edge(
    programs: Programs,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """`delegraph.aot.to_edge`."""
    return EdgeProgramManager.of(
        aot.to_edge(with_values(programs), constant_methods, own_edge_config(compile_config), generate_etrecord)
    )


@executorchs_errors()
def to_edge_transform_and_lower(
    programs: Programs,
    transform_passes: Any = None,
    partitioner: Any = None,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """`delegraph.aot.to_edge_transform_and_lower`."""
    return EdgeProgramManager.of(
        aot.to_edge_transform_and_lower(
            with_values(programs),
            transform_passes,
            partitioner,
            constant_methods,
            own_edge_config(compile_config),
            generate_etrecord,
        )
    )


# ---- the managers of one method, which came before -------------------------------------------------


class ExirExportedProgram:
    """A program on its way, one method (before `to_edge` took its place)."""

    def __init__(
        self,
        exported_program: ExportedProgram,
        after_to_edge_passes: bool,
        compile_config: EdgeCompileConfig | None = None,
    ) -> None:
        self.exported_program = exported_program
        self.after_to_edge_passes = after_to_edge_passes
        self.compile_config = compile_config or EdgeCompileConfig()

    def __call__(self, *args: Any) -> Any:
        return self.exported_program.module()(*args)

    def transform(self, *passes: Any) -> ExirExportedProgram:
        """Run passes, in place."""
        self.exported_program = _transform(self.exported_program, *passes)
        return self

    def to_edge(self, config: EdgeCompileConfig | None = None) -> ExirExportedProgram:
        """The program in the edge dialect."""
        config = config or self.compile_config
        return ExirExportedProgram(aot.to_edge(self.exported_program, None, config).exported_program(), True, config)

    def to_executorch(self, config: ExecutorchBackendConfig | None = None) -> ExecutorchProgram:
        """The finished program. Raises RuntimeError before `to_edge`."""
        return ExecutorchProgram(self, config=config)

    def dump(self) -> None:
        """Print the graph."""
        print(self.exported_program.graph)


class ExecutorchProgram(_FinishedProgram):
    """A finished program of one method."""

    def __init__(
        self,
        exir_exported_program: ExirExportedProgram,
        *,
        config: ExecutorchBackendConfig | None = None,
        **options: Any,
    ) -> None:
        """`options` are those of an `ExecutorchBackendConfig`, for where there is no `config`."""
        if not exir_exported_program.after_to_edge_passes:
            raise RuntimeError("Must run to_edge before to_executorch.")
        config = config or ExecutorchBackendConfig(**options)
        edge = EdgeProgramManager(exir_exported_program.exported_program, None, exir_exported_program.compile_config)
        manager = edge.to_executorch(config)
        self._result = manager.delegraph
        self.exported_program = manager.exported_program()

    @property
    def data_files(self) -> dict[str, bytes]:
        """The bytes of each `.ptd`, by name."""
        return {name: bytes(data) for name, data in self._tensor_data.items()}

    @property
    def program(self) -> Program:
        """The program before it is serialized."""
        return self._emitter_output.program

    @property
    def graph_module(self) -> Any:
        """The graph in the execution dialect."""
        return self.exported_program.graph_module

    def dump_graph_module(self) -> Any:
        """The same."""
        return self.graph_module

    def dump_exported_program(self) -> ExportedProgram:
        """The program in the execution dialect."""
        return self.exported_program


def _to_edge(ep: ExirExportedProgram, config: EdgeCompileConfig) -> ExirExportedProgram:
    """The program in the edge dialect."""
    return ep.to_edge(config)


def edge_to_executorch_passes(
    config: ExecutorchBackendConfig, name: str | None = None, edge_compile_config: EdgeCompileConfig | None = None
) -> list[Any]:
    """The user's passes: what else ExecuTorch runs here is done by emission itself."""
    return list(config.passes)
