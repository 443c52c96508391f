"""ExecuTorch's `executorch.export.recipe_provider`: what a backend implements to offer recipes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from delegraph_executorch.export.recipe import ExportRecipe, RecipeType

__all__ = ["BackendRecipeProvider"]


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
