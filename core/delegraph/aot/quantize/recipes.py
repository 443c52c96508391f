"""The user's `recipe=` -> a `Recipe` for each part of the model: how its values and weights are stored.

A recipe is a row of `RECIPES`, with options: `"int4_weight_only{group_size=64}"`, or a `Recipe` of the user's own.
Several of them are rules, by the name of a module or its type; the first that fits a call decides:

    {"encoder.*": "float", nn.LayerNorm: "float", "head": "int8_dynamic", "default": "int8"}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from delegraph.aot.module_stack import module_stack
from delegraph.errors import LoweringError, UnknownOption
from delegraph.plugins.discovery import did_you_mean
from delegraph.plugins.plugin_spec import parse_plugin

__all__ = ["RECIPES", "Recipe", "RecipeOrRules", "Rules", "check_rules", "recipe_named", "rules_from"]

_PERCENTILE: Final = 99.99
"""The share of values that observer "percentile" keeps, in percent, where the recipe does not say."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a part of a model is quantized.

    activation_bits: 8 or 16, None where values stay float. dynamic: a value's range is found when the model runs.
    weight_bits: 8 or 4, None where weights stay float. weight_axis: a scale for each `"channel"`, or for the whole
    `"tensor"`. group_size: a scale for so many weights of a row; 0 for a whole row. observer: how ranges of values are
    found (`observers.OBSERVERS`). percentile: the share of values, in percent, that observer "percentile" keeps.
    reduce_range: weights of 8 bits are -63 to 63, of which no two products with values of 8 bits exceed 16 bits.

    Raises `LoweringError` that names the field for what it cannot be.
    """

    name: str
    activation_bits: int | None = None
    weight_bits: int | None = None
    dynamic: bool = False
    weight_axis: Literal["channel", "tensor"] = "channel"
    group_size: int = 0
    observer: str = "histogram"
    percentile: float = _PERCENTILE
    reduce_range: bool = False

    def __post_init__(self) -> None:
        for name, allowed, fits in _FIELDS:
            value = getattr(self, name)
            if not fits(self):
                near = did_you_mean(str(value), _WORDS.get(name, ()))
                raise LoweringError(f"recipe {self.name!r}: {name} is {allowed}, not {value!r}{near}")

    @property
    def text(self) -> str:
        """The name, and the fields that differ from the row of that name; see `text_or_itself`."""
        options = ", ".join(f"{name}={str(getattr(self, name)).lower()}" for name in self._changed)
        return f"{self.name}{{{options}}}" if options else self.name

    @property
    def text_or_itself(self) -> str | Recipe:
        """The text that `recipe_named` makes it from, or the recipe, which that takes too, where there is none."""
        is_row = self.name in RECIPES and set(self._changed) <= set(_OPTIONS[self.name])
        return self.text if is_row else self

    @property
    def _changed(self) -> list[str]:
        row = RECIPES.get(self.name) or Recipe(self.name)
        return [field.name for field in fields(self) if getattr(self, field.name) != getattr(row, field.name)]

    @property
    def weight_only(self) -> bool:
        """Whether values stay float: no quantizer is asked."""
        return self.activation_bits is None

    @property
    def is_float(self) -> bool:
        """Whether nothing is quantized."""
        return self.activation_bits is None and self.weight_bits is None


_WORDS: Final[Mapping[str, Sequence[str]]] = {
    "weight_axis": ("channel", "tensor"),
    "observer": ("histogram", "minmax", "moving_average", "percentile"),
}
"""Fields that are one of some words."""

_FIELDS: Final[Sequence[tuple[str, str, Callable[[Recipe], bool]]]] = (
    ("name", "a text", lambda recipe: isinstance(recipe.name, str)),
    ("activation_bits", "8, 16 or None", lambda recipe: recipe.activation_bits in (8, 16, None)),
    ("weight_bits", "8, 4 or None", lambda recipe: recipe.weight_bits in (8, 4, None)),
    ("dynamic", "true or false", lambda recipe: isinstance(recipe.dynamic, bool)),
    ("dynamic", "for values of 8 bits", lambda recipe: not recipe.dynamic or recipe.activation_bits == 8),
    *(
        (field, f"one of {', '.join(words)}", lambda recipe, field=field: getattr(recipe, field) in _WORDS[field])
        for field, words in _WORDS.items()
    ),
    ("group_size", "a number, or 0 for whole rows", lambda recipe: _is_count(recipe.group_size)),
    (
        "group_size",
        "an even number, two weights to a byte, or 0 for whole rows",
        lambda recipe: recipe.weight_bits != 4 or recipe.group_size % 2 == 0,
    ),
    ("percentile", "above 50 and at most 100", lambda recipe: _is_share(recipe.percentile)),
    ("reduce_range", "true or false", lambda recipe: isinstance(recipe.reduce_range, bool)),
)
"""For each field, the values that it may have, in words, and whether a recipe's is one of them."""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and 50 < value <= 100


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
"""The options of each recipe."""

