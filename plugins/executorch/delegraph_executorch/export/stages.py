"""ExecuTorch's `executorch.export.stages`: what an `ExportSession` runs, one after the other.

SOURCE_TRANSFORM   models -> models               weights quantized by torchao's configs
QUANTIZE           models -> graphs               quantized after training, by pt2e quantizers
TORCH_EXPORT       models -> exported programs
TO_EDGE_TRANSFORM_AND_LOWER                       -> edge manager, delegated
TO_EDGE, EDGE_PROGRAM_MANAGER_TRANSFORM, TO_BACKEND    the same in three steps
TO_EXECUTORCH      edge manager -> finished program
"""

from __future__ import annotations

import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar, Final, Self

import torch
from torch.export import ExportedProgram

from delegraph import aot
from delegraph.aot import validation_disabled
from delegraph_executorch.devtools.delegation_info import get_delegation_info
from delegraph_executorch.exir.program._program import to_edge, to_edge_transform_and_lower
from delegraph_executorch.export.recipe import LoweringRecipe, QuantizationRecipe, StageType

log = logging.getLogger(__name__)


class PipelineArtifact:
    """What a stage gives to the next: `data`, and beside it what several stages ask for (`context`)."""

    def __init__(self, data: Any, context: dict[str, Any]) -> None:
        self.data = data
        self.context = context

    def add_context(self, key: str, value: Any) -> None:
        """Put something beside the data."""
        self.context[key] = value

    def get_context(self, key: str, default: Any = None) -> Any:
        """What is beside the data under `key`."""
        return self.context.get(key, default)

    def copy_with_new_data(self, new_data: Any) -> PipelineArtifact:
        """Other data, with a context of its own that says the same."""
        return PipelineArtifact(new_data, dict(self.context))


class Stage(ABC):
    """A step of an `ExportSession`: `run` takes the artifact of the one before and keeps its own."""

    _artifact: PipelineArtifact | None = None

    @property
    @abstractmethod
    def stage_type(self) -> StageType:
        """Which step it is."""

    @property
    @abstractmethod
    def valid_predecessor_stages(self) -> list[StageType]:
        """What may come right before it; nothing in particular where it is empty."""

    @property
    @abstractmethod
    def can_start_pipeline(self) -> bool:
        """Whether it may be the first."""

    @abstractmethod
    def run(self, artifact: PipelineArtifact) -> None:
        """Do it."""

    def get_artifacts(self) -> PipelineArtifact:
        """What it gave. Raises `RuntimeError` before it was run."""
        if self._artifact is None:
            raise RuntimeError(f"Stage: {self.__class__.__name__} not executed")
        return self._artifact

    @property
    def delegation_info(self) -> Any:
        """What was delegated (`get_delegation_info`), of a stage that delegates."""
        return self.get_artifacts().get_context("delegation_info")


class _LoweringStage(Stage):
    """A stage that a `LoweringRecipe` describes: `recipe_fields` are those that it is made with."""

    recipe_fields: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_recipe(cls, lowering_recipe: LoweringRecipe | None) -> Self:
        """The stage as the recipe has it."""
        return (
            cls() if lowering_recipe is None else cls(*(getattr(lowering_recipe, name) for name in cls.recipe_fields))
        )


class TorchExportStage(Stage):
    """models -> `torch.export.export` of each on its first example input, then the recipe's passes."""

    stage_type: Final = StageType.TORCH_EXPORT
    valid_predecessor_stages: Final = [StageType.SOURCE_TRANSFORM, StageType.QUANTIZE]
    can_start_pipeline: Final = True

    def __init__(self, aten_transform_passes: Sequence[Callable[..., Any]] | None = None, strict: bool = True) -> None:
        self._aten_transform_passes = aten_transform_passes
        self.strict = strict

    def run(self, artifact: PipelineArtifact) -> None:
        """Raises `ValueError` for a method without example inputs, or for a pass that cannot be called."""
        inputs, shapes = artifact.get_context("example_inputs"), artifact.get_context("dynamic_shapes", {})
        programs = {}
        with torch.no_grad():
            for method, model in artifact.data.items():
                if method not in inputs:
                    raise ValueError(f"Example inputs for method {method} not found.")
                program = torch.export.export(
                    model, inputs[method][0], dynamic_shapes=shapes.get(method), strict=self.strict
                )
                for one in self._aten_transform_passes or ():
                    if not callable(one):
                        raise ValueError(
                            "Aten transform passes must be a callable that can transform and return an exported program"
                        )
                    program = one(method, program)
                programs[method] = program
        self._artifact = artifact.copy_with_new_data(programs)


