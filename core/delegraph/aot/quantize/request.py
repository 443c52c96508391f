"""What the user wrote for `quantizers=` and `calibration_data=` -> a `Quantization` for each method that has any."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from delegraph.aot.arguments import check_list, check_method_names, made_by_name
from delegraph.aot.quantize.torchao import check_torchao
from delegraph.errors import LoweringError
from delegraph.interfaces.quantizer import Quantizer
from delegraph.plugins.registry import PluginRegistry

__all__ = ["Batch", "CalibrationData", "Quantization", "Quantizers", "quantization_by_method", "with_example"]

NamedQuantizer: TypeAlias = "str | tuple[str, Mapping[str, Any]] | Quantizer"
"""An installed quantizer by name, `"npu"`, `"npu{bits=8}"`, `("npu", {"bits": 8})`, or a quantizer."""

Quantizers: TypeAlias = "Iterable[NamedQuantizer] | Mapping[str, Iterable[NamedQuantizer]]"
"""Quantizers in order of priority, for all methods or by method name."""

Batch: TypeAlias = "tuple[Any, ...] | list[Any] | Mapping[str, Any]"
"""The arguments of one call: positional ones as a tuple, or all of them by name."""

CalibrationData: TypeAlias = "Iterable[Batch] | Mapping[str, Iterable[Batch]]"
"""Batches to run, of the one method or by method name; a `DataLoader` is such an iterable."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """How one method is quantized: by whom, and on what data."""

    quantizers: Mapping[str, Quantizer]
    batches: Iterable[Batch]


def quantization_by_method(
    quantizers: Quantizers | None,
    calibration_data: CalibrationData | None,
    methods: Collection[str],
    plugins: PluginRegistry,
) -> dict[str, Quantization]:
    """The methods that have quantizers, with their data.

    Raises `LoweringError` for a key that is not a method, for quantizers without data, for data without quantizers and
    where torchao is missing; `PluginError` for a quantizer that cannot be made.
    """
    made = {method: own for method, own in _quantizers(quantizers, methods, plugins).items() if own}
    batches = _batches(calibration_data, methods)
    if made:
        check_torchao()
    for method in made:
        if method not in batches:
            raise LoweringError(
                f"method {method!r} has quantizers ({', '.join(made[method])}) but no calibration data: give typical"
                " inputs, calibration_data=[(x,), …], or with several methods {method: [(x,), …]}"
            )
    for method in batches:
        if method not in made:
            raise LoweringError(
                f"method {method!r} has calibration data but no quantizers: name them, quantizers=[…], or leave the"
                " data out"
            )
    return {method: Quantization(own, batches[method]) for method, own in made.items()}


def _quantizers(given: Any, methods: Collection[str], plugins: PluginRegistry) -> dict[str, dict[str, Quantizer]]:
    if not isinstance(given, Mapping):
        check_list("quantizers", given)
        return dict.fromkeys(methods, made_by_name("quantizers", given or (), "quantizers", _is_quantizer, plugins))
    check_method_names("quantizers", given, methods)
    made = {}
    for method, own in given.items():
        name = f"quantizers[{method!r}]"
        check_list(name, own)
        made[method] = made_by_name(name, own or (), "quantizers", _is_quantizer, plugins)
    return made


def _is_quantizer(value: Any) -> bool:
    return all(callable(getattr(value, hook, None)) for hook in ("annotate", "validate"))


def _batches(given: Any, methods: Collection[str]) -> dict[str, Iterable[Batch]]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        check_method_names("calibration_data", given, methods)
        for method, own in given.items():
            check_list(f"calibration_data[{method!r}]", own)
        return {method: own for method, own in given.items() if own is not None}
    check_list("calibration_data", given)
    if len(methods) > 1:
        raise LoweringError(
            f"calibration_data is a list, but there are several methods ({', '.join(sorted(methods))}): write"
            " {method: [(x,), …]}"
        )
    return dict.fromkeys(methods, given)


def with_example(data: Any) -> tuple[Any, tuple[Any, ...] | None, dict[str, Any] | None]:
    """The batches of a single method, and the positional and named arguments of the first of them.

    What is not such data is left to `quantization_by_method`, which says so.
    """
    if data is None or isinstance(data, (str, Mapping)) or not hasattr(data, "__iter__"):
        return data, None, None
    batches = list(data)
    first = batches[0] if batches else None
    if isinstance(first, Mapping):
        return batches, (), dict(first)
    return batches, tuple(first) if isinstance(first, (tuple, list)) else None, None