RecipeOrRules: TypeAlias = "str | Recipe | Mapping[str | type[torch.nn.Module], str | Recipe]"
"""One recipe for the whole model, or recipes by module name (a shell's pattern), by module type, and `"default"`."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Which recipe a call gets: the first rule that fits one of the modules that it stands in, else `default`. Of the
    modules in bodies of control flow torch says no types: these are in `types`, by path."""

    default: Recipe
    rules: Sequence[tuple[str | type[torch.nn.Module], Recipe]] = ()
    types: Mapping[str, str] = field(default_factory=dict, compare=False)

    def recipe_of(self, node: Node) -> Recipe:
        """The recipe of a call."""
        stack = [(path, _type_name(kind) or self.types.get(path, "")) for path, kind in module_stack(node)]
        return next((recipe for rule, recipe in self.rules if _fits(rule, stack)), self.default)

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """Each recipe once, that of the first rule first."""
        return tuple(dict.fromkeys([*(recipe for _, recipe in self.rules), self.default]))


def recipe_named(text: str | Recipe) -> Recipe:
    """`"int4_weight_only{group_size=64}"` as a recipe; one that is one already stays. Raises `LoweringError` for a name
    or value that is none, and a percentile that nothing asks for; `UnknownOption` for an option."""
    recipe = text if isinstance(text, Recipe) else _row_with_options(text)
    if recipe.percentile != _PERCENTILE and recipe.observer != "percentile":
        raise LoweringError(
            f"recipe {recipe.name!r}: percentile is for observer 'percentile', and this one is {recipe.observer!r}:"
            " write observer=percentile too"
        )
    return recipe


def _row_with_options(text: object) -> Recipe:
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
    return replace(RECIPES[written.name], **written.options)


def rules_from(
    recipe_or_rules: RecipeOrRules | Rules, models: Iterable[torch.nn.Module | ExportedProgram] = ()
) -> Rules:
    """The user's recipe or rules as `Rules`, for these models; what was read already stays as it is. Raises as
    `recipe_named`, and for a mapping without `"default"`."""
    if isinstance(recipe_or_rules, Rules):
        return recipe_or_rules
    if not isinstance(recipe_or_rules, Mapping):
        return Rules(recipe_named(recipe_or_rules))
    if "default" not in recipe_or_rules:
        raise LoweringError('recipe has rules, but none for the rest of the model: add "default", such as "float"')
    for rule in recipe_or_rules:
        if not isinstance(rule, str) and not (isinstance(rule, type) and issubclass(rule, torch.nn.Module)):
            raise LoweringError(f"a rule of recipe is for a module's name, a pattern or a type, not for {rule!r}")
    rules = tuple((rule, recipe_named(recipe)) for rule, recipe in recipe_or_rules.items() if rule != "default")
    types = {
        path: _type_name(type(module))
        for model in models
        if isinstance(model, torch.nn.Module)
        for path, module in model.named_modules(remove_duplicate=False)
    }
    return Rules(recipe_named(recipe_or_rules["default"]), rules, types)


def check_rules(rules: Rules, models: Iterable[torch.nn.Module | ExportedProgram]) -> None:
    """Raise `LoweringError` for a rule by name, not by type, that fits no module of any of these models."""
    names = dict.fromkeys(name for model in models for name in _module_names(model))
    for rule, _ in rules.rules:
        if isinstance(rule, str) and not any(fnmatchcase(name, rule) for name in names):
            few = [name for name in names if name][:8]
            known = f"modules are {', '.join(few)}{', …' if len(names) > 9 else ''}" if few else "there are no modules"
            near = did_you_mean(rule, names)
            raise LoweringError(f"recipe has a rule for {rule!r}, but no module of that name: {known}{near}")


def _module_names(model: torch.nn.Module | ExportedProgram) -> Iterator[str]:
    if isinstance(model, torch.nn.Module):
        yield from (name for name, _ in model.named_modules(remove_duplicate=False))
        return
    for graph_module in model.graph_module.modules():
        for node in graph_module.graph.nodes if isinstance(graph_module, GraphModule) else ():
            yield from (path for path, _ in module_stack(node))


def _fits(rule: str | type[torch.nn.Module], stack: Sequence[tuple[str, str]]) -> bool:
    if isinstance(rule, str):
        return any(fnmatchcase(path, rule) for path, _ in stack)
    return any(kind == _type_name(rule) for _, kind in stack)


def _type_name(kind: object) -> str:
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else str(kind)


assert {field.name for field in fields(Recipe)} >= {option for options in _OPTIONS.values() for option in options}
