"""What the user wrote for `recipe=` -> a `Recipe` for each part of the model: how its values and weights are stored.

A recipe is a row of `RECIPES`, with options: `"int4_weight_only{group_size=64}"`. Several of them are rules, by the
name of a module or its type; the first that fits a call decides:

    {"encoder.*": "float", nn.LayerNorm: "float", "head": "int8_dynamic", "default": "int8"}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias

import torch
from torch.fx import Node

from delegraph.errors import LoweringError, UnknownOption
from delegraph.plugins.discovery import did_you_mean
from delegraph.plugins.plugin_spec import parse_plugin

__all__ = ["RECIPES", "Recipe", "RecipeOrRules", "Rules", "recipe_named", "rules_from"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a part of a model is quantized.

    activation_bits: 8 or 16, None where values stay float. dynamic: a value's range is found when the model runs.
    weight_bits: 8 or 4, None where weights stay float. weight_axis: a scale for each `"channel"`, or for the whole
    `"tensor"`. group_size: a scale for so many weights of a row; 0 for a whole row. observer: how ranges of values are
    found (`observers.OBSERVERS`). percentile: the share of values, in percent, that observer "percentile" keeps.
    reduce_range: weights of 8 bits are -63 to 63, of which no two products with values of 8 bits exceed 16 bits.
    """

    name: str
    activation_bits: int | None = None
    weight_bits: int | None = None
    dynamic: bool = False
    weight_axis: Literal["channel", "tensor"] = "channel"
    group_size: int = 0
    observer: str = "histogram"
    percentile: float = 99.99
    reduce_range: bool = False

    @property
    def text(self) -> str:
        """What `recipe_named` makes it from: the name, and the options that are not the row's."""
        row = RECIPES.get(self.name, self)
        changed = [f.name for f in fields(self) if getattr(self, f.name) != getattr(row, f.name)]
        options = ", ".join(f"{name}={str(getattr(self, name)).lower()}" for name in changed)
        return f"{self.name}{{{options}}}" if options else self.name

    @property
    def weight_only(self) -> bool:
        """Whether values stay float: no quantizer is asked."""
        return self.activation_bits is None

    @property
    def is_float(self) -> bool:
        """Whether nothing is quantized."""
        return self.activation_bits is None and self.weight_bits is None


RECIPES: Final[Mapping[str, Recipe]] = {
    recipe.name: recipe
    for recipe in (
        Recipe("float"),
        Recipe("int8", 8, 8),
        Recipe("int8_per_tensor", 8, 8, weight_axis="tensor"),
        Recipe("int8_dynamic", 8, 8, dynamic=True),
        Recipe("int8_weight_only", None, 8),
        Recipe("int4_weight_only", None, 4, group_size=32),
        Recipe("int8_dynamic_int4_weight", 8, 4, dynamic=True, group_size=32),
        Recipe("int16x8", 16, 8, observer="minmax"),
    )
}

_OPTIONS: Final = {
    "float": (),
    "int8": ("observer", "percentile", "reduce_range"),
    "int8_per_tensor": ("observer", "percentile", "reduce_range"),
    "int8_dynamic": ("reduce_range",),
    "int8_weight_only": ("group_size",),
    "int4_weight_only": ("group_size",),
    "int8_dynamic_int4_weight": ("group_size",),
    "int16x8": ("observer", "percentile"),
}
"""What may be set of each."""

_OBSERVERS: Final = ("histogram", "minmax", "moving_average", "percentile")

RecipeOrRules: TypeAlias = "str | Recipe | Mapping[str | type[torch.nn.Module], str | Recipe]"
"""One recipe for the whole model, or recipes by module name (a shell's pattern), by module type, and `"default"`."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Which recipe a call gets: the first rule that fits one of the modules that it stands in, else `default`."""

    default: Recipe
    rules: Sequence[tuple[str | type[torch.nn.Module], Recipe]] = ()

    def recipe_of(self, node: Node) -> Recipe:
        """The recipe of a call."""
        stack = [(str(path), _type_name(kind)) for path, kind in (node.meta.get("nn_module_stack") or {}).values()]
        return next((recipe for rule, recipe in self.rules if _fits(rule, stack)), self.default)

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """Each recipe once, that of the first rule first."""
        return tuple(dict.fromkeys([*(recipe for _, recipe in self.rules), self.default]))


def recipe_named(text: str | Recipe) -> Recipe:
    """`"int4_weight_only{group_size=64}"` as a recipe. Raises `LoweringError` for a name or value that is none,
    `UnknownOption` for an option."""
    if isinstance(text, Recipe):
        return text
    if not isinstance(text, str):
        raise LoweringError(f"a recipe is a name, such as 'int8', not {text!r}")
    written = parse_plugin(text)
    if written.name not in RECIPES:
        raise LoweringError(
            f"there is no recipe {written.name!r}; recipes are {', '.join(RECIPES)}"
            f"{did_you_mean(written.name, RECIPES)}"
        )
    known = _OPTIONS[written.name]
    for option in written.options:
        if option not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no options"
            raise UnknownOption(f"recipe {written.name!r} {takes}, not {option!r}{did_you_mean(option, known)}")
    recipe = replace(RECIPES[written.name], **written.options)
    _check(recipe)
    return recipe


def _check(recipe: Recipe) -> None:
    if recipe.observer not in _OBSERVERS:
        near = did_you_mean(str(recipe.observer), _OBSERVERS)
        raise LoweringError(f"recipe {recipe.name!r}: observer is one of {', '.join(_OBSERVERS)}{near}")
    size = recipe.group_size
    if not isinstance(size, int) or size < 0 or (recipe.weight_bits == 4 and size % 2):
        even = "an even number, two weights to a byte" if recipe.weight_bits == 4 else "a number"
        raise LoweringError(f"recipe {recipe.name!r}: group_size is {even}, or 0 for whole rows, not {size!r}")
    if not isinstance(recipe.reduce_range, bool):
        raise LoweringError(f"recipe {recipe.name!r}: reduce_range is true or false, not {recipe.reduce_range!r}")
    if not isinstance(recipe.percentile, (int, float)) or not 50 < recipe.percentile <= 100:
        raise LoweringError(f"recipe {recipe.name!r}: percentile is above 50 and at most 100, not {recipe.percentile}")


def rules_from(given: RecipeOrRules) -> Rules:
    """What the user wrote as rules. Raises as `recipe_named`, and for a mapping without `"default"`."""
    if not isinstance(given, Mapping):
        return Rules(recipe_named(given))
    if "default" not in given:
        raise LoweringError('recipe has rules, but none for the rest of the model: add "default", such as "float"')
    for rule in given:
        if not isinstance(rule, str) and not (isinstance(rule, type) and issubclass(rule, torch.nn.Module)):
            raise LoweringError(f"a rule of recipe is for a module's name, a pattern or a type, not for {rule!r}")
    rules = tuple((rule, recipe_named(recipe)) for rule, recipe in given.items() if rule != "default")
    return Rules(recipe_named(given["default"]), rules)


def _fits(rule: str | type[torch.nn.Module], stack: Sequence[tuple[str, str]]) -> bool:
    if isinstance(rule, str):
        return any(fnmatchcase(path, rule) for path, _ in stack)
    return any(kind == _type_name(rule) for _, kind in stack)


def _type_name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else str(kind)


assert {field.name for field in fields(Recipe)} >= {option for options in _OPTIONS.values() for option in options}
