"""An `ExecutorchBackendConfig` -> nothing, or an error for what can be seen to be wrong before any work is done."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from delegraph.aot.arguments import check_list, check_method_names
from delegraph.aot.config import ExecutorchBackendConfig
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
    else:
        check_list("ExecutorchBackendConfig.passes", config.passes)
    if not isinstance(config.memory_planner, str) and not callable(config.memory_planner):
        raise LoweringError(
            f"ExecutorchBackendConfig.memory_planner is {type(config.memory_planner).__name__}; it takes the name of an"
            " installed planner or a function"
        )
    _ = config.serialization  # alignments that are no power of two raise here
