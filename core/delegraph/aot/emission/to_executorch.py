"""Edge programs -> ExecutorchProgramManager: emission's stages in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.export import ExportedProgram

from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.emission import stages
from delegraph.aot.emission.assemble import assemble
from delegraph.aot.emission.manager import ExecutorchProgramManager
from delegraph.plugins.registry import PluginRegistry, default_registry

__all__ = ["to_executorch"]


def to_executorch(
    edge_programs: Mapping[str, ExportedProgram],
    config: ExecutorchBackendConfig | None = None,
    constant_methods: Mapping[str, Any] | None = None,
    registry: PluginRegistry | None = None,
) -> ExecutorchProgramManager:
    """Lower edge programs, by method name, to one program.

    `constant_methods` are methods without arguments that give a fixed value (numbers, bools, strings, tensors, or
    containers of these). `registry` says which kernel libraries and planners there are (default: what is installed).
    Raises `LoweringError` and its kinds, and `PluginError` for names that nobody offers.
    """
    config, registry = config or ExecutorchBackendConfig(), registry or default_registry()
    request = stages.make_request(sorted(edge_programs), config, constant_methods or {}, registry)
    methods = stages.prepare(stages.apply_passes(edge_programs, config), config)
    stages.check_emittable(methods)
    emitted = stages.emit(methods, request)
    stages.check_runnable(emitted, request)
    return assemble(stages.plan(emitted, request), config)
