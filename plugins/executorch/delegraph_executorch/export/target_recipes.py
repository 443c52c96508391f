"""ExecuTorch's `executorch.export.target_recipes`: recipes for phones, made of those that its own backends offer."""

from __future__ import annotations

from typing import Any

from delegraph_executorch.bridge.imports import executorch
from delegraph_executorch.bridge.recipes import own_recipe
from delegraph_executorch.export.recipe import ExportRecipe

__all__ = ["get_android_recipe", "get_ios_recipe"]


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
