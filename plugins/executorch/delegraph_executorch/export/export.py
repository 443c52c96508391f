"""ExecuTorch's `executorch.export.export`: a model, example inputs and a recipe -> a program, by way of stages."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule

from delegraph_executorch.exir.program._program import EdgeProgramManager, ExecutorchProgramManager
from delegraph_executorch.exir.schema import Program
from delegraph_executorch.export.recipe import ExportRecipe, StageType, own_recipe
from delegraph_executorch.export.stages import (
    EdgeProgramManagerTransformStage,
    EdgeTransformAndLowerStage,
    ExecutorchStage,
    PipelineArtifact,
    QuantizeStage,
    SourceTransformStage,
    Stage,
    ToBackendStage,
    ToEdgeStage,
    TorchExportStage,
)

__all__ = ["ExportSession", "export"]

log = logging.getLogger(__name__)

SKIPPED = {
    "nn.Module": (),
    "GraphModule": (StageType.SOURCE_TRANSFORM, StageType.QUANTIZE),
    "ExportedProgram": (StageType.SOURCE_TRANSFORM, StageType.QUANTIZE, StageType.TORCH_EXPORT),
}
"""By kind of model the stages that were done already when it was made."""
DEFAULT = (
    StageType.SOURCE_TRANSFORM,
    StageType.QUANTIZE,
    StageType.TORCH_EXPORT,
    StageType.TO_EDGE_TRANSFORM_AND_LOWER,
    StageType.TO_EXECUTORCH,
)
EDGE_STAGES = (
    StageType.TO_EDGE_TRANSFORM_AND_LOWER,
    StageType.TO_BACKEND,
    StageType.EDGE_PROGRAM_MANAGER_TRANSFORM,
    StageType.TO_EDGE,
)
"""Those that give an edge manager; the first that was run has the last one."""


class ExportSession:
    """The way of a model through the stages of a recipe; `export()` goes it.

    model: an nn.Module, a quantized GraphModule, an ExportedProgram, the path of one, or one of the first three by
    method. example_inputs: a list of tuples, or lists by method: the first is exported with, all calibrate; an
    ExportedProgram needs none. dynamic_shapes and constant_methods: by method. name and artifact_dir are there for
    stages of the user's own (`context`). Raises `ValueError` and `TypeError`.
    """

    def __init__(
        self,
        model: Any,
        example_inputs: Any = None,
        export_recipe: ExportRecipe | None = None,
        name: str | None = None,
        dynamic_shapes: Any = None,
        constant_methods: Any = None,
        artifact_dir: str | None = None,
        generate_etrecord: bool | None = False,
    ) -> None:
        if isinstance(model, str):
            model = torch.export.load(model)
        self._input_model_type = self._detect_model_type(model)
        if example_inputs is None and self._input_model_type != "ExportedProgram":
            raise ValueError(
                f"example_inputs are required when model is {self._input_model_type}. "
                "Only ExportedProgram inputs can omit example_inputs."
            )
        self._model = _by_method(model)
        self._example_inputs = {} if example_inputs is None else _by_method(example_inputs)
        self._dynamic_shapes = {} if dynamic_shapes is None else _by_method(dynamic_shapes)
        self._export_recipe: ExportRecipe = own_recipe(export_recipe) or ExportRecipe()
        self._quant_recipe = self._export_recipe.quantization_recipe
        self._lowering_recipe = self._export_recipe.lowering_recipe
        self._pipeline_stages = self._export_recipe.pipeline_stages or self._get_default_pipeline()
        self._stage_registry = self._build_stages(self._pipeline_stages)
        self._stage_to_artifacts: dict[StageType, PipelineArtifact] = {}
        self._run_context: dict[str, Any] = {
            "example_inputs": self._example_inputs,
            "dynamic_shapes": self._dynamic_shapes,
            "constant_methods": constant_methods,
            "export_recipe": self._export_recipe,
            "session_name": name,
            "artifact_dir": artifact_dir,
            "generate_etrecord": generate_etrecord,
        }

    # ---- stages ----

    def _detect_model_type(self, model: Any) -> str:
        if isinstance(model, Mapping):
            return self._detect_model_type(next(iter(model.values())))
        kinds = {"ExportedProgram": ExportedProgram, "GraphModule": GraphModule, "nn.Module": nn.Module}
        found = next((name for name, kind in kinds.items() if isinstance(model, kind)), None)
        if found is None:
            raise TypeError(f"Unsupported model type: {type(model)}")
        return found

    def _get_default_pipeline(self) -> list[StageType]:
        return [stage for stage in DEFAULT if stage not in SKIPPED[self._input_model_type]]

    def _build_stages(self, stages: Sequence[StageType]) -> dict[StageType, Stage]:
        recipe, lowering, quantization = self._export_recipe, self._lowering_recipe, self._quant_recipe
        makers: dict[StageType, Any] = {
            StageType.SOURCE_TRANSFORM: lambda: SourceTransformStage(quantization),
            StageType.QUANTIZE: lambda: QuantizeStage(quantization),
            StageType.TORCH_EXPORT: lambda: TorchExportStage(recipe.aten_transform_passes, strict=recipe.strict),
            StageType.TO_EDGE_TRANSFORM_AND_LOWER: lambda: EdgeTransformAndLowerStage.from_recipe(lowering),
            StageType.TO_EDGE: lambda: ToEdgeStage.from_recipe(lowering),
            StageType.EDGE_PROGRAM_MANAGER_TRANSFORM: lambda: EdgeProgramManagerTransformStage.from_recipe(lowering),
            StageType.TO_BACKEND: lambda: ToBackendStage.from_recipe(lowering),
            StageType.TO_EXECUTORCH: lambda: ExecutorchStage(recipe.executorch_backend_config),
        }
        return {stage: makers[stage]() for stage in stages or self._get_default_pipeline() if stage in makers}

    def register_stage(self, stage_type: StageType, stage: Stage) -> None:
        """Put `stage` in the place of the session's own, or beside it under a type of the caller's."""
        self._stage_registry[stage_type] = stage

    def get_registered_stage(self, stage_type: StageType) -> Stage | None:
        """The stage of that type, if there is one."""
        return self._stage_registry.get(stage_type)

    def get_all_registered_stages(self) -> dict[StageType, Stage]:
        """All stages by type."""
        return self._stage_registry

    def _validate_pipeline_sequence(self, stages: Sequence[StageType]) -> None:
        if not stages:
            raise ValueError("Pipeline stages cannot be empty")
        done = [stage for stage in stages if stage in SKIPPED[self._input_model_type]]
        if done:
            names = ", ".join(stage.name for stage in done)
            raise ValueError(
                f"Cannot run {names} stage(s) with {self._input_model_type} input: that was done when it was made."
                f" Remove {names} from pipeline_stages or give the model itself."
            )
        for previous, current in zip([None, *stages], stages, strict=False):
            stage = self._stage_registry.get(current)
            if stage is None:
                raise ValueError(f"Stage {current} not found in registry, register it using session.register_stage()")
            valid = stage.valid_predecessor_stages
            if previous is None and not stage.can_start_pipeline:
                raise ValueError(f"Stage {current} cannot start a pipeline. ")
            if previous is not None and valid and previous not in valid:
                raise ValueError(
                    f"Invalid transition from {previous} to {current}. Valid predecessors for {current}: {valid}"
                )

    def export(self) -> None:
        """Run the stages. Raises `ValueError` for an order that cannot be, and as the stages do."""
        self._run_pipeline()

    def _run_pipeline(self) -> None:
        self._validate_pipeline_sequence(stages=self._pipeline_stages)
        artifact = PipelineArtifact(self._model, self._run_context)
        for stage_type in self._pipeline_stages:
            stage = self._stage_registry[stage_type]
            start = time.perf_counter()
            stage.run(artifact)
            artifact = stage.get_artifacts()
            artifact.add_context("duration_ms", int((time.perf_counter() - start) * 1000))
            log.info("Stage %s: %s ms", stage_type, artifact.get_context("duration_ms"))
            self._stage_to_artifacts[stage_type] = artifact

    # ---- what they gave ----

    def get_stage_artifacts(self) -> dict[StageType, PipelineArtifact]:
        """What each stage gave."""
        return self._stage_to_artifacts

    def get_exported_program(self, method_name: str = "forward") -> ExportedProgram:
        """What torch.export gave. Raises `RuntimeError` before it was run, `KeyError` for an unknown method."""
        programs = self._given(StageType.TORCH_EXPORT)
        if programs is None:
            raise RuntimeError("Exported program is not available. Run Torch Export Stage first.")
        if method_name not in programs:
            raise KeyError(
                f"Method name '{method_name}' not found in exported programs. Available methods: {[*programs]}"
            )
        program: ExportedProgram = programs[method_name]
        return program

    def get_edge_program_manager(self) -> EdgeProgramManager:
        """What the last edge stage gave. Raises `RuntimeError` before one was run."""
        for stage_type in EDGE_STAGES:
            manager: EdgeProgramManager | None = self._given(stage_type)
            if manager is not None:
                return manager
        names = ", ".join(stage.name for stage in EDGE_STAGES)
        raise RuntimeError(f"Edge program manager is not available. Run one of the edge stages first: {names}.")

    def get_executorch_program(self) -> Program:
        """The finished program's records. Raises `RuntimeError` before it is."""
        return self.get_executorch_program_manager().executorch_program

    def get_executorch_program_manager(self) -> ExecutorchProgramManager:
        """The finished program. Raises `RuntimeError` before it is."""
        manager: ExecutorchProgramManager | None = self._given(StageType.TO_EXECUTORCH)
        if manager is None:
            raise RuntimeError("Executorch program manager is not initialized. Run Executorch Stage first.")
        return manager

    def get_pte_buffer(self) -> bytes:
        """The bytes of the `.pte`. Raises `RuntimeError` before there are any."""
        return self.get_executorch_program_manager().buffer

    def save_to_pte(self, output_name: str) -> None:
        """Write the `.pte`. Raises `RuntimeError` before there is one."""
        from delegraph_executorch.extension.export_utils import save_pte_program

        assert output_name, "Need a valid output name"
        save_pte_program(self.get_executorch_program_manager(), output_name)

    def get_example_input(self, method_name: str = "forward") -> tuple[Any, ...]:
        """The first example input. Raises `KeyError` for an unknown method, `ValueError` if it has none."""
        if method_name not in self._example_inputs:
            raise KeyError(f"Method name '{method_name}' not found in example inputs")
        inputs = self._example_inputs[method_name]
        if not inputs:
            raise ValueError(f"Example inputs list for method {method_name} is empty")
        first: tuple[Any, ...] = inputs[0]
        return first

    def run_method(self, method_name: str = "forward", example_inputs: Sequence[Any] | None = None) -> Sequence[Any]:
        """What a method of the program gives on these inputs, or on the first example. Raises as the runtime does."""
        from delegraph.runtime import Runtime, Verification

        inputs = self.get_example_input(method_name) if example_inputs is None else example_inputs
        program = Runtime.get().load_program(self.get_pte_buffer(), verification=Verification.Minimal)
        return program.load_method(method_name).execute(inputs)

    def print_delegation_info(self) -> None:
        """Print what was delegated. Raises `RuntimeError` before a stage that delegates was run."""
        from delegraph_executorch.devtools.inspector._values import display_or_print_df

        stages = (StageType.TO_EDGE_TRANSFORM_AND_LOWER, StageType.TO_BACKEND)
        artifact = next(
            (self._stage_to_artifacts[stage] for stage in stages if stage in self._stage_to_artifacts), None
        )
        if artifact is None:
            raise RuntimeError("No delegation info available, run one of the lowering stages first")
        info = artifact.get_context("delegation_info")
        print(info.get_summary())
        display_or_print_df(info.get_operator_delegation_dataframe())

    def get_etrecord(self) -> Any:
        """The ETRecord, if it was asked for. Raises `RuntimeError` if it was not, or before there is a program."""
        return self.get_executorch_program_manager().get_etrecord()

    def _given(self, stage_type: StageType) -> Any:
        artifact = self._stage_to_artifacts.get(stage_type)
        return None if artifact is None else artifact.data


def _by_method(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {"forward": value}


P = ParamSpec("P")


def _made_and_run(make: Callable[P, ExportSession]) -> Callable[P, ExportSession]:
    def export(*args: P.args, **kwargs: P.kwargs) -> ExportSession:
        """Make an `ExportSession` of these and run it; see there."""
        session = make(*args, **kwargs)
        session.export()
        return session

    export.__signature__ = inspect.signature(make)  # type: ignore[attr-defined]
    return export


export = _made_and_run(ExportSession)
