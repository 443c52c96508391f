"""The user's recipe, backends or quantizers, and data -> a `Quantization` for each method that has any."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any, Final, TypeAlias, TypeGuard

import torch
from torch.fx import Node

from delegraph.aot.arguments import (
    check_list,
    check_method_names,
    for_methods,
    made_by_name,
    read_plugins,
    unique_name,
)
from delegraph.aot.quantize.recipes import Recipe, Rules
from delegraph.aot.quantize.shared_buffers import CommonBuffers
from delegraph.aot.quantize.torchao import check_torchao
from delegraph.aot.quantize.weights.weight_only import StoredWeights
from delegraph.errors import LoweringError, restated
from delegraph.interfaces.lowering import Partitioner
from delegraph.interfaces.quantizer import Quantizer
from delegraph.plugins.plugin_spec import PluginName, PluginSpec
from delegraph.plugins.registry import PluginRegistry

__all__ = [
    "Batch",
    "CalibrationData",
    "QuantizationRequest",
    "Quantizers",
    "batches_by_method",
    "check_limits",
    "not_a_batch",
    "quantization_by_method",
    "quantization_by_recipe",
    "quantization_for_training",
    "with_examples",
]

NamedQuantizer: TypeAlias = "PluginName | Quantizer"
"""A quantizer, or an installed one by name, `"npu"`, `"npu{recipe=int16x8}"`, `("npu", {"recipe": "int16x8"})`."""

Quantizers: TypeAlias = "Iterable[NamedQuantizer] | Mapping[str, Iterable[NamedQuantizer]]"
"""Quantizers in order of priority, for all methods or by method name."""

Batch: TypeAlias = "Sequence[object] | Mapping[str, object]"
"""The arguments of one call: positional ones as a tuple, or all of them by name."""

CalibrationData: TypeAlias = "Iterable[Batch] | Mapping[str, Iterable[Batch]]"
"""Batches to run, of the one method or by method name; a `DataLoader` is such an iterable."""


GENERIC: Final = "generic"
"""The name of the core's own quantizer in reports."""

_BY_QUANTIZERS: Final = Rules(Recipe("quantizers", 8))
"""The recipe of a model whose quantizers were named: theirs, weights included."""


@dataclass(frozen=True, slots=True)
class QuantizationRequest:
    """How one method is quantized: by whom, and on what data.

    With `rules` a quantizer annotates the calls of its own recipe alone, which `recipes` has by the quantizer's name.
    `keep_float` layers that lose most stay float, and all that by themselves fall below `min_sqnr` dB. report: measure.
    Methods with the same `stored_weights` share the stored codes of their weights; so it is with `shared_buffers`.
    """

    quantizers: Mapping[str, Quantizer]
    batches: Iterable[Batch] | None
    rules: Rules = _BY_QUANTIZERS
    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    keep_float: int = 0
    min_sqnr: float | None = None
    report: bool = False
    stored_weights: StoredWeights = field(default_factory=StoredWeights)
    shared_buffers: CommonBuffers = field(default_factory=CommonBuffers)

    @property
    def measures_first(self) -> bool:
        """Whether it is measuring that decides what stays float."""
        return self.keep_float > 0 or self.min_sqnr is not None

    def recipe_of(self, node: Node) -> Recipe:
        """The recipe of a call."""
        return self.rules.recipe_of(node)

    def may_annotate(self, quantizer: str, node: Node) -> bool:
        """Whether a call is for the quantizer of this name."""
        return not self.recipes or self.recipes[quantizer] == self.rules.recipe_of(node)


def check_limits(keep_float: object, min_sqnr: object) -> None:
    """Raise `LoweringError` if these do not say what stays float, as `Quantization` has them."""
    if not isinstance(keep_float, int) or isinstance(keep_float, bool) or keep_float < 0:
        raise LoweringError(f"keep_float is how many layers stay float, 0 or more, not {keep_float!r}")
    is_number = isinstance(min_sqnr, int | float) and not isinstance(min_sqnr, bool) and not isnan(min_sqnr)
    if min_sqnr is not None and not is_number:
        raise LoweringError(f"min_sqnr is a number of dB, such as 20.0, or None, not {min_sqnr!r}")


