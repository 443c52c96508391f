"""ExecuTorch's `executorch.export.recipe`: what an `ExportSession` does, as data, by stage."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum, EnumMeta
from typing import Any

from delegraph.aot import EdgeCompileConfig, ExecutorchBackendConfig
from delegraph_executorch.export.types import StageType

__all__ = [
    "AOQuantizationConfig",
    "ExportRecipe",
    "LoweringRecipe",
    "Mode",
    "QuantizationRecipe",
    "RecipeType",
    "RecipeTypeMeta",
]


class RecipeTypeMeta(EnumMeta, ABCMeta):
    """An enum's class that can have abstract methods."""


class RecipeType(Enum, metaclass=RecipeTypeMeta):
    """The recipes of a backend: a backend's enum derives from it."""

    @classmethod
    @abstractmethod
    def get_backend_name(cls) -> str:
        """The name under which the backend's provider is registered."""


class Mode(str, Enum):  # noqa: UP042 - its text is "Mode.DEBUG", as in ExecuTorch
    """What the recipe is for; no stage of this package's asks."""

    DEBUG = "debug"
    RELEASE = "release"


@dataclass
class AOQuantizationConfig:
    """A config of `torchao.quantization.quantize_`, and which modules it is for (module, name) -> bool."""

    ao_base_config: Any
    filter_fn: Callable[[Any, str], bool] | None = None


@dataclass
class QuantizationRecipe:
    """How to quantize: with pt2e quantizers after export, with torchao's configs before it."""

    quantizers: list[Any] | None = None
    ao_quantization_configs: list[AOQuantizationConfig] | None = None

    def get_quantizers(self) -> list[Any] | None:
        """The pt2e quantizers."""
        return self.quantizers


@dataclass
class LoweringRecipe:
    """How to lower: partitioners in order; `edge_transform_passes` are functions (method, program) -> passes, and
    `edge_manager_transform_passes` functions (manager) -> passes, run after `TO_EDGE`, each on what the last gave."""

    partitioners: list[Any] | None = None
    edge_transform_passes: list[Callable[..., Any]] | None = None
    edge_manager_transform_passes: list[Callable[..., Any]] | None = None
    edge_compile_config: EdgeCompileConfig | None = None


@dataclass
class ExportRecipe:
    """What an `ExportSession` does. `aten_transform_passes` are functions (method, program) -> program, run after
    `torch.export.export(…, strict=strict)`; `pipeline_stages` None is the default for the kind of model."""

    name: str | None = None
    quantization_recipe: QuantizationRecipe | None = None
    aten_transform_passes: list[Callable[..., Any]] | None = None
    lowering_recipe: LoweringRecipe | None = None
    executorch_backend_config: ExecutorchBackendConfig | None = None
    pipeline_stages: list[StageType] | None = None
    mode: Mode = Mode.RELEASE
    strict: bool = True

    @classmethod
    def get_recipe(cls, recipe: RecipeType, **kwargs: Any) -> ExportRecipe:
        """The recipe that the backend's registered provider makes of `kwargs`. Raises `ValueError` if it makes none."""
        from delegraph_executorch.export.recipe_registry import recipe_registry

        if not (isinstance(recipe, Enum) and hasattr(recipe, "get_backend_name")):  # of either RecipeType
            raise ValueError(
                f"Invalid recipe type: {recipe}; a backend's recipes are an enum that derives from RecipeType"
            )
        backend = recipe.get_backend_name()
        made = recipe_registry.create_recipe(recipe, backend, **kwargs)
        if made is None:
            supported = [one.value for one in recipe_registry.get_supported_recipes(backend)]
            raise ValueError(f"Recipe '{recipe.value}' not supported by '{backend}'. Supported: {supported}")
        return made

    @classmethod
    def combine(cls, recipes: Sequence[ExportRecipe], recipe_name: str | None = None) -> ExportRecipe:
        """One recipe for several backends: their partitioners, quantizers and passes one after the other, the first
        recipe's configs that there are. Raises `ValueError` without recipes."""
        if not recipes:
            raise ValueError("Recipes cannot be empty")
        if len(recipes) == 1:
            return recipes[0]
        lowering = [recipe.lowering_recipe for recipe in recipes if recipe.lowering_recipe is not None]
        quantization = [recipe.quantization_recipe for recipe in recipes if recipe.quantization_recipe is not None]
        config = next(
            (recipe.executorch_backend_config for recipe in recipes if recipe.executorch_backend_config), None
        )
        return cls(
            name=recipe_name or "_".join(recipe.name for recipe in recipes if recipe.name is not None),
            quantization_recipe=_combined_quantization(quantization),
            aten_transform_passes=_all(recipe.aten_transform_passes for recipe in recipes) or [],
            lowering_recipe=_combined_lowering(lowering),
            executorch_backend_config=deepcopy(config),
        )


def _all(lists: Iterable[list[Any] | None]) -> list[Any] | None:
    return [item for own in lists for item in own or ()] or None


def _combined_quantization(recipes: Sequence[QuantizationRecipe]) -> QuantizationRecipe | None:
    quantizers = _all(recipe.quantizers for recipe in recipes)
    configs = _all(recipe.ao_quantization_configs for recipe in recipes)
    return QuantizationRecipe(quantizers, configs) if quantizers or configs else None


def _combined_lowering(recipes: Sequence[LoweringRecipe]) -> LoweringRecipe | None:
    partitioners = _all(recipe.partitioners for recipe in recipes)
    passes = _all(recipe.edge_transform_passes for recipe in recipes)
    manager_passes = _all(recipe.edge_manager_transform_passes for recipe in recipes)
    config = next((recipe.edge_compile_config for recipe in recipes if recipe.edge_compile_config), None)
    if not (partitioners or passes or manager_passes):
        return None
    return LoweringRecipe(partitioners, passes, manager_passes, config or EdgeCompileConfig())
