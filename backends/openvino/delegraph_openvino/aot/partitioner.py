"""The partitioner that users name "openvino": takes every node that the table of converters can convert."""

from __future__ import annotations

from delegraph.interfaces import CompileSpec, Partitioner
from delegraph_openvino.aot.target import TABLE
from delegraph_openvino.blob import BACKEND_ID
from delegraph_openvino.options import OpenVinoOptions
from delegraph_partitioners import CapabilityBasedPartitioner

__all__ = ["openvino_partitioner"]


def openvino_partitioner(
    *,
    device: str = "CPU",
    num_threads: int = 0,
    performance_hint: str = "latency",
    precision: str = "f32",
    int8_products: bool = False,
    minimum_nodes: int = 1,
    allow_trivial: bool = False,
) -> Partitioner:
    """A partitioner for `OpenVinoIR`.

    The first five are what a delegate is loaded with unless the loader says otherwise: see `OpenVinoOptions`. One is
    made of `minimum_nodes` and more; with `allow_trivial`, also of views alone.
    Raises `InvalidArgument` for a value that an option does not take.
    """
    options = OpenVinoOptions(device, num_threads, performance_hint, precision, int8_products)
    return CapabilityBasedPartitioner(
        BACKEND_ID,
        TABLE.support,
        [CompileSpec(key, str(value).encode()) for key, value in options.not_default().items()],
        keep_whole=TABLE.kept_whole,
        minimum_nodes=minimum_nodes,
        allow_trivial=allow_trivial,
        take_scalars=True,
    )
