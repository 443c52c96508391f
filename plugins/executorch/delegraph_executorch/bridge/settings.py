"""Settings in ExecuTorch's own classes -> the same in ours, which managers and sessions here take.

Helpers of its backends make them: `get_xnnpack_executorch_backend_config()` is an
`executorch.exir.ExecutorchBackendConfig` under whichever name it was imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from delegraph import aot
from delegraph.aot import EdgeCompileConfig
from delegraph_executorch.exir import memory_planning
from delegraph_executorch.exir.capture._config import ExecutorchBackendConfig
from delegraph_executorch.exir.dynamic_shape import DynamicMemoryPlanningMode
from delegraph_executorch.exir.passes.memory_planning_pass import MemoryPlanningPass

__all__ = ["as_own", "own_backend_config", "own_edge_config"]

Kind = TypeVar("Kind")


def as_own(kind: type[Kind], given: Any, **changed: Any) -> Kind:
    """A `kind` with the fields of `given`, another dataclass with fields of these names, but for those in `changed`."""
    names = [field.name for field in fields(kind) if field.init]  # type: ignore[arg-type]
    return kind(**{name: getattr(given, name) for name in names if hasattr(given, name)} | changed)


def own_edge_config(config: Any) -> EdgeCompileConfig | None:
    """`config`, or the same as our class."""
    if config is None or isinstance(config, EdgeCompileConfig):
        return config
    return as_own(EdgeCompileConfig, config)


def own_backend_config(
    config: Any,
) -> ExecutorchBackendConfig | aot.ExecutorchBackendConfig:
    """`config`, or the same as our class; None is the default."""
    if config is None:
        return ExecutorchBackendConfig()
    if isinstance(config, (ExecutorchBackendConfig, aot.ExecutorchBackendConfig)) or not is_dataclass(config):
        return config
    given: Any = config
    planning, mode = given.memory_planning_pass, given.dynamic_memory_planning_mode
    return as_own(
        ExecutorchBackendConfig,
        given,
        memory_planning_pass={method: _own_planning(one) for method, one in planning.items()}
        if isinstance(planning, Mapping)
        else _own_planning(planning),
        dynamic_memory_planning_mode=DynamicMemoryPlanningMode[mode.name],
    )


PLANNING_OPTIONS = (
    "allow_lifetime_and_storage_overlap",
    "alloc_graph_input",
    "alloc_graph_output",
    "alloc_mutable_buffers",
    "share_mutable_buffers",
    "alignment",
)


def _own_planning(planning: Any) -> Any:
    """ExecuTorch's planning pass, as far as its options say all of it; another one is run as it is."""
    kind = type(planning)
    if isinstance(planning, MemoryPlanningPass) or kind.__name__ != "MemoryPlanningPass":
        return planning
    algorithms = getattr(planning.memory_planning_algo, "algo_list", [planning.memory_planning_algo])
    ours: list[Any] = [getattr(memory_planning, getattr(one, "__name__", ""), None) for one in algorithms]
    if not kind.__module__.startswith("executorch.") or None in ours:
        return planning
    suite = memory_planning.MemoryPlanningAlgorithmSuite(ours)
    return MemoryPlanningPass(suite, **{name: getattr(planning, name) for name in PLANNING_OPTIONS})
