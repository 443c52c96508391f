"""The AOT half of a backend, as its author writes it: a partition's program -> the bytes its runtime half will run.

Names and meaning are ExecuTorch's (`exir/backend/backend_details.py`), so that a `preprocess` written there moves
here by changing imports.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from torch.export import ExportedProgram

from delegraph.aot.delegation.named_data_store import NamedDataStoreOutput
from delegraph.program.schema import CompileSpec

__all__ = ["BackendDetails", "CompileSpec", "PreprocessResult"]


@dataclass(slots=True)
class PreprocessResult:
    """What `preprocess` returns.

    `debug_handle_map` maps the delegate's own instruction ids to the debug handles of the edge nodes they came from;
    `data_store_output` holds blobs to be shared by key with other delegates of the program.
    """

    processed_bytes: bytes = b""
    debug_handle_map: Mapping[int, Sequence[int]] | Mapping[str, Sequence[int]] = field(default_factory=dict)
    data_store_output: NamedDataStoreOutput | None = None


class BackendDetails(ABC):
    """Compiles partitions ahead of time. Registered under its backend id in the group `delegraph.lowerings`."""

    delegraph_api: ClassVar[tuple[int, int]] = (1, 0)
    """The lowest plug-in API that this backend needs."""

    blob_version: ClassVar[int] = 1
    """Goes into every blob's stamp; raise it when the runtime half can no longer read older blobs."""

    @staticmethod
    @abstractmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Compile one partition.

        `edge_program` is in the edge dialect; weights that the partition owns are its parameters, buffers and lifted
        constants (`edge_program.state_dict`, `.constants`). It must not be modified. Raise `UnsupportedOperator`,
        naming the node, for what the partitioner should not have claimed.
        """

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
