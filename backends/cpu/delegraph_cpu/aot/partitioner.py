"""The partitioner that users name "cpu": takes every node that the table of converters can convert."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from delegraph.errors import LoweringError
from delegraph.interfaces import Partitioner
from delegraph_cpu.aot.convert import support
from delegraph_cpu.aot.converters import CONVERTERS
from delegraph_cpu.blob import BACKEND_ID
from delegraph_partitioners.capability import CapabilityBasedPartitioner

__all__ = ["cpu_partitioner"]

OPTIONS: Final = ("minimum_nodes", "allow_trivial")


KEPT_WHOLE: Final = [
    operator
    for operator, converter in CONVERTERS.items()
    if converter.keep and isinstance(operator, torch._ops.OpOverload)
]
"""Operators that edge lowering is asked not to decompose, because onnxruntime runs them faster whole."""


def cpu_partitioner(options: Mapping[str, Any] | None = None) -> Partitioner:
    """A partitioner for `CpuBackend`.

    Options are those of `CapabilityBasedPartitioner`: minimum_nodes (default 1), the size from which a delegate is
    made, and allow_trivial (default False), whether also for views alone. Raises `LoweringError` for any other.
    """
    options = options or {}
    unknown = sorted(options.keys() - set(OPTIONS))
    if unknown:
        raise LoweringError(f"partitioner 'cpu' has no option {', '.join(unknown)}; it has {', '.join(OPTIONS)}")
    return CapabilityBasedPartitioner(BACKEND_ID, support, keep_whole=KEPT_WHOLE, **options)
