"""ExecuTorch's `executorch.export.recipe_registry`: backends by name -> who makes their recipes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from delegraph_executorch.bridge.recipes import own_recipe
from delegraph_executorch.export.recipe import ExportRecipe, RecipeType
from delegraph_executorch.export.recipe_provider import BackendRecipeProvider

__all__ = ["RecipeRegistry", "recipe_registry"]


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
