"""ExecuTorch's `executorch.export`: what an `ExportSession` does, as data, by stage; and who makes it."""

from __future__ import annotations

from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, is_dataclass
from enum import Enum, EnumMeta
from typing import Any, ClassVar, cast

from delegraph.aot import EdgeCompileConfig, ExecutorchBackendConfig
from delegraph_executorch.bridge.imports import executorch
from delegraph_executorch.bridge.settings import as_own, own_backend_config, own_edge_config


class StageType(str, Enum):  # noqa: UP042 - its text is "StageType.QUANTIZE", as in ExecuTorch
    """A stage of an `ExportSession`."""

    SOURCE_TRANSFORM = "source_transform"
    QUANTIZE = "quantize"
    TORCH_EXPORT = "torch_export"
    TO_EDGE_TRANSFORM_AND_LOWER = "to_edge_transform_and_lower"
    TO_EDGE = "to_edge"
    EDGE_PROGRAM_MANAGER_TRANSFORM = "edge_program_manager_transform"
    TO_BACKEND = "to_backend"
    TO_EXECUTORCH = "to_executorch"


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
        from delegraph_executorch.export.recipe import recipe_registry

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


class BackendRecipeProvider(ABC):
    """Makes a backend's recipes; `recipe_registry.register_backend_recipe_provider(provider)` offers them."""

    @property
    @abstractmethod
    def backend_name(self) -> str:
        """The name that the backend's `RecipeType` gives as well."""

    @abstractmethod
    def get_supported_recipes(self) -> Sequence[RecipeType]:
        """The recipes that it makes."""

    @abstractmethod
    def create_recipe(self, recipe_type: RecipeType, **kwargs: Any) -> ExportRecipe | None:
        """The recipe, with the backend's own settings `kwargs`; None if it does not make that one."""

    def supports_recipe(self, recipe_type: RecipeType) -> bool:
        """Whether it makes that one."""
        return recipe_type in self.get_supported_recipes()


def own_recipe(recipe: Any) -> Any:
    """`recipe`, or the same as our `ExportRecipe`. Its partitioners and quantizers stay ExecuTorch's."""
    if isinstance(recipe, ExportRecipe) or not is_dataclass(recipe):
        return recipe
    given: Any = recipe
    return as_own(
        ExportRecipe,
        given,
        quantization_recipe=_own_quantization(given.quantization_recipe),
        lowering_recipe=_own_lowering(given.lowering_recipe),
        executorch_backend_config=given.executorch_backend_config
        and own_backend_config(given.executorch_backend_config),
        pipeline_stages=given.pipeline_stages and [StageType[stage.name] for stage in given.pipeline_stages],
        mode=Mode[given.mode.name],
    )


def _own_quantization(given: Any) -> QuantizationRecipe | None:
    if given is None:
        return None
    configs = given.ao_quantization_configs
    return as_own(
        QuantizationRecipe,
        given,
        ao_quantization_configs=configs and [as_own(AOQuantizationConfig, config) for config in configs],
    )


def _own_lowering(given: Any) -> LoweringRecipe | None:
    if given is None:
        return None
    return as_own(LoweringRecipe, given, edge_compile_config=own_edge_config(given.edge_compile_config))


class RecipeRegistry:
    """The process's providers; every `RecipeRegistry()` is the same one."""

    _instance: ClassVar[RecipeRegistry | None] = None
    _initialized: ClassVar[bool] = True
    _providers: dict[str, BackendRecipeProvider]

    def __new__(cls) -> RecipeRegistry:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance._providers = {}
        return cls._instance

    def register_backend_recipe_provider(self, provider: BackendRecipeProvider) -> None:
        """Offer the provider's recipes; of two for one backend the later is asked."""
        self._providers[provider.backend_name] = provider

    def create_recipe(self, recipe_type: RecipeType, backend: str, **kwargs: Any) -> ExportRecipe | None:
        """What the backend's provider makes. Raises `ValueError` for a backend without one."""
        return cast("ExportRecipe | None", own_recipe(self._provider(backend).create_recipe(recipe_type, **kwargs)))

    def get_supported_recipes(self, backend: str) -> Sequence[RecipeType]:
        """What the backend's provider makes. Raises `ValueError` for a backend without one."""
        return self._provider(backend).get_supported_recipes()

    def list_backends(self) -> Sequence[str]:
        """The backends that have a provider."""
        return list(self._providers)

    def _provider(self, backend: str) -> BackendRecipeProvider:
        if backend not in self._providers:
            raise ValueError(
                f"Backend '{backend}' not available. Available: {self.list_backends()}; import the package that"
                " registers its recipes"
            )
        return self._providers[backend]


recipe_registry = RecipeRegistry()


def get_ios_recipe(target_config: str = "ios-arm64-coreml-fp16", **kwargs: Any) -> ExportRecipe:
    """Core ML, in 32 or 16 bits with XNNPACK for the rest, or in 8 bits: "ios-arm64-coreml-fp32", "-fp16", "-int8".

    `kwargs` are the backends' own settings. Raises `ValueError` for another target or where coremltools does not
    compile, `PluginUnavailable` where the wheel `executorch` is not installed.
    """
    return _made("get_ios_recipe", target_config, kwargs)


def get_android_recipe(target_config: str = "android-arm64-snapdragon-fp16", **kwargs: Any) -> ExportRecipe:
    """Qualcomm's AI Engine Direct in 16 bits, with XNNPACK for the rest. Raises as `get_ios_recipe`."""
    return _made("get_android_recipe", target_config, kwargs)


def _made(function: str, target: str, kwargs: dict[str, Any]) -> ExportRecipe:
    recipe: ExportRecipe = own_recipe(executorch(f"export.target_recipes:{function}")(target, **kwargs))
    return recipe
