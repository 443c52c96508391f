"""A backend's partitions, and how one is compiled -> all of them compiled, the weights that they share stored once.

    @classmethod
    def preprocess_multimethod(cls, edge_programs, compile_specs):
        return lower_sharing_weights("MyBackend", edge_programs, compile_specs, compiled)

It is made of `SharedWeights`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from torch.export import ExportedProgram

from delegraph.aot.delegation.named_data_store import NamedDataStore
from delegraph.aot.delegation.shared_weights import SharedWeights
from delegraph.interfaces.lowering import CompileSpec, NamedDataStoreOutput, PreprocessResult

__all__ = ["lower_sharing_weights"]

Compile: TypeAlias = Callable[[ExportedProgram, "list[CompileSpec]", Mapping[str, str]], PreprocessResult]


def lower_sharing_weights(
    backend_id: str,
    edge_programs: Mapping[str, Sequence[ExportedProgram]],
    compile_specs: Mapping[str, Sequence[list[CompileSpec]]],
    compile_partition: Compile,
    *,
    alignment: int = 16,
    minimum_nbytes: int = 1,
) -> dict[str, list[PreprocessResult]]:
    """The result of `preprocess_multimethod`. `compile_partition(edge_program, compile_specs, keys)` compiles one:
    `keys` are, by the names of their placeholders, those of the weights that another partition has too, which it is to
    refer to by these keys; `init` finds their bytes, C-contiguous, in `context.named_data[key]`.

    `alignment` and `minimum_nbytes` as in `SharedWeights`.
    """
    shared = SharedWeights(backend_id, edge_programs, alignment=alignment, minimum_nbytes=minimum_nbytes)

    def compiled(program: ExportedProgram, specs: list[CompileSpec]) -> PreprocessResult:
        result = compile_partition(program, specs, shared.keys(program))
        return replace(result, data_store_output=_joined(result.data_store_output, shared.store(program)))

    return {
        method: [compiled(program, specs) for program, specs in zip(programs, compile_specs[method], strict=True)]
        for method, programs in edge_programs.items()
    }


def _joined(own: NamedDataStoreOutput | None, shared: NamedDataStoreOutput) -> NamedDataStoreOutput:
    """The author's named data, and the shared weights."""
    if own is None:
        return shared
    store = NamedDataStore()
    for output in (own, shared):
        store.merge(output)
    return store.get_named_data_store_output()
