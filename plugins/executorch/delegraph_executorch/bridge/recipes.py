"""A recipe in ExecuTorch's own classes -> the same in ours: what the recipe providers of its backends make."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from delegraph_executorch.bridge.settings import as_own, own_backend_config, own_edge_config
from delegraph_executorch.export.recipe import (
    AOQuantizationConfig,
    ExportRecipe,
    LoweringRecipe,
    Mode,
    QuantizationRecipe,
)
from delegraph_executorch.export.types import StageType

__all__ = ["own_recipe"]


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
