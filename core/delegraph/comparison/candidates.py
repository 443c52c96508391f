"""A model, backends and recipes -> a program of each pair, not yet measured, and the outputs of the model itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import TypeAlias

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from delegraph.aot.arguments import read_plugins
from delegraph.aot.delegation.backends import Backend
from delegraph.aot.lower import lower
from delegraph.aot.quantize.recipes import RecipeOrRules, Rules, rules_from
from delegraph.aot.quantize.request import CalibrationData
from delegraph.aot.quantized_model import quantize
from delegraph.comparison.result import Compared
from delegraph.errors import DelegraphError, LoweringError
from delegraph.interfaces.lowering import Partitioner
from delegraph.plugins.plugin_spec import PluginSpec, parse_plugins

__all__ = ["BackendsOfOne", "backends_of", "candidates", "inputs_of", "outputs_of"]

BackendsOfOne: TypeAlias = "str | Sequence[Backend] | None"
"""Backends in order of priority, also as the command line has them: `"npu,cpu"`; `""` and `[]` are kernels alone."""
Programs: TypeAlias = Mapping[str, ExportedProgram]


def candidates(
    programs: Programs,
    backends: Sequence[list[PluginSpec | Partitioner]],
    recipes: Sequence[RecipeOrRules],
    calibration_data: CalibrationData | None,
    started: Callable[[str], object],
) -> Iterator[Compared]:
    """Each recipe for each of `backends`; `started` is told which one is lowered now.

    `calibration_data` is by method. A candidate that cannot be lowered has no `lowered`, and its `problem` says why.
    """
    quantized = _Quantized(programs, calibration_data)
    for chosen in backends:
        for recipe in recipes:
            names, text = _names(chosen), _text(recipe)
            started(f"lowering {names}, {text}")
            try:
                yield Compared(names, text, lowered=lower(quantized.programs(chosen, recipe), backends=chosen))
            except DelegraphError as error:
                yield Compared(names, text, problem=str(error))


def backends_of(backends: BackendsOfOne) -> list[PluginSpec | Partitioner]:
    """The backends of one candidate. Raises `PluginError` for text that is malformed, `LoweringError` for what is no
    list."""
    return read_plugins("a candidate", parse_plugins(backends) if isinstance(backends, str) else backends)


class _Quantized:
    """The programs by each recipe: those of weights alone, which are the same for all backends, quantized once."""

    def __init__(self, programs: Programs, calibration_data: CalibrationData | None) -> None:
        self._programs, self._data = programs, calibration_data
        self._by_recipe: dict[Rules, Programs] = {}

    def programs(self, backends: list[PluginSpec | Partitioner], recipe: RecipeOrRules) -> Programs:
        rules = rules_from(recipe)
        if all(part.is_float for part in rules.recipes):
            return self._programs
        if rules in self._by_recipe:
            return self._by_recipe[rules]
        quantized = quantize(self._programs, self._data, recipe=rules, backends=backends)
        if all(part.weight_only for part in rules.recipes):
            self._by_recipe[rules] = quantized
        return quantized


def _names(backends: Sequence[PluginSpec | Partitioner]) -> str:
    names = (str(backend) if isinstance(backend, PluginSpec) else type(backend).__name__ for backend in backends)
    return ",".join(names) or "kernels alone"


def _text(recipe: RecipeOrRules) -> str:
    if not isinstance(recipe, Mapping):
        return recipe if isinstance(recipe, str) else recipe.text
    rules = ((rule if isinstance(rule, str) else rule.__name__, _text(own)) for rule, own in recipe.items())
    return ", ".join(f"{rule}: {text}" for rule, text in rules)


# ---- the model itself ----------------------------------------------------------------------------------------------


def inputs_of(program: ExportedProgram) -> list[torch.Tensor]:
    """The example tensors that the program was exported with, in its order. Raises `LoweringError` without any."""
    if program.example_inputs is None:
        raise LoweringError("the program has no example inputs to run it on: export the model again")
    return [leaf for leaf in pytree.tree_leaves(program.example_inputs) if isinstance(leaf, torch.Tensor)]


def outputs_of(program: ExportedProgram) -> list[object]:
    """torch's outputs for the example inputs, flat; states of the model stay as they are."""
    args, kwargs = deepcopy(program.example_inputs or ((), {}))
    module = program.module()
    states = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with torch.no_grad():
        return pytree.tree_leaves(torch.func.functional_call(module, states, args, dict(kwargs)))
