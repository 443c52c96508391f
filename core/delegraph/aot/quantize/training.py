"""A model to train -> a module that rounds as it trains -> the quantized program (quantization-aware training).

torchao folds batch norm into the convolution before it, rounds the folded weight in every step, and undoes the folding
for the statistics (`torchao/quantization/pt2e/qat_utils.py`). So the model is exported in training mode.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from delegraph.aot.export import ExportRequest, export_method
from delegraph.aot.quantize.composed import ComposedQuantizer
from delegraph.aot.quantize.layers import method_report
from delegraph.aot.quantize.program import Quantized
from delegraph.aot.quantize.recipes import RecipeOrRules
from delegraph.aot.quantize.reexport import exported_again
from delegraph.aot.quantize.request import quantization_for_training
from delegraph.aot.quantize.torchao import calling_torchao, pt2e
from delegraph.aot.quantize.weight_only import store_weights
from delegraph.errors import LoweringError
from delegraph.plugins.registry import PluginRegistry

__all__ = ["converted_from_training", "prepared_for_training"]

_KEY: Final = "delegraph.qat"
"""Where a prepared module's meta holds what converting it needs."""

aten = torch.ops.aten


def prepared_for_training(
    request: ExportRequest, recipe: RecipeOrRules, backends: Iterable[Any] | None, plugins: PluginRegistry
) -> GraphModule:
    """A module with the calls that round. Raises `LoweringError`."""
    how = quantization_for_training(recipe, backends, plugins)
    from delegraph.aot.quantize.specs import trainable

    program = _exported_for_training(request)
    module = program.module(check_guards=False)
    assert isinstance(module, GraphModule)
    composed = ComposedQuantizer("forward", how.quantizers, how.may_annotate, trainable)
    prepared = calling_torchao("forward", how.quantizers, lambda: pt2e().prepare_qat_pt2e(module, composed))
    from torchao.quantization.pt2e import allow_exported_model_train_eval

    allow_exported_model_train_eval(prepared)
    prepared.meta[_KEY] = (program, how)
    return prepared


def converted_from_training(prepared: GraphModule) -> Quantized:
    """The trained module as a program. Raises `LoweringError` where `prepared` is something else."""
    if not isinstance(prepared, GraphModule) or _KEY not in prepared.meta:
        raise LoweringError(f"convert_qat takes the module that prepare_qat gave, not {type(prepared).__name__}")
    program, how = prepared.meta[_KEY]
    prepared.eval()
    converted = calling_torchao("forward", ["prepare_qat"], lambda: pt2e().convert_pt2e(prepared))
    _drop_batch_counts(converted)
    layers = {node.name: how.recipe_of(node) for node in converted.graph.nodes if node.op == "call_function"}
    store_weights(converted, layers)
    again = exported_again("forward", converted, program)
    return Quantized(again, method_report(converted, layers, None, None, (), program))


def _exported_for_training(request: ExportRequest) -> ExportedProgram:
    if isinstance(request.model, ExportedProgram):
        return request.model
    model = copy.deepcopy(request.model).train()
    return export_method("forward", ExportRequest(model, request.args, request.kwargs, request.dynamic_shapes))


def _drop_batch_counts(module: GraphModule) -> None:
    """Take out the counting of batches, which is all that is left of batch norm."""
    for node in module.graph.find_nodes(op="call_function", target=aten.add_.Tensor):
        counter = node.args[0]
        if counter.op == "get_attr" and str(counter.target).endswith("num_batches_tracked") and not node.users:
            module.graph.erase_node(node)
    module.graph.eliminate_dead_code()
    module.recompile()
