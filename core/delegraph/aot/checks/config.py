"""An `ExecutorchBackendConfig` -> nothing, or an error for what can be seen to be wrong before any work is done."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch.fx.passes.infra.pass_manager import PassManager

from delegraph.aot.arguments import check_list, check_method_names
from delegraph.aot.config import MEMORY_OPTIONS, ExecutorchBackendConfig, PropagateDeviceConfig
from delegraph.aot.memory_planning import MemoryPlanningPass
from delegraph.errors import LoweringError

__all__ = ["check_config"]


def check_config(config: ExecutorchBackendConfig, methods: Collection[str], constant_methods: Collection[str]) -> None:
    """Raise `LoweringError` or, for an alignment, `InvalidArgument`. `methods` are those that have a graph."""
    both = sorted(set(methods) & set(constant_methods))
    if both:
        raise LoweringError(f"{', '.join(both)}: a method and a constant method of one name; rename one of them")
    if not methods and not constant_methods:
        raise LoweringError("there is no method to lower; pass at least one exported program")
    check_list("ExecutorchBackendConfig.kernels", config.kernels)
    named = [kernels for kernels in config.kernels or () if isinstance(kernels, str)]
    for name in named:
        if named.count(name) > 1:
            raise LoweringError(f"ExecutorchBackendConfig.kernels names {name!r} twice")
    if isinstance(config.passes, Mapping):
        check_method_names("ExecutorchBackendConfig.passes", config.passes, methods)
        for method, passes in config.passes.items():
            check_list(f"ExecutorchBackendConfig.passes[{method!r}]", passes)
    elif not isinstance(config.passes, PassManager):
        check_list("ExecutorchBackendConfig.passes", config.passes)
    _check_memory_planning(config, methods)
    _check_propagate_device(config, methods)
    for method in methods:
        _check_pass(method, config.memory_planning(method))
    _ = config.serialization  # alignments that are no power of two raise here


def _check_memory_planning(config: ExecutorchBackendConfig, methods: Collection[str]) -> None:
    """Raise if the memory planning pass has another type, or an option that it sets is set beside it too."""
    chosen = config.memory_planning_pass
    if chosen is None:
        return
    by_method = chosen if isinstance(chosen, Mapping) else dict.fromkeys(methods, chosen)
    check_method_names("ExecutorchBackendConfig.memory_planning_pass", by_method, methods)
    for planning in by_method.values():
        if not isinstance(planning, MemoryPlanningPass):
            raise LoweringError(
                f"ExecutorchBackendConfig.memory_planning_pass is {type(planning).__name__}; it takes a"
                " delegraph.aot.MemoryPlanningPass, or a mapping of them by method name"
            )
    default = ExecutorchBackendConfig()
    for name in ("memory_planner", *MEMORY_OPTIONS):
        if getattr(config, name) != getattr(default, name):
            raise LoweringError(
                f"ExecutorchBackendConfig has both memory_planning_pass and {name}; say it once: MemoryPlanningPass("
                f"{'memory_planning_algo' if name == 'memory_planner' else name}=…)"
            )


def _check_propagate_device(config: ExecutorchBackendConfig, methods: Collection[str]) -> None:
    """Raise if options leave out copies where none are put in, or leave results on a device without memory there."""
    what = "ExecutorchBackendConfig.propagate_device_config"
    chosen = config.propagate_device_config
    by_method = chosen if isinstance(chosen, Mapping) else dict.fromkeys(methods, chosen)
    check_method_names(what, by_method, methods)
    for method, device_config in by_method.items():
        if not isinstance(device_config, PropagateDeviceConfig):
            raise LoweringError(
                f"{what} is {type(device_config).__name__}; it takes a delegraph.aot.PropagateDeviceConfig, or a"
                " mapping of them by method name"
            )
        for name in ("skip_h2d_for_method_inputs", "skip_d2h_for_method_outputs"):
            option = getattr(device_config, name)
            if isinstance(option, Mapping):
                check_method_names(f"{what}.{name}", option, methods)
        inputs, outputs = device_config.skipped(method)
        if (inputs or outputs) and not config.enable_non_cpu_memory_planning:
            raise LoweringError(
                f"method {method!r}: {what} leaves out copies to or from devices, and"
                " enable_non_cpu_memory_planning=False puts none in; leave one of the two off"
            )
        if outputs and not config.memory_planning(method).alloc_graph_output:
            raise LoweringError(
                f"method {method!r}: skip_d2h_for_method_outputs leaves results in the planned memory of their device;"
                " leave alloc_graph_output=True, since a caller gives results memory of the CPU's only"
            )


def _check_pass(method: str, planning: MemoryPlanningPass) -> None:
    algorithm = planning.planner
    if not (isinstance(algorithm, str) or callable(algorithm)):
        raise LoweringError(
            f"method {method!r}: memory_planner is {type(algorithm).__name__}; it takes the name of an installed"
            " planner or a function"
        )
    if planning.share_mutable_buffers and not planning.alloc_mutable_buffers:
        raise LoweringError(
            f"method {method!r}: share_mutable_buffers gives buffers one planned place in all methods, so it needs"
            " alloc_mutable_buffers=True"
        )
    _ = planning.hierarchy  # a file that is not one raises here
    if planning.alignment < 1 or planning.alignment & (planning.alignment - 1):
        raise LoweringError(f"method {method!r}: alignment is {planning.alignment} bytes; it is a power of two")