def quantization_by_recipe(
    rules: Rules,
    backends: Mapping[str, Sequence[PluginSpec | Partitioner]],
    calibration_data: CalibrationData | None,
    methods: Collection[str],
    plugins: PluginRegistry,
    *,
    keep_float: int = 0,
    min_sqnr: float | None = None,
) -> dict[str, QuantizationRequest]:
    """How each method is quantized by recipes, with the quantizers of its `backends`.

    Raises as `quantization_by_method`.
    """
    check_torchao()
    batches = batches_by_method(calibration_data, methods)
    needs_data = [r.name for r in rules.recipes if not r.weight_only and not r.dynamic]
    if keep_float or min_sqnr is not None:
        needs_data.append("keep_float")
    by_method: dict[str, QuantizationRequest] = {}
    weights, buffers = StoredWeights(), CommonBuffers()
    for method in methods:
        if needs_data and method not in batches:
            raise LoweringError(
                f"method {method!r} has no calibration data, which {needs_data[0]!r} needs: give typical inputs,"
                " calibration_data=[(x,), …], or with several methods {method: [(x,), …]}; on the command line,"
                " --data calib.npz"
            )
        quantizers, recipes = _by_recipe(rules, backends[method], plugins)
        by_method[method] = QuantizationRequest(
            quantizers, batches.get(method), rules, recipes, keep_float, min_sqnr, True, weights, buffers
        )
    return by_method


def quantization_for_training(
    rules: Rules, backends: Sequence[PluginSpec | Partitioner], plugins: PluginRegistry
) -> QuantizationRequest:
    """How a model is trained to be quantized. Raises `LoweringError` for a recipe that training has no part in."""
    check_torchao()
    for recipe in rules.recipes:
        if not recipe.is_float and (recipe.weight_only or recipe.dynamic):
            raise LoweringError(
                f"recipe {recipe.name!r} finds no ranges ahead of time, so that there is nothing to train: quantize the"
                " trained model with it"
            )
    quantizers, recipes = _by_recipe(rules, backends, plugins)
    return QuantizationRequest(quantizers, None, rules, recipes)


def _by_recipe(
    rules: Rules, backends: Sequence[PluginSpec | Partitioner], plugins: PluginRegistry
) -> tuple[dict[str, Quantizer], dict[str, Recipe]]:
    """For each recipe, the quantizers of the backends in their order, or the core's; and whose recipe is which."""
    quantizers: dict[str, Quantizer] = {}
    recipes: dict[str, Recipe] = {}
    for recipe in rules.recipes:
        if recipe.weight_only:
            continue
        own = _of_backends(recipe, backends, plugins)
        for name, quantizer in own.items():
            unique = unique_name(name, quantizers)
            quantizers[unique], recipes[unique] = quantizer, recipe
    return quantizers, recipes


def _of_backends(
    recipe: Recipe, backends: Sequence[PluginSpec | Partitioner], plugins: PluginRegistry
) -> dict[str, Quantizer]:
    """The quantizers of the backends that can do the recipe. Raises `LoweringError` with all reasons where none can."""
    from delegraph.aot.quantize.annotation.generic import GenericQuantizer

    able: dict[str, Quantizer] = {}
    refused: list[LoweringError] = []
    quantizers = plugins.names("quantizers")
    for backend in backends or (None,):
        name = backend.name if isinstance(backend, PluginSpec) else None
        if name in quantizers and recipe.weight_bits == 8:
            try:
                able[name] = plugins.create("quantizers", name, {"recipe": recipe.text_or_itself})
            except LoweringError as reason:
                refused.append(reason)
        else:  # four bits are packed by the core, which quantizes the values beside them
            able.setdefault(GENERIC, GenericQuantizer(recipe))
    if not able:
        raise restated(refused[0], "\n".join(map(str, refused))) from refused[0]
    return able


