"""Sums and rectifiers -> a list of instructions for each revision."""

from __future__ import annotations

import json

import torch
from torch.export import ExportedProgram

from acme_boards import CODES
from delegraph.errors import InvalidArgument
from delegraph.interfaces import (
    BackendDetails,
    BlobVariant,
    CompileSpec,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    PreprocessResult,
)

NAMES = {torch.ops.aten.add.Tensor: "add", torch.ops.aten.relu.default: "relu"}


class BoardPartitioner(Partitioner):
    """Takes each call by itself."""

    delegraph_api = (1, 1)

    def __init__(self, revisions: list[str]) -> None:
        super().__init__()
        self.specs = [CompileSpec("revisions", json.dumps(revisions).encode())]

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags, declined = {}, {}
        for node in exported_program.graph.nodes:
            if node.op == "call_function" and node.target in NAMES and not node.kwargs:
                node.meta["delegation_tag"] = node.name
                tags[node.name] = DelegationSpec("AcmeBoard", self.specs)
            elif node.op == "call_function":
                declined[node.name] = f"the boards have no {node.target}"
        return PartitionResult(exported_program, tags, declined)


def boards(*, revisions: str = "r2") -> BoardPartitioner:
    """The factory behind the entry point. `revisions` of the device, with spaces between."""
    named = revisions.split()
    if not named or not CODES.keys() >= {*named}:
        raise InvalidArgument(f"boards: revisions is {revisions!r}; there are {' and '.join(CODES)}")
    return BoardPartitioner(named)


class BoardLowering(BackendDetails):
    """The AOT half behind the backend id `AcmeBoard`."""

    delegraph_api = (1, 1)

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        (node,) = (node for node in edge_program.graph.nodes if node.op == "call_function")
        revisions = json.loads(compile_specs[0].value)
        blobs = {revision: bytes([CODES[revision][NAMES[node.target]]]) for revision in revisions}
        (first, blob), *others = blobs.items()
        return PreprocessResult(blob, variant=first, variants=[BlobVariant(*other) for other in others])
