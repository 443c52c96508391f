"""Settings in ExecuTorch's own classes -> the same in ours, which managers here take.

Helpers of its backends make them: `get_xnnpack_executorch_backend_config()` is an
`executorch.exir.ExecutorchBackendConfig` under whichever name it was imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, TypeVar

from delegraph import aot
from delegraph.aot import EdgeCompileConfig, PropagateDeviceConfig
from delegraph_executorch.exir.backend_config import ExecutorchBackendConfig
from delegraph_executorch.exir.passes.memory_planning_pass import MemoryPlanningPass, algorithms_of, planner_of
from delegraph_executorch.exir.passes.specs import DynamicMemoryPlanningMode

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
    theirs: Any = config
    return as_own(
        ExecutorchBackendConfig,
        theirs,
        memory_planning_pass=_each(theirs.memory_planning_pass, _own_planning),
        propagate_device_config=_each(theirs.propagate_device_config, partial(as_own, PropagateDeviceConfig)),
        dynamic_memory_planning_mode=DynamicMemoryPlanningMode[theirs.dynamic_memory_planning_mode.name],
    )


def _each(given: Any, change: Callable[[Any], Any]) -> Any:
    """`change` of what is given for all methods, or of each where it is given by method."""
    return {method: change(one) for method, one in given.items()} if isinstance(given, Mapping) else change(given)


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
    algorithms = algorithms_of(planning.memory_planning_algo)
    if not kind.__module__.startswith("executorch.") or not all(map(planner_of, algorithms)):
        return planning
    return MemoryPlanningPass(
        planning.memory_planning_algo, **{name: getattr(planning, name) for name in PLANNING_OPTIONS}
    )