def quantization_by_method(
    quantizers: Quantizers | None,
    calibration_data: CalibrationData | None,
    methods: Collection[str],
    plugins: PluginRegistry,
    *,
    keep_float: int = 0,
    min_sqnr: float | None = None,
    report: bool = False,
) -> dict[str, QuantizationRequest]:
    """The methods that have quantizers, with their data.

    Raises `LoweringError` for a key that is not a method, for quantizers without data, for data without quantizers and
    where torchao is missing; `PluginError` for a quantizer that cannot be made.
    """
    by_method = {method: own for method, own in _quantizers(quantizers, methods, plugins).items() if own}
    batches = batches_by_method(calibration_data, methods)
    if by_method:
        check_torchao()
    for method in by_method:
        if method not in batches:
            raise LoweringError(
                f"method {method!r} has quantizers ({', '.join(by_method[method])}) but no calibration data: give"
                " typical inputs, calibration_data=[(x,), …], or with several methods {method: [(x,), …]}"
            )
    for method in batches:
        if method not in by_method:
            raise LoweringError(
                f"method {method!r} has calibration data but no quantizers: name them, quantizers=[…], or leave the"
                " data out"
            )
    shared = CommonBuffers()
    return {
        method: QuantizationRequest(
            own, batches[method], shared_buffers=shared, keep_float=keep_float, min_sqnr=min_sqnr, report=report
        )
        for method, own in by_method.items()
    }


def _quantizers(
    quantizers: Quantizers | None, methods: Collection[str], plugins: PluginRegistry
) -> dict[str, dict[str, Quantizer]]:
    def made(name: str, own: Iterable[NamedQuantizer] | None) -> dict[str, Quantizer]:
        return made_by_name(name, read_plugins(name, own), "quantizers", _is_quantizer, plugins)

    return for_methods("quantizers", quantizers, methods, made)


def _is_quantizer(value: object) -> TypeGuard[Quantizer]:
    return all(callable(getattr(value, hook, None)) for hook in ("annotate", "validate"))


def batches_by_method(calibration_data: CalibrationData | None, methods: Collection[str]) -> dict[str, Iterable[Batch]]:
    """Calibration data, for one method as a list or for any by name. Raises `LoweringError` for a list of several
    methods and for what is no list."""
    if calibration_data is None:
        return {}
    if isinstance(calibration_data, Mapping):
        check_method_names("calibration_data", calibration_data, methods)
        for method, own in calibration_data.items():
            check_list(f"calibration_data[{method!r}]", own)
        return {method: own for method, own in calibration_data.items() if own is not None}
    check_list("calibration_data", calibration_data)
    if len(methods) > 1:
        raise LoweringError(
            f"calibration_data is a list, but there are several methods ({', '.join(sorted(methods))}): write"
            " {method: [(x,), …]}"
        )
    return dict.fromkeys(methods, calibration_data)


def with_examples(model: object, data: object, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """Batches, and example arguments: those that are given, and of a module that has none its first batch.

    `model`, `args` and `kwargs` are as for `lower`; what has no batches is left to those who say so. Raises
    `LoweringError` for a first batch that is none, and where there is none.
    """
    if not isinstance(model, Mapping):
        if args is not None or kwargs is not None or not isinstance(model, torch.nn.Module):
            return data, args, kwargs
        if not isinstance(data, Mapping):
            return _with_example("calibration batch 0", data)
        own, args, kwargs = _with_example("calibration batch 0", data.get("forward"))
        return {**data, "forward": own}, args, kwargs
    if not isinstance(data, Mapping) or not all(part is None or isinstance(part, Mapping) for part in (args, kwargs)):
        return data, args, kwargs
    batches, by_position, by_name = dict(data), dict(args or {}), dict(kwargs or {})
    for method in data:
        if isinstance(model.get(method), torch.nn.Module) and method not in by_position and method not in by_name:
            which = f"method {method!r}, calibration batch 0"
            batches[method], by_position[method], by_name[method] = _with_example(which, data[method])
    return batches, by_position or args, by_name or kwargs


def _with_example(which: str, data: object) -> tuple[Any, tuple[Any, ...] | None, dict[str, Any] | None]:
    """The batches of a method, and the positional and named arguments of the first of them."""
    if data is None or isinstance(data, (str, Mapping)) or not hasattr(data, "__iter__"):
        return data, None, None
    batches = list(data)
    if not batches:
        raise LoweringError("the calibration data is empty; give a few typical inputs")
    first = batches[0]
    if isinstance(first, Mapping):
        return batches, (), dict(first)
    if isinstance(first, (tuple, list)):
        return batches, tuple(first), None
    raise not_a_batch(which, first)


def not_a_batch(which: str, batch: object) -> LoweringError:
    """The error to raise for `batch`, which messages call `which`."""
    return LoweringError(
        f"{which} is a {type(batch).__name__}; a batch is a tuple of arguments (for one write (x,)) or a mapping of all"
        " by name"
    )