class EdgeTransformAndLowerStage(_LoweringStage):
    """exported programs -> `to_edge_transform_and_lower`."""

    stage_type: Final = StageType.TO_EDGE_TRANSFORM_AND_LOWER
    valid_predecessor_stages: Final = [StageType.TORCH_EXPORT]
    can_start_pipeline: Final = True
    recipe_fields = ("partitioners", "edge_transform_passes", "edge_compile_config")

    def __init__(
        self,
        partitioners: list[Any] | None = None,
        transform_passes: Sequence[Callable[..., Any]] | None = None,
        compile_config: Any = None,
    ) -> None:
        self._partitioners = partitioners
        self._transform_passes = transform_passes
        self._compile_config = compile_config

    def run(self, artifact: PipelineArtifact) -> None:
        """Raises `ValueError` for passes that cannot be called, and as `to_edge_transform_and_lower`."""
        with validation_disabled():
            manager = to_edge_transform_and_lower(
                artifact.data,
                partitioner=self._partitioners,
                transform_passes=_resolved(self._transform_passes, artifact.data),
                constant_methods=artifact.get_context("constant_methods"),
                compile_config=self._compile_config,
                generate_etrecord=artifact.get_context("generate_etrecord", False),
            )
        self._artifact = _with_delegation_info(artifact.copy_with_new_data(manager))


class ExecutorchStage(Stage):
    """edge manager -> `to_executorch`."""

    stage_type: Final = StageType.TO_EXECUTORCH
    valid_predecessor_stages: Final = [
        StageType.TO_EDGE_TRANSFORM_AND_LOWER,
        StageType.TO_BACKEND,
        StageType.EDGE_PROGRAM_MANAGER_TRANSFORM,
    ]
    can_start_pipeline: Final = False

    def __init__(self, backend_config: Any) -> None:
        self._backend_config = backend_config

    def run(self, artifact: PipelineArtifact) -> None:
        """Raises `RuntimeError` without a manager, and as `to_executorch`."""
        manager = _manager(artifact)
        self._artifact = artifact.copy_with_new_data(manager.to_executorch(self._backend_config))


class SourceTransformStage(Stage):
    """models -> copies with their weights quantized by torchao's config; without one the models themselves."""

    stage_type: Final = StageType.SOURCE_TRANSFORM
    valid_predecessor_stages: Final[list[StageType]] = []
    can_start_pipeline: Final = True

    def __init__(self, quantization_recipe: QuantizationRecipe | None) -> None:
        self._quantization_recipe = quantization_recipe
        self._transformed_models: dict[str, Any] = {}

    def run(self, artifact: PipelineArtifact) -> None:
        """Raises `ValueError` for more than one config: they cannot be combined."""
        configs = self._quantization_recipe and self._quantization_recipe.ao_quantization_configs
        if not configs:
            self._artifact = artifact
            return
        if len(configs) > 1:
            raise ValueError(
                "AO quantization configs cannot be reliably composed together, multiple quantization configs are"
                " disallowed for source transform at this point"
            )
        self._transformed_models = copy.deepcopy(artifact.data)
        for model in self._transformed_models.values():
            quantize_(model, configs[0].ao_base_config, configs[0].filter_fn)
            unwrap_tensor_subclass(model)
        self._artifact = artifact.copy_with_new_data(self._transformed_models)


class QuantizeStage(Stage):
    """models -> graphs, calibrated on all example inputs; without quantizers the models themselves."""

    stage_type: Final = StageType.QUANTIZE
    valid_predecessor_stages: Final = [StageType.SOURCE_TRANSFORM]
    can_start_pipeline: Final = True

    def __init__(self, quantization_recipe: QuantizationRecipe | None) -> None:
        self._quantization_recipe = quantization_recipe

    def _get_quantizer_for_prepare_pt2e(self, quantizers: Sequence[Any]) -> Any:
        """One quantizer for all: torchao's, composed; or a single one of `torch.ao`."""
        older = [quantizer for quantizer in quantizers if not is_pt2e_quantizer(quantizer)]
        if not quantizers:
            raise ValueError("No quantizers detected")
        if not older:
            return ComposableQuantizer(list(quantizers))
        if len(older) < len(quantizers):
            raise ValueError("Mixed quantizer types are not supported: use torchao's alone")
        if len(older) > 1:
            raise ValueError("Multiple quantizers of torch.ao.quantization.quantizer not supported: use torchao's")
        log.warning("torch.ao quantizer %s is deprecated, consider moving to torchao quantizer", older[0])
        return older[0]

    def run(self, artifact: PipelineArtifact) -> None:
        """Raises `ValueError` for a method without example inputs, or for quantizers that cannot be combined."""
        quantizers = self._quantization_recipe and self._quantization_recipe.quantizers
        if not quantizers:
            self._artifact = artifact
            return
        inputs = artifact.get_context("example_inputs")
        quantized = {}
        for method, model in artifact.data.items():
            if not inputs.get(method):
                raise ValueError(f"Example inputs for method {method} not found or empty.")
            captured = torch.export.export(model, inputs[method][0], strict=True).module()
            prepared = prepare_pt2e(captured, self._get_quantizer_for_prepare_pt2e(quantizers))
            for calibration_input in inputs[method]:
                prepared(*calibration_input)
            quantized[method] = convert_pt2e(prepared)
        self._artifact = artifact.copy_with_new_data(quantized)


