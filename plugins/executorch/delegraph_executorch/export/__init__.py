"""ExecuTorch's `executorch.export`: a model and a recipe -> a program, by way of stages."""

from __future__ import annotations

from delegraph_executorch.export.export import ExportSession, export
from delegraph_executorch.export.recipe import (
    AOQuantizationConfig,
    ExportRecipe,
    LoweringRecipe,
    QuantizationRecipe,
    RecipeType,
)
from delegraph_executorch.export.recipe_provider import BackendRecipeProvider
from delegraph_executorch.export.recipe_registry import recipe_registry
from delegraph_executorch.export.types import StageType

__all__ = [
    "AOQuantizationConfig",
    "BackendRecipeProvider",
    "ExportRecipe",
    "ExportSession",
    "LoweringRecipe",
    "QuantizationRecipe",
    "RecipeType",
    "StageType",
    "export",
    "recipe_registry",
]
