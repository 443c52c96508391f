"""Delegraph: pip-installable backends for PyTorch on edge devices.

    lowered = delegraph.lower(model, args, backends=["npu", "cpu"])      # ahead of time; needs torch
    lowered.save("model.pte")
    result = delegraph.load("model.pte")(*args)                          # on the device; needs NumPy

The public names, each imported when it is first used: importing the package loads neither torch nor NumPy.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from delegraph import former_modules
from delegraph.lazy import DeprecatedName, lazy_names

former_modules.install()

if os.environ.get("DELEGRAPH_LOG"):
    from delegraph.logs import write_to_stderr

    write_to_stderr(os.environ["DELEGRAPH_LOG"])

if TYPE_CHECKING:
    from delegraph.aot.config import EdgeCompileConfig, ExecutorchBackendConfig, LoweringConfig
    from delegraph.aot.delegation.report import LoweringReport
    from delegraph.aot.lower import Lowered, lower, to_edge, to_edge_transform_and_lower
    from delegraph.aot.quantized_model import QuantizedModel, convert_qat, prepare_qat, quantize
    from delegraph.comparison.compare import compare
    from delegraph.comparison.result import Compared, Comparison
    from delegraph.debugging.debug import debug
    from delegraph.debugging.layer_gaps import NumericGap
    from delegraph.debugging.numeric_gap import numeric_gap
    from delegraph.debugging.result import Debugged, Fault
    from delegraph.errors import DelegraphError, LoweringError, PluginError, RuntimeFault
    from delegraph.mapping.map_table import MappedTable, MapProgress, map_table
    from delegraph.mapping.row_mapper import RowMapper
    from delegraph.program.limits import Limits
    from delegraph.runtime.concurrency import Concurrency
    from delegraph.runtime.execution.tracing import EventTracer
    from delegraph.runtime.method import Method
    from delegraph.runtime.method_meta import MethodMeta
    from delegraph.runtime.module import Module, load
    from delegraph.runtime.program import Program
    from delegraph.runtime.runtime import Runtime
    from delegraph.version import __version__


__all__ = [
    "Compared",
    "Comparison",
    "Concurrency",
    "Debugged",
    "DelegraphError",
    "EdgeCompileConfig",
    "EventTracer",
    "ExecutorchBackendConfig",
    "Fault",
    "Limits",
    "Lowered",
    "LoweringConfig",
    "LoweringError",
    "LoweringReport",
    "MapProgress",
    "MappedTable",
    "Method",
    "MethodMeta",
    "Module",
    "NumericGap",
    "PluginError",
    "Program",
    "QuantizedModel",
    "RowMapper",
    "Runtime",
    "RuntimeFault",
    "__version__",
    "compare",
    "convert_qat",
    "debug",
    "load",
    "lower",
    "map_table",
    "numeric_gap",
    "prepare_qat",
    "quantize",
    "to_edge",
    "to_edge_transform_and_lower",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "delegraph.aot.config": ("EdgeCompileConfig", "ExecutorchBackendConfig", "LoweringConfig"),
        "delegraph.aot.delegation.report": ("LoweringReport",),
        "delegraph.aot.lower": ("Lowered", "lower", "to_edge", "to_edge_transform_and_lower"),
        "delegraph.aot.quantized_model": ("QuantizedModel", "convert_qat", "prepare_qat", "quantize"),
        "delegraph.comparison.compare": ("compare",),
        "delegraph.comparison.result": ("Compared", "Comparison"),
        "delegraph.debugging.debug": ("debug",),
        "delegraph.debugging.layer_gaps": ("NumericGap",),
        "delegraph.debugging.numeric_gap": ("numeric_gap",),
        "delegraph.debugging.result": ("Debugged", "Fault"),
        "delegraph.errors": ("DelegraphError", "LoweringError", "PluginError", "RuntimeFault"),
        "delegraph.mapping.map_table": ("MappedTable", "MapProgress", "map_table"),
        "delegraph.mapping.row_mapper": ("RowMapper",),
        "delegraph.program.limits": ("Limits",),
        "delegraph.runtime.concurrency": ("Concurrency",),
        "delegraph.runtime.execution.tracing": ("EventTracer",),
        "delegraph.runtime.method": ("Method",),
        "delegraph.runtime.method_meta": ("MethodMeta",),
        "delegraph.runtime.module": ("Module", "load"),
        "delegraph.runtime.program": ("Program",),
        "delegraph.runtime.runtime": ("Runtime",),
        "delegraph.version": ("__version__",),
    },
    {"Pool": DeprecatedName("Concurrency", "2.0", "delegraph.runtime.pool")},
)
