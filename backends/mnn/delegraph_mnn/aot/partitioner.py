"""The partitioner that users name "mnn": takes every node that MNN computes as torch does."""

from __future__ import annotations

from delegraph.interfaces import Partitioner
from delegraph_mnn.aot.target import TABLE
from delegraph_mnn.blob import BACKEND_ID
from delegraph_mnn.options import MnnOptions
from delegraph_partitioners import CapabilityBasedPartitioner

__all__ = ["mnn_partitioner"]


def mnn_partitioner(
    *, num_threads: int = 0, precision: str = "f32", minimum_nodes: int = 1, allow_trivial: bool = False
) -> Partitioner:
    """A partitioner for `MnnBackend`.

    The first two are a delegate's options unless they are set at load: see `MnnOptions`. A delegate has at least
    `minimum_nodes` calls; with `allow_trivial` it may consist of views alone. Raises `InvalidArgument` for a value that
    an option does not take.
    """
    return CapabilityBasedPartitioner(
        BACKEND_ID,
        TABLE.support,
        MnnOptions(num_threads, precision).compile_specs(),
        keep_whole=TABLE.kept_whole,
        minimum_nodes=minimum_nodes,
        allow_trivial=allow_trivial,
    )
