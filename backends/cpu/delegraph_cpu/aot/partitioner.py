"""The partitioner that users name "cpu": takes every node that the table of converters can convert."""

from __future__ import annotations

from delegraph.interfaces import CompileSpec, Partitioner
from delegraph_cpu.aot.graph import TABLE
from delegraph_cpu.aot.preprocess import INT8_INPUTS, INT8_PRODUCTS
from delegraph_cpu.blob import BACKEND_ID, SUBMIT
from delegraph_partitioners.capability import CapabilityBasedPartitioner

__all__ = ["cpu_partitioner"]


def cpu_partitioner(
    *,
    minimum_nodes: int = 1,
    allow_trivial: bool = False,
    int8_inputs: bool = False,
    int8_products: bool = False,
    submit: bool = False,
) -> Partitioner:
    """A partitioner for `CpuBackend`.

    A delegate has at least `minimum_nodes` calls; with `allow_trivial` it may consist of views alone. With
    `int8_inputs`, linear layers whose weights alone are quantized round their inputs to int8, in blocks: up to ten
    times faster for a few rows, as in generation; but not where weights of 4 bits are multiplied with 16 rows and more.
    `int8_products` does that too, and where the number of rows is dynamic and never one: such weights become int8 at
    load, and take three times as much memory. Values that the program itself rounds are multiplied as integers anyway.
    With `submit` what is not connected is not in one delegate, and independent delegates run beside each other, in
    threads: it takes some 50 us a delegate, and pays where one of them cannot use all cores.
    """
    asked = {INT8_INPUTS: int8_inputs, INT8_PRODUCTS: int8_products, SUBMIT: submit}
    return CapabilityBasedPartitioner(
        BACKEND_ID,
        TABLE.support,
        [CompileSpec(key, b"1") for key, enabled in asked.items() if enabled],
        keep_whole=TABLE.kept_whole,  # onnxruntime runs them faster whole
        minimum_nodes=minimum_nodes,
        allow_trivial=allow_trivial,
        take_scalars=True,
        take_mutated_buffers=True,
        apart=submit,
    )
