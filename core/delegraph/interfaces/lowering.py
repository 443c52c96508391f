"""The AOT half of a backend, as its author writes it: which nodes (`Partitioner`), into which bytes (`BackendDetails`).

Names and meaning are ExecuTorch's (`exir/backend/partitioner.py`, `backend_details.py`), so that code for it
moves here by changing imports; `PartitionResult.declined` has no counterpart there: a reason for every node that a
partitioner looked at and left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from delegraph.lazy_dataclass import dataclass, field
from delegraph.program.schema import CompileSpec, NamedData

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from delegraph.program.flat_tensor import ExternalData

__all__ = [
    "BackendDetails",
    "BlobVariant",
    "CompileSpec",
    "DelegationSpec",
    "NamedDataStoreOutput",
    "PartitionResult",
    "Partitioner",
    "PartitionerAdapter",
    "PartitionerFactory",
    "PreprocessResult",
]

# ---- which nodes -----------------------------------------------------------------------------------


class DelegationSpec(NamedTuple):
    """Which backend a tag goes to, and with which compile specs."""

    backend_id: str
    compile_specs: Sequence[CompileSpec] = ()


@dataclass(slots=True)
class PartitionResult:
    """The program with `node.meta["delegation_tag"]` set on the nodes taken, and the meaning of each tag.

    `declined` maps node names to the reason why this partitioner left them; a node of a control-flow body is named
    with the body's path before it, `true_graph_0.add`. A reason may as well stand on the node itself, in
    `node.meta["declined_because"]`.
    """

    tagged_exported_program: ExportedProgram
    partition_tags: Mapping[str, DelegationSpec]
    declined: Mapping[str, str] = field(default_factory=dict)


class Partitioner(ABC):
    """Chooses nodes for one backend (or several). Registered as a factory in the group `delegraph.partitioners`."""

    delegraph_api: ClassVar[tuple[int, int]] = (1, 0)
    """The lowest plug-in API that this partitioner needs."""

    is_suggested: ClassVar[bool] = True
    """Whether the report of a program that was lowered without backends says how much of it this partitioner would
    take; not where finding that out takes as long as compiling."""

    _spec: Mapping[Any, Any] = MappingProxyType({})

    def __init__(self, spec: Mapping[Any, Any] = MappingProxyType({})) -> None:
        self._spec = spec

    @property
    def spec(self) -> Mapping[Any, Any]:
        """The settings that the partitioner was made with; its author defines their meaning."""
        return self._spec

    def __call__(self, exported_program: ExportedProgram) -> PartitionResult:
        """Same as `partition`."""
        return self.partition(exported_program)

    @abstractmethod
    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag nodes of the edge program; change nothing but `node.meta["delegation_tag"]`.

        One tag becomes one delegate call, in the graph and in each control-flow body (`graph_modules`) where it stands.
        A tagged delegate call becomes a delegate in a delegate. A parameter, unchanged buffer or lifted constant that
        carries a tag belongs to the delegates that read it (`tag_constant_data`), and so does a buffer that one
        delegate alone reads and changes (`tag_mutated_buffer`); all other values that a partition reads become inputs
        of its call.
        """

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[torch.fx.Node], bool] | None]:
        """Operators to keep whole for this partitioner, and a filter over their nodes (None: keep all).

        A kept node that ends up undelegated is decomposed afterwards.
        """
        return ([], None)

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """The program as `torch.export` made it, changed to what this partitioner wants to see decomposed: a new one,
        or this one with another graph (it is a copy; its weights are shared, and not to be changed).

        All partitioners of a method are asked, in order of priority, before anything is decomposed; what one changes
        stays changed for the others and for kernels.
        """
        return exported_program


class PartitionerFactory(Protocol):
    """The factory behind a `delegraph.partitioners` entry point, whose name is what users write in `backends=[…]`."""

    def __call__(self, options: Mapping[str, Any], /) -> Partitioner:
        """Make a partitioner.

        It may have keyword parameters in place of `options`; then these are its options. An option that it does not
        have, or did not look at, is refused on its behalf.
        """


class PartitionerAdapter(Protocol):
    """The function behind a `delegraph.partitioner_adapters` entry point, whose name is a Python package's: it makes
    partitioners of that package's classes, or derived from them, usable in `backends=[…]`."""

    def __call__(self, partitioner: Any, /) -> Partitioner:
        """The partitioner that stands for `partitioner`."""


# ---- into which bytes ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NamedDataStoreOutput:
    """The finished store: the data of the `.pte`, and those of `.ptd` files by tag."""

    pte_data: Mapping[str, NamedData] = field(default_factory=dict)
    external_data: Mapping[str, Mapping[str, ExternalData]] = field(default_factory=dict)

    @property
    def buffers(self) -> list[bytes]:
        """The different contents, each once."""
        data = [entry.data for entry in self.pte_data.values()]
        data += [entry.data for tagged in self.external_data.values() for entry in tagged.values()]
        return list(dict.fromkeys(map(bytes, data)))


