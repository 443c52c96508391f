"""A program and a backend, or a partitioner -> the program lowered, by itself: ExecuTorch's `to_backend` in its forms.

    to_backend("Id", program, compile_specs)                        -> LoweredBackendModule     the whole program
    to_backend(program, partitioner)                                -> ExportedProgram          what it takes
    to_backend(MethodProgramsPartitionerSpec(programs, partitioners)) -> {method: ExportedProgram}

They cut and compile as `lower` does. A lowered module may stand in a larger model, which is then exported and lowered
like any other (`reexported.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, TensorArgument

from delegraph.aot.checks.backends import check_backends, warn_of_absent_halves
from delegraph.aot.delegation.backends import adapted_partitioner
from delegraph.aot.delegation.compile import compile_delegates
from delegraph.aot.delegation.compose import Delegated, compile_partitions, delegate, merged
from delegraph.aot.delegation.lowered_module import LoweredBackendModule
from delegraph.aot.delegation.refusals import Refusal, until_compiled
from delegraph.errors import InvalidPartition, LoweringError
from delegraph.interfaces.lowering import CompileSpec, DelegationSpec, Partitioner
from delegraph.plugins.registry import PluginRegistry, default_registry

__all__ = ["MethodProgramsPartitionerSpec", "to_backend"]


@dataclass(slots=True)
class MethodProgramsPartitionerSpec:
    """Edge programs by method, and the partitioners of those that are to be partitioned."""

    method_to_edge_program: Mapping[str, ExportedProgram]
    method_to_partitioner: Mapping[str, Partitioner]


@singledispatch
def to_backend(args: object, *others: object, **settings: object) -> Any:
    """Lower a program, without a manager around it.

    `to_backend(backend_id, edge_program, compile_specs)` lowers a whole program onto one backend: a
    `LoweredBackendModule`. `to_backend(edge_program, partitioner_instance)` lowers what the partitioner takes, and
    `to_backend(MethodProgramsPartitionerSpec(...))` that of several methods, each backend compiling all its partitions
    at once. The given programs are not changed. `plugins` are the plug-ins to use instead of the installed ones.

    Raises `LoweringError` (`InvalidPartition`, `PreprocessError` …) and `PluginError`.
    """
    raise LoweringError(
        f"to_backend takes a backend id, an ExportedProgram or a MethodProgramsPartitionerSpec first, not"
        f" {type(args).__name__}"
    )


@to_backend.register
def _whole(
    backend_id: str,
    edge_program: ExportedProgram,
    compile_specs: Sequence[CompileSpec],
    *,
    plugins: PluginRegistry | None = None,
) -> LoweredBackendModule:
    _check_results(edge_program)
    module = LoweredBackendModule.without_blob(edge_program, DelegationSpec(backend_id, compile_specs), backend_id)
    compiled = compile_delegates({"forward": [module]}, plugins)
    warn_of_absent_halves([backend_id], plugins or default_registry())
    return compiled[module]


def _check_results(program: ExportedProgram) -> None:
    changed = [s for s in program.graph_signature.output_specs if s.kind is OutputKind.USER_INPUT_MUTATION]
    if changed:
        raise InvalidPartition(
            f"the program changes its input {changed[0].target}, which a delegate cannot; it may change buffers of its"
            " own: return the new value instead"
        )
    numbers = [spec for spec in program.graph_signature.output_specs if not isinstance(spec.arg, TensorArgument)]
    if numbers:
        raise InvalidPartition(
            f"the program returns {numbers[0].arg}, which is not a tensor: a backend fills tensors, it cannot give"
            " anything else; return it from the model around the part that is lowered"
        )


@to_backend.register
def _partitioned(
    edge_program: ExportedProgram, partitioner_instance: Partitioner, *, plugins: PluginRegistry | None = None
) -> ExportedProgram:
    spec = MethodProgramsPartitionerSpec({"forward": edge_program}, {"forward": partitioner_instance})
    return _methods(spec, plugins=plugins)["forward"]


@to_backend.register
def _methods(
    method_edge_program_partitioners: MethodProgramsPartitionerSpec, *, plugins: PluginRegistry | None = None
) -> dict[str, ExportedProgram]:
    programs = method_edge_program_partitioners.method_to_edge_program
    partitioners = method_edge_program_partitioners.method_to_partitioner
    if unknown := sorted(set(partitioners) - set(programs)):
        raise LoweringError(f"there is a partitioner for {unknown[0]!r}; the methods are {', '.join(sorted(programs))}")
    plugins = plugins or default_registry()

    def attempt(refusals: tuple[Refusal, ...]) -> Delegated:
        delegated = Delegated({})
        for method, partitioner in partitioners.items():
            named = {type(partitioner).__name__: adapted_partitioner(partitioner, plugins)}
            delegated = merged(delegated, delegate({method: programs[method]}, named, refusals=refusals))
        check_backends(delegated.partitions, plugins)
        compiled = compile_partitions(delegated, plugins, refusals)
        warn_of_absent_halves((module.backend_id for module in compiled), plugins)
        return delegated.with_blobs(compiled)

    return {**programs, **until_compiled(attempt).programs}
