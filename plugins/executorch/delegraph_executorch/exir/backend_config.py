"""The settings of emission under ExecuTorch's names, and what they are here.

`delegraph.aot.ExecutorchBackendConfig` is what lowering takes. What has no meaning here is refused when it is asked
for, with what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from torch.fx import Node

from delegraph import aot
from delegraph.aot import PropagateDeviceConfig
from delegraph.errors import LoweringError
from delegraph_executorch.exir.passes.memory_planning_pass import MemoryPlanningPass, planning_by
from delegraph_executorch.exir.passes.specs import DynamicMemoryPlanningMode

if TYPE_CHECKING:
    pass


@dataclass
class ExecutorchBackendConfig:
    """Options of `EdgeProgramManager.to_executorch`. None stands for what happens anyway.

    Kernels are not checked: code written for ExecuTorch decides about them when it builds its runtime.
    `remove_view_copy=True` and updates in place need no pass here; `run_reinplace_pass` and `reinplace_extra_ops` run
    ExecuTorch's, for the operators that are named.
    """

    passes: list[Any] = field(default_factory=list)
    memory_planning_pass: Any = field(default_factory=MemoryPlanningPass)
    propagate_device_config: PropagateDeviceConfig | Mapping[str, PropagateDeviceConfig] = field(
        default_factory=PropagateDeviceConfig
    )
    to_out_var_pass: Any = None
    dynamic_memory_planning_mode: DynamicMemoryPlanningMode = DynamicMemoryPlanningMode.UPPER_BOUND
    emit_stacktrace: bool = False
    extract_delegate_segments: bool = True
    segment_alignment: int = 128
    constant_tensor_alignment: int | None = None
    delegate_alignment: int | None = None
    sym_shape_eval_pass: Any = None
    remove_view_copy: bool = True
    external_constants: bool | Callable[[Node], str | None] = False
    external_mutable_weights: bool = False
    emit_mutable_buffer_names: bool = False
    do_quant_fusion_and_const_prop: bool = False
    run_reinplace_pass: bool = False
    enable_non_cpu_memory_planning: bool = True
    reinplace_extra_ops: frozenset[Any] | None = None

    def for_delegraph(self, methods: set[str]) -> aot.ExecutorchBackendConfig:
        """The same as `delegraph.aot` takes it. Raises `LoweringError` for what has no meaning here."""
        self._check()
        same = {
            setting.name: getattr(self, setting.name)
            for setting in fields(aot.ExecutorchBackendConfig)
            if setting.name in vars(self)
        }
        own = {
            "passes": {method: [*self.passes, *self._shape_passes(method)] for method in methods},
            "memory_planning_pass": self._memory_planning(methods),
            "check_kernels": False,
        }
        return aot.ExecutorchBackendConfig(**{**same, **own})

    def _check(self) -> None:
        if self.dynamic_memory_planning_mode != DynamicMemoryPlanningMode.UPPER_BOUND:
            raise LoweringError(
                "dynamic_memory_planning_mode=SYMBOLIC: memory is planned for upper bounds of sizes; use UPPER_BOUND"
            )
        if self.to_out_var_pass is not None and _is_own(self.to_out_var_pass, "ignore_to_out_var_failure"):
            raise LoweringError(
                "to_out_var_pass: a program file holds out variants alone, which emission chooses; give a pass over the"
                " edge program as passes=[…], and register out variants of custom operators"
            )

    def _memory_planning(self, methods: set[str]) -> Mapping[str, aot.MemoryPlanningPass]:
        chosen = self.memory_planning_pass
        by_method = chosen if isinstance(chosen, Mapping) else dict.fromkeys(methods, chosen)
        passes = {method: planning_by(one) for method, one in by_method.items() if method in methods}
        for one in passes.values():
            if isinstance(one, MemoryPlanningPass):
                one.enable_non_cpu_memory_planning = self.enable_non_cpu_memory_planning
        return {method: passes.get(method) or MemoryPlanningPass() for method in methods}

    def _shape_passes(self, method: str) -> list[Any]:
        chosen = self.sym_shape_eval_pass
        chosen = chosen.get(method) if isinstance(chosen, Mapping) else chosen
        return [] if chosen is None or type(chosen).__name__ == "ConstraintBasedSymShapeEvalPass" else [chosen]


def _is_own(given: Any, option: str) -> bool:
    """Whether a pass is not ExecuTorch's plain one: another class, or with this option set."""
    return type(given).__name__ != "ToOutVarPass" or bool(getattr(given, option, False))
