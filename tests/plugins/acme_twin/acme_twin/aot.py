"""The half that needs torch: each `tanh` and `sigmoid` is a delegate, whose blob is its name."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.export import ExportedProgram

from delegraph.interfaces import (
    BackendDetails,
    CompileSpec,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    PreprocessResult,
)

FUNCTIONS = {torch.ops.aten.tanh.default: b"tanh", torch.ops.aten.sigmoid.default: b"sigmoid"}


def twin_partitioner(*, seconds: float = 0.0) -> Partitioner:
    """`seconds`: so long does the device take for a call."""
    return TwinPartitioner(seconds)


class TwinPartitioner(Partitioner):
    delegraph_api = (1, 1)

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags = {}
        for node in exported_program.graph.nodes:
            if node.target in FUNCTIONS:
                tag = f"twin_{len(tags)}"
                node.meta["delegation_tag"] = tag
                tags[tag] = DelegationSpec("AcmeTwin", [CompileSpec("seconds", str(self.seconds).encode())])
        return PartitionResult(exported_program, tags)


class TwinLowering(BackendDetails):
    delegraph_api = (1, 1)

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        [call] = [node for node in edge_program.graph.nodes if node.op == "call_function"]
        return PreprocessResult(FUNCTIONS[call.target])

    @classmethod
    def submits(cls, compile_specs: Sequence[CompileSpec]) -> bool:
        return True
