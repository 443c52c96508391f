"""A model, backends and recipes -> a program of each pair, not yet measured, and what the model itself computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from delegraph.aot.arguments import check_list
from delegraph.aot.delegation.backends import Backend
from delegraph.aot.lower import lower
from delegraph.aot.quantize.recipes import RecipeOrRules, Rules, rules_from
from delegraph.aot.quantize.request import CalibrationData
from delegraph.aot.quantized_model import quantize
from delegraph.comparison.result import Compared
from delegraph.errors import DelegraphError, LoweringError
from delegraph.plugins.plugin_spec import PluginSpec, named_plugins, plugin_spec

__all__ = ["BackendsOfOne", "backends_of", "candidates", "inputs_of", "outputs_of"]

BackendsOfOne: TypeAlias = "str | Sequence[Backend] | None"
"""Backends in order of priority, also as the command line has them: `"npu,cpu"`; `""` and `[]` are kernels alone."""
Programs: TypeAlias = Mapping[str, ExportedProgram]


def candidates(
    programs: Programs,
    backends: Sequence[list[Backend]],
    recipes: Sequence[RecipeOrRules],
    calibration_data: CalibrationData | None,
    started: Callable[[str], object],
) -> Iterator[Compared]:
    """Each recipe for each of `backends`; `started` is told which one is lowered now.

    `calibration_data` is by method. What cannot be lowered is without `lowered`, and its `problem` says why.
    """
    quantized = _Quantized(programs, calibration_data)
    for one in backends:
        for recipe in recipes:
            names, text = _names(one), _text(recipe)
            started(f"lowering {names}, {text}")
            try:
                yield Compared(names, text, lowered=lower(quantized.programs(one, recipe), backends=one))
            except DelegraphError as error:
                yield Compared(names, text, problem=str(error))


def backends_of(given: BackendsOfOne) -> list[Backend]:
    """The backends as `lower` takes them. Raises `PluginError` for text that is malformed, `LoweringError` for what is
    no list."""
    if not isinstance(given, str):
        check_list("a candidate", given)
        return list(given or ())
    return [*named_plugins(given)]


class _Quantized:
    """The programs by each recipe: those of weights alone, which are the same for all backends, quantized once."""

    def __init__(self, programs: Programs, calibration_data: CalibrationData | None) -> None:
        self._programs, self._data = programs, calibration_data
        self._by_recipe: dict[Rules, Programs] = {}

    def programs(self, backends: list[Backend], recipe: RecipeOrRules) -> Programs:
        rules = rules_from(recipe)
        if all(one.is_float for one in rules.recipes):
            return self._programs
        if rules in self._by_recipe:
            return self._by_recipe[rules]
        made = quantize(self._programs, self._data, recipe=recipe, backends=backends)
        if all(one.weight_only for one in rules.recipes):
            self._by_recipe[rules] = made
        return made


def _names(backends: Sequence[Backend]) -> str:
    named = map(plugin_spec, backends)
    return ",".join(str(one) if isinstance(one, PluginSpec) else type(one).__name__ for one in named) or "kernels alone"


def _text(recipe: RecipeOrRules) -> str:
    if not isinstance(recipe, Mapping):
        return recipe if isinstance(recipe, str) else recipe.text
    rules = ((rule if isinstance(rule, str) else rule.__name__, _text(one)) for rule, one in recipe.items())
    return ", ".join(f"{rule}: {one}" for rule, one in rules)


# ---- the model itself ----------------------------------------------------------------------------------------------


def inputs_of(program: ExportedProgram) -> list[torch.Tensor]:
    """The example tensors that the program was exported with, in its order. Raises `LoweringError` without any."""
    if program.example_inputs is None:
        raise LoweringError("the program has no example inputs to run it on: export the model again")
    return [leaf for leaf in pytree.tree_leaves(program.example_inputs) if isinstance(leaf, torch.Tensor)]


def outputs_of(program: ExportedProgram) -> list[Any]:
    """What torch computes of the example inputs, flat; states of the model stay as they are."""
    args, kwargs = deepcopy(program.example_inputs or ((), {}))
    module = program.module()
    states = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with torch.no_grad():
        return pytree.tree_leaves(torch.func.functional_call(module, states, args, dict(kwargs)))