class ToEdgeStage(_LoweringStage):
    """exported programs -> `to_edge`."""

    stage_type: Final = StageType.TO_EDGE
    valid_predecessor_stages: Final = [StageType.TORCH_EXPORT]
    can_start_pipeline: Final = True
    recipe_fields = ("edge_compile_config",)

    def __init__(self, edge_compile_config: Any = None) -> None:
        self._edge_compile_config = edge_compile_config

    def run(self, artifact: PipelineArtifact) -> None:
        """Raises as `to_edge`."""
        manager = to_edge(
            artifact.data,
            constant_methods=artifact.get_context("constant_methods"),
            compile_config=self._edge_compile_config,
            generate_etrecord=artifact.get_context("generate_etrecord", False),
        )
        self._artifact = artifact.copy_with_new_data(manager)


class EdgeProgramManagerTransformStage(_LoweringStage):
    """edge manager -> the recipe's passes: those by method, then those that are made for the manager, one by one."""

    stage_type: Final = StageType.EDGE_PROGRAM_MANAGER_TRANSFORM
    valid_predecessor_stages: Final = [StageType.TO_EDGE]
    can_start_pipeline: Final = False
    recipe_fields = ("edge_transform_passes", "edge_manager_transform_passes")

    def __init__(
        self,
        edge_transform_passes: Sequence[Callable[..., Any]] | None = None,
        edge_manager_transform_passes: Sequence[Callable[..., Any]] | None = None,
    ) -> None:
        self._edge_transform_passes = edge_transform_passes or []
        self._edge_manager_transform_passes = edge_manager_transform_passes or []

    def run(self, artifact: PipelineArtifact) -> None:
        """Raises `TypeError` for data that is no manager, `ValueError` for passes that cannot be called."""
        manager = artifact.data
        if not isinstance(manager, aot.EdgeProgramManager):
            raise TypeError(f"Expected EdgeProgramManager but got {type(manager)}")
        if self._edge_transform_passes:
            programs = {method: manager.exported_program(method) for method in manager.methods}
            manager = manager.transform(_resolved(self._edge_transform_passes, programs))
        for make in self._edge_manager_transform_passes:
            if passes := make(manager):
                manager = manager.transform(passes)
        self._artifact = artifact if manager is artifact.data else artifact.copy_with_new_data(manager)


class ToBackendStage(_LoweringStage):
    """edge manager -> `to_backend` with each partitioner."""

    stage_type: Final = StageType.TO_BACKEND
    valid_predecessor_stages: Final = [StageType.TO_EDGE, StageType.EDGE_PROGRAM_MANAGER_TRANSFORM]
    can_start_pipeline: Final = False
    recipe_fields = ("partitioners",)

    def __init__(self, partitioners: list[Any] | None = None) -> None:
        self._partitioners = partitioners

    def run(self, artifact: PipelineArtifact) -> None:
        """Raises `RuntimeError` without a manager, and as `to_backend`."""
        manager = _manager(artifact)
        with validation_disabled():
            for partitioner in self._partitioners or ():
                manager = manager.to_backend(partitioner)
        self._artifact = _with_delegation_info(artifact.copy_with_new_data(manager))


def _manager(artifact: PipelineArtifact) -> Any:
    if artifact.data is None:
        raise RuntimeError("Edge program manager is not set.")
    return artifact.data


def _resolved(makers: Sequence[Callable[..., Any]] | None, programs: Mapping[str, ExportedProgram]) -> Any:
    """By method the passes that `makers` give for it; or the one PassManager that one of them gives for all."""
    passes: dict[str, list[Any]] = {}
    for method, program in programs.items():
        for make in makers or ():
            if not callable(make):
                raise ValueError("Transform passes must be a callable that resolves to passes")
            made = make(method, program)
            if not isinstance(made, (list, tuple)):
                return made
            passes.setdefault(method, []).extend(made)
    return passes


def _with_delegation_info(artifact: PipelineArtifact) -> PipelineArtifact:
    """With what was delegated: of `forward`, or of the first method where there is none of that name."""
    manager = artifact.data
    methods = getattr(manager, "methods", None)
    named = methods if isinstance(methods, (set, frozenset)) else {"forward"}
    method = "forward" if "forward" in named else min(named)
    artifact.add_context("delegation_info", get_delegation_info(manager.exported_program(method).graph_module))
    return artifact


def _of_torchao(module: str, name: str) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        return getattr(import_module(f"torchao.{module}"), name)(*args)

    return call


# Imported when they are called: torchao takes seconds, and recipes without quantization need none of it.
quantize_ = _of_torchao("quantization", "quantize_")
unwrap_tensor_subclass = _of_torchao("utils", "unwrap_tensor_subclass")
prepare_pt2e = _of_torchao("quantization.pt2e.quantize_pt2e", "prepare_pt2e")
convert_pt2e = _of_torchao("quantization.pt2e.quantize_pt2e", "convert_pt2e")
ComposableQuantizer = _of_torchao("quantization.pt2e.quantizer", "ComposableQuantizer")


def is_pt2e_quantizer(quantizer: Any) -> bool:
    """Whether it is one of torchao's; else it is one of `torch.ao`, which came before."""
    from torchao.quantization.pt2e.quantizer import Quantizer

    return isinstance(quantizer, Quantizer)
