"""The half that compiles of a backend whose author derives from nothing: it negates."""

import torch

from delegraph.interfaces import DelegationSpec, PartitionResult, PreprocessResult


class BarePartitioner:
    """Takes `neg` of float32."""

    def __init__(self, tag):
        self.tag = tag

    def ops_to_not_decompose(self, ep):
        return [], None

    def partition(self, exported_program):
        tags = {}
        for node in exported_program.graph.nodes:
            if node.target == torch.ops.aten.neg.default and node.meta["val"].dtype == torch.float32:
                node.meta["delegation_tag"] = f"{self.tag}_{len(tags)}"
                tags[node.meta["delegation_tag"]] = DelegationSpec("ApiV1Bare")
        return PartitionResult(exported_program, tags)


def bare_partitioner(options):
    """The factory; it looks its options up in the one mapping that it gets."""
    return BarePartitioner(options.get("tag", "bare"))


class BareLowering:
    """Behind the backend id `ApiV1Bare`."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        return PreprocessResult(b"neg")

    @classmethod
    def preprocess_multimethod(cls, edge_programs, compile_specs):
        return {
            method: [
                cls.preprocess(program, specs) for program, specs in zip(programs, compile_specs[method], strict=True)
            ]
            for method, programs in edge_programs.items()
        }
