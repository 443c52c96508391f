"""Model, recipe, calibration data -> `QuantizedModel`: programs, which every way of lowering takes, and a report.

quantize                    after training, in one call
prepare_qat, convert_qat    a module that rounds as it is trained, and what it becomes
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from errno import ENOENT

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from delegraph.aot import pipeline
from delegraph.aot.config import LoweringConfig
from delegraph.aot.delegation.backends import Backend, checked_backends
from delegraph.aot.export import DynamicShapes, ExampleArguments, ExportRequest, Model, export_requests
from delegraph.aot.progress import shown_progress
from delegraph.aot.quantize.measurement.report import QuantizationReport
from delegraph.aot.quantize.recipes import RecipeOrRules, Rules, check_rules, rules_from
from delegraph.aot.quantize.request import (
    CalibrationData,
    Quantizers,
    check_limits,
    quantization_by_method,
    quantization_by_recipe,
    with_examples,
)
from delegraph.aot.quantize.training import converted_from_training, prepared_for_training
from delegraph.aot.stage import Lowering, StageWatcher
from delegraph.errors import LoweringError
from delegraph.notebook import folded
from delegraph.plugins.registry import PluginRegistry, default_registry

__all__ = ["QuantizedModel", "convert_qat", "prepare_qat", "quantize"]


class QuantizedModel(Mapping[str, ExportedProgram]):
    """A mapping of quantized programs by method name, so that `lower`, `to_edge` … take it as it is.

    report: what quantizing did, layer by layer.
    """

    def __init__(self, programs: Mapping[str, ExportedProgram], report: QuantizationReport) -> None:
        self._programs = dict(programs)
        self.report = report

    @property
    def program(self) -> ExportedProgram:
        """The program of the one method. Raises `LoweringError` where there are several."""
        if len(self._programs) > 1:
            raise LoweringError(f"there are several methods, {', '.join(self._programs)}: take one by its name")
        return next(iter(self._programs.values()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program as torch's `.pt2`. Raises as `program`, and `OSError`."""
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):  # of which torch makes a RuntimeError
            raise FileNotFoundError(ENOENT, f"there is no such folder to save {os.path.basename(path)!r} in", folder)
        torch.export.save(self.program, path)

    def __getitem__(self, method: str) -> ExportedProgram:
        return self._programs[method]

    def __iter__(self) -> Iterator[str]:
        return iter(self._programs)

    def __len__(self) -> int:
        return len(self._programs)

    def __repr__(self) -> str:
        return f"QuantizedModel({', '.join(self._programs)})"

    def __str__(self) -> str:
        return str(self.report)

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        return self.report._repr_html_() + folded("signal to noise, drawn", self.report.to_svg())


def quantize(
    model: Model,
    calibration_data: CalibrationData | None = None,
    args: ExampleArguments = None,
    kwargs: Mapping[str, object] | None = None,
    *,
    recipe: RecipeOrRules | Rules | None = None,
    backends: Iterable[Backend] | Mapping[str, Iterable[Backend]] | None = None,
    quantizers: Quantizers | None = None,
    keep_float: int = 0,
    min_sqnr: float | None = None,
    dynamic_shapes: DynamicShapes = None,
    bounds: Mapping[str, int] | None = None,
    plugins: PluginRegistry | None = None,
    prefer: Mapping[str, str] | None = None,
    progress: bool | StageWatcher = False,
) -> QuantizedModel:
    """Quantize a model after training.

        batches = [(images,) for images in loader]
        quantized = delegraph.quantize(model.eval(), batches, recipe="int8", backends=["cpu"])
        lowered = delegraph.lower(quantized, backends=["cpu"])

    model: an nn.Module, an ExportedProgram, or a mapping of either by method name, as for `lower`.
    calibration_data: batches of typical inputs, or such batches by method name. A batch is a tuple of positional
        arguments, or a mapping of all arguments by name. Weight-only and dynamic recipes need none.
    args: example arguments; without these and `kwargs`, a module is exported with the first of its own batches.
    kwargs: example arguments by name.
    recipe: `"int8"` (the default), `"int8_per_tensor"`, `"int8_dynamic"`, `"int8_weight_only"`, `"int4_weight_only"`,
        `"int8_dynamic_int4_weight"` or `"int16x8"`, with options, `"int4_weight_only{group_size=64}"`; a `Recipe`; or
        rules by module name or type, `{"encoder.*": "float", nn.LayerNorm: "float", "default": "int8"}`.
    backends: those that you will lower onto, in order of priority, as `lower` takes them. Each brings its quantizer;
        where one has none, a general one stands in. Or such lists by method name. Options are for lowering, and
        checked here.
    quantizers: instead of recipe and backends, in order of priority, names of installed ones (`"npu"`,
        `"npu{recipe=int16x8}"`, `("npu", {"recipe": "int16x8"})`) or torchao's, or such lists by method name. A layer
        that one has annotated keeps its spec.
    keep_float: how many layers stay float: those that lose most, as measured on the first batch.
    min_sqnr: in dB; layers that by themselves fall below it on the first batch stay float, too.
    dynamic_shapes: which dims vary, as for `lower`.
    bounds: the largest sizes, where they depend on values, by line of code, as for `lower`.
    plugins: the plug-ins to use instead of the installed ones.
    prefer: which distribution is meant where two offer one name, as for `lower`.
    progress: show a progress bar on standard error, or tell a watcher of each stage.

    Values and weights go through `quantized_decomposed` calls, weights are stored quantized; `model` is left as it was.
    Needs torchao (the extra `quantize`). Raises `LoweringError` naming the quantizer or batch at fault, `PluginError`.
    """
    plugins = (plugins or default_registry()).preferring(prefer or {})
    if recipe is not None and quantizers is not None:
        raise LoweringError("recipe and quantizers are two ways to say the same: give one of them")
    if backends is not None and quantizers is not None:
        raise LoweringError(
            "backends says whose quantizers a recipe goes to, which quantizers names itself: give one of them"
        )
    check_limits(keep_float, min_sqnr)
    calibration_data, example, by_name = with_examples(model, calibration_data, args, kwargs)
    requests = _requests(model, example, by_name, dynamic_shapes, by_batch=example is not args)
    methods = list(requests)
    by_method = checked_backends(backends, methods, plugins)
    if quantizers is not None:
        asked = quantization_by_method(
            quantizers, calibration_data, methods, plugins, keep_float=keep_float, min_sqnr=min_sqnr, report=True
        )
    else:
        models = [request.model for request in requests.values()]
        rules = rules_from("int8" if recipe is None else recipe, models)
        asked = quantization_by_recipe(
            rules, by_method, calibration_data, methods, plugins, keep_float=keep_float, min_sqnr=min_sqnr
        )
        check_rules(rules, models)
    lowering = Lowering(plugins, LoweringConfig(), tuple(requests), requests, bounds or {}, quantization=asked)
    stages = [pipeline.EXPORT, pipeline.QUANTIZE]
    with shown_progress(progress, stages) as watchers:
        done = pipeline.run(lowering, stages, watchers)
    return QuantizedModel(done.programs, QuantizationReport(done.quantized))


