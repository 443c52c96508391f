"""The partitioner that users name "openvino": takes every node that the table of converters can convert."""

from __future__ import annotations

from delegraph.interfaces import CompileSpec, Partitioner
from delegraph_openvino.aot.exact import EXACT_NAN
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
    exact_nan: bool = False,
    minimum_nodes: int = 1,
    allow_trivial: bool = False,
) -> Partitioner:
    """A partitioner for `OpenVinoIR`.

    The first five are a delegate's options unless they are set at load: see `OpenVinoOptions`. With `exact_nan` a NaN
    passes activations, max pooling and softmax behind layers (convolutions, matrix products), which OpenVINO computes
    in one with the layer and gives a number instead; slower by 10 to 120 %. A delegate has at least `minimum_nodes`
    calls; with `allow_trivial` it may consist of views alone.
    Raises `InvalidArgument` for a value that an option does not take.
    """
    options = OpenVinoOptions(device, num_threads, performance_hint, precision, int8_products)
    settings = options.not_default() | ({EXACT_NAN: True} if exact_nan else {})
    return CapabilityBasedPartitioner(
        BACKEND_ID,
        TABLE.support,
        [CompileSpec(key, str(value).encode()) for key, value in settings.items()],
        keep_whole=TABLE.kept_whole,
        minimum_nodes=minimum_nodes,
        allow_trivial=allow_trivial,
        take_scalars=True,
    )
