"""A partition -> a backend's own blob: what every author of a backend needs for it, each imported when first used.

Which nodes, and how
    ConverterTable, Converter: operator -> how it is converted and when it can be; `table.support` is what a partitioner
    takes
    Check, checked_support: why a node is left, or None; anything else is refused
    schema_arguments, named_arguments: the arguments of a call, defaults filled in
    tensors_of, used_results: what goes into and comes out of a node
    symbolic_shape, upper_bounds: its sizes, where they change
    matches, op, Capture, captured, ANY, either, behind: patterns of calls, and each way in which a node is one
    program_of: some calls as a program of their own, to ask an engine whether it takes them
What arguments mean
    reduced_dims: the dims that a reduction goes over
    per_dim, same_padding, overhang: of windows; nearest_pixels, resize_scales: of resized images
    clamp_limits: of an activation that only limits
A walk over a partition
    GraphConverter: inputs, weights, states, calls with one result or several, bodies of control flow, outputs
    body_of: the graph that a call of control flow refers to
    debug_handles: those of nodes, for `PreprocessResult.debug_handle_map`
What is known ahead of time
    Constants: weights, constants and what is computed from numbers alone, as NumPy arrays
    hides_nothing, sees_in_every_row: what an attention's mask does whose content is known
    as_array, numpy_dtype, torch_dtype, scalar_type: torch <-> NumPy <-> ScalarType, bfloat16 and float8 included
    lower_sharing_weights: compile all partitions of a backend, weights that several of them have stored once
    has_fallback: whether the file keeps a partition beside its blob, and with it its weights
Quantization
    quantize_call, QuantizeCall: one quantize or dequantize call, read
    Quantization, Quantizations: scales, zero points and limits of the values of a graph; Granularity: of what
    QuantizedWeight: the integers of a weight, unpacked, and what they stand for
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegraph.lazy import lazy_names

if TYPE_CHECKING:
    from delegraph.aot.authoring.constants import Constants
    from delegraph.aot.authoring.converter_table import Converter, ConverterTable
    from delegraph.aot.authoring.dtypes import as_array, numpy_dtype, scalar_type, torch_dtype
    from delegraph.aot.authoring.graph_converter import GraphConverter, body_of, debug_handles
    from delegraph.aot.authoring.limits import clamp_limits
    from delegraph.aot.authoring.node_values import (
        operator_name,
        symbolic_shape,
        tensors_of,
        upper_bounds,
        used_results,
    )
    from delegraph.aot.authoring.quantization import Granularity, Quantization, QuantizeCall, quantize_call
    from delegraph.aot.authoring.quantized_values import Quantizations, QuantizedWeight
    from delegraph.aot.authoring.reductions import reduced_dims
    from delegraph.aot.authoring.resizing import nearest_pixels, resize_scales
    from delegraph.aot.authoring.sharing import lower_sharing_weights
    from delegraph.aot.delegation.lowered_module import has_fallback
    from delegraph.aot.delegation.part import program_of
    from delegraph.aot.edge.patterns import ANY, Bindings, Capture, Op, behind, captured, either, matches, op
    from delegraph.aot.graph.attention_masks import hides_nothing, sees_in_every_row
    from delegraph.aot.graph.schema_binding import named_arguments, schema_arguments
    from delegraph.aot.graph.support import Check, Support, checked_support
    from delegraph.aot.graph.windows import overhang, per_dim, same_padding

__all__ = [
    "ANY",
    "Bindings",
    "Capture",
    "Check",
    "Constants",
    "Converter",
    "ConverterTable",
    "Granularity",
    "GraphConverter",
    "Op",
    "Quantization",
    "Quantizations",
    "QuantizeCall",
    "QuantizedWeight",
    "Support",
    "as_array",
    "behind",
    "body_of",
    "captured",
    "checked_support",
    "clamp_limits",
    "debug_handles",
    "either",
    "has_fallback",
    "hides_nothing",
    "lower_sharing_weights",
    "matches",
    "named_arguments",
    "nearest_pixels",
    "numpy_dtype",
    "op",
    "operator_name",
    "overhang",
    "per_dim",
    "program_of",
    "quantize_call",
    "reduced_dims",
    "resize_scales",
    "same_padding",
    "scalar_type",
    "schema_arguments",
    "sees_in_every_row",
    "symbolic_shape",
    "tensors_of",
    "torch_dtype",
    "upper_bounds",
    "used_results",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "delegraph.aot.authoring.constants": ("Constants",),
        "delegraph.aot.authoring.converter_table": ("Converter", "ConverterTable"),
        "delegraph.aot.authoring.dtypes": ("as_array", "numpy_dtype", "scalar_type", "torch_dtype"),
        "delegraph.aot.authoring.graph_converter": ("GraphConverter", "body_of", "debug_handles"),
        "delegraph.aot.authoring.limits": ("clamp_limits",),
        "delegraph.aot.authoring.node_values": (
            "operator_name",
            "symbolic_shape",
            "tensors_of",
            "upper_bounds",
            "used_results",
        ),
        "delegraph.aot.authoring.quantization": ("Granularity", "Quantization", "QuantizeCall", "quantize_call"),
        "delegraph.aot.authoring.quantized_values": ("Quantizations", "QuantizedWeight"),
        "delegraph.aot.authoring.reductions": ("reduced_dims",),
        "delegraph.aot.authoring.resizing": ("nearest_pixels", "resize_scales"),
        "delegraph.aot.authoring.sharing": ("lower_sharing_weights",),
        "delegraph.aot.delegation.lowered_module": ("has_fallback",),
        "delegraph.aot.delegation.part": ("program_of",),
        "delegraph.aot.edge.patterns": (
            "ANY",
            "Bindings",
            "Capture",
            "Op",
            "behind",
            "captured",
            "either",
            "matches",
            "op",
        ),
        "delegraph.aot.graph.attention_masks": ("hides_nothing", "sees_in_every_row"),
        "delegraph.aot.graph.schema_binding": ("named_arguments", "schema_arguments"),
        "delegraph.aot.graph.support": ("Check", "Support", "checked_support"),
        "delegraph.aot.graph.windows": ("overhang", "per_dim", "same_padding"),
    },
)