@dataclass(frozen=True, slots=True)
class BlobVariant:
    """Another blob of a partition, for devices that the first is not for: of another revision, say, or precision.

    `name` is unlike the others of the delegate, and comes to `check` as the stamp's `variant`: the backend gives it a
    meaning. `compile_specs` are what `init` gets with it (None: those of the partition); `data_store_output` is as in
    `PreprocessResult`. The delegate's own instruction ids mean the same in all blobs.
    """

    name: str
    processed_bytes: bytes = field(repr=False)
    data_store_output: NamedDataStoreOutput | None = None
    compile_specs: Sequence[CompileSpec] | None = None


@dataclass(slots=True)
class PreprocessResult:
    """The result of `preprocess`.

    `debug_handle_map` maps the delegate's own instruction ids to the debug handles of the edge nodes they came from;
    `data_store_output` holds blobs to be shared by key with other delegates of the program; `_delegate_info_meta`,
    anything that the backend's own tools want to know of the delegate, is kept beside the program (the lowered module's
    `meta`, `ExecutorchProgramManager.delegate_map`) and is not in the file.

    `variants` are further blobs, in the order of preference behind `processed_bytes`, whose own name is `variant`.
    Where a program is loaded the first is taken that `BackendInterface.check` accepts; no other is read.
    """

    processed_bytes: bytes = field(default=b"", repr=False)
    debug_handle_map: Mapping[int, Sequence[int]] | Mapping[str, Sequence[int]] | None = None
    data_store_output: NamedDataStoreOutput | None = None
    _delegate_info_meta: Any = None
    variant: str = ""
    variants: Sequence[BlobVariant] = ()


class BackendDetails(ABC):
    """Compiles partitions ahead of time. Registered under its backend id in the group `delegraph.lowerings`.

    A class that nobody registers is found by its name, which then is its backend id.
    """

    delegraph_api: ClassVar[tuple[int, int]] = (1, 0)
    """The lowest plug-in API that this backend needs."""

    blob_version: ClassVar[int] = 1
    """Goes into every blob's stamp; raise it when the runtime half can no longer read older blobs."""

    takes_external_weights: ClassVar[bool] = False
    """Whether `preprocess` stores the weights for which `delegraph.aot.external_tag` names a `.ptd` there, by
    `NamedDataStore.add_named_data(name, tensor, alignment, external_tag=…)`, and `init` reads them from
    `context.named_data[name]`. Nothing that is computed from one may be in the blob. Else they are inputs of the calls.
    """

    shares_state: ClassVar[bool] = False
    """Whether its delegates take the mutable buffers that they keep (`tag_mutated_buffer`) from
    `BackendInitContext.mutable_buffer`, by their qualified names, so that methods can share them."""

    @staticmethod
    @abstractmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Compile one partition.

        `edge_program` is in the edge dialect; weights that the partition owns are its parameters, buffers and lifted
        constants (`edge_program.state_dict`, `.constants`). Its graph is the backend's own to change, the weights are
        not. Raise `UnsupportedOperator` or `PreprocessError`, naming the node, for what the partitioner should not have
        claimed: lowering leaves it to others, and asks the partitioner again (docs/backend-contract.md).
        """

    @classmethod
    def copy_exported_program_for_preprocess(
        cls, edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> ExportedProgram:
        """The program that `preprocess` gets. The graph of `edge_program` is a copy already, and its weights are the
        model's: a backend that changes weights in place gives a program with copies of them."""
        return edge_program

    @classmethod
    def submits(cls, compile_specs: Sequence[CompileSpec]) -> bool:
        """Whether delegates with these specs are submitted at run time (`BackendInterface.submits`): then the memory of
        independent ones is planned so that they run beside each other."""
        return False

    @classmethod
    def serves_fixed_sizes(cls, edge_program: ExportedProgram, compile_specs: Sequence[CompileSpec]) -> bool:
        """Whether a blob for free sizes computes this partition, which has given ones, as fast as its own would.

        Then a partition that is another one at some sizes is not compiled: the step of one token has the blob of the
        prompt of any length, and is in the file, and in a runtime's memory, once. The program is not to be changed.
        """
        return False

    @classmethod
    def preprocess_multimethod(
        cls,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        """Compile every partition of every method at once. Override it to share weights between them."""
        return {
            method: [cls.preprocess(p, s) for p, s in zip(programs, compile_specs[method], strict=True)]
            for method, programs in edge_programs.items()
        }