def _requests(
    model: Model,
    args: ExampleArguments,
    kwargs: Mapping[str, object] | None,
    dynamic_shapes: DynamicShapes,
    *,
    by_batch: bool,
) -> dict[str, ExportRequest]:
    """The requests for exporting; `by_batch` takes the first batch of calibration data for an example."""
    if isinstance(model, torch.nn.Module) and args is None and kwargs is None:
        raise LoweringError(
            "an nn.Module needs example arguments to be exported: give calibration_data=[(x,), …], typical inputs, or"
            " args=(x,) for a recipe that needs no data"
        )
    try:
        return export_requests(model, args, kwargs, dynamic_shapes)
    except LoweringError as error:
        if not by_batch:
            raise
        raise LoweringError(
            f"{error}\n  the example is calibration batch 0; a batch has the model's arguments alone, without labels"
        ) from error


def prepare_qat(
    model: torch.nn.Module | ExportedProgram,
    args: ExampleArguments = None,
    kwargs: Mapping[str, object] | None = None,
    *,
    recipe: RecipeOrRules = "int8",
    backends: Iterable[Backend] | None = None,
    dynamic_shapes: DynamicShapes = None,
    bounds: Mapping[str, int] | None = None,
    plugins: PluginRegistry | None = None,
    prefer: Mapping[str, str] | None = None,
) -> GraphModule:
    """A module to train, or to train on, that rounds weights and values as the quantized model will.

        prepared = delegraph.prepare_qat(model, (x,), recipe="int8")
        ...  # train `prepared` like any module
        quantized = delegraph.convert_qat(prepared)

    The arguments are those of `quantize`. The module is exported as it trains: batch norm with the batch's statistics,
    dropout on; it has `train()` and `eval()` like any module. Ranges are found in training, and stand still in eval
    mode once there are any. Its weights are copies: `model` is left as it was. Recipes are those that quantize values
    statically. Raises as `quantize`.
    """
    plugins = (plugins or default_registry()).preferring(prefer or {})
    requests = export_requests(model, args, kwargs, dynamic_shapes)
    by_method = checked_backends(backends, list(requests), plugins)
    rules = rules_from(recipe)
    check_rules(rules, [requests["forward"].model])
    return prepared_for_training(requests["forward"], bounds, rules, by_method["forward"], plugins)


def convert_qat(prepared: GraphModule) -> QuantizedModel:
    """The trained module that `prepare_qat` gave -> the quantized model. `prepared` stays: train on, convert again.

    Raises `LoweringError` for a module that is not from `prepare_qat`, or that no batch has gone through.
    """
    quantized = converted_from_training(prepared)
    assert quantized.report is not None
    return QuantizedModel({"forward": quantized.program}, QuantizationReport({"forward": quantized.report}))
