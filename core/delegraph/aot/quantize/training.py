"""A model to train -> a module that rounds as it trains -> the quantized program (quantization-aware training).

torchao folds batch norm into the convolution before it, rounds the folded weight in every step, and undoes the folding
for the statistics (`batch_norm.py`). So the model is exported in training mode. A literal of a call says whether it
trains: `train` and `eval` set that, and no other. A copy is converted, so that training may go on.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from delegraph.aot.export import ExportRequest, export_method
from delegraph.aot.graph.bodies import all_nodes, graph_modules
from delegraph.aot.graph.stated_bounds import bounded
from delegraph.aot.quantize.annotation.composed import ComposedQuantizer
from delegraph.aot.quantize.measurement.layers import method_report
from delegraph.aot.quantize.program import Quantized
from delegraph.aot.quantize.recipes import Rules
from delegraph.aot.quantize.request import QuantizationRequest, quantization_for_training
from delegraph.aot.quantize.rewrites.batch_norm import (
    fold_batch_norms,
    hidden_batch_norms,
    is_misjudged,
    remember_numbers,
    restore_numbers,
)
from delegraph.aot.quantize.rewrites.cells import cells_as_layers
from delegraph.aot.quantize.rewrites.norm_folding import join_norms, part_norms
from delegraph.aot.quantize.rewrites.stored_products import products_as_layers
from delegraph.aot.quantize.torchao import calling_torchao, pt2e
from delegraph.aot.quantize.weights.as_program import as_program
from delegraph.aot.quantize.weights.body_weights import weights_into_bodies
from delegraph.aot.quantize.weights.weight_only import store_weights
from delegraph.errors import LoweringError
from delegraph.interfaces.lowering import Partitioner
from delegraph.plugins.plugin_spec import PluginSpec
from delegraph.plugins.registry import PluginRegistry

__all__ = ["converted_from_training", "prepared_for_training"]

_KEY: Final = "delegraph.qat"
"""Where a prepared module's meta holds what converting it needs."""

_TRAINED: Final = "delegraph.trained"
"""Where a call's meta holds what its literal is in training."""

aten = torch.ops.aten

_SWITCHES: Final = frozenset({"train", "training", "use_input_stats", "dropout_p"})
"""Arguments that say whether a call trains; of attention, the share of weights that it drops."""

_NORMS: Final = frozenset({aten.batch_norm.default, aten.instance_norm.default})
"""Norms that use the batch's statistics in any mode if they have no running mean, argument 3."""


def prepared_for_training(
    request: ExportRequest,
    bounds: Mapping[str, int] | None,
    rules: Rules,
    backends: Sequence[PluginSpec | Partitioner],
    plugins: PluginRegistry,
) -> GraphModule:
    """A module with the calls that round. Raises `LoweringError`."""
    how = quantization_for_training(rules, backends, plugins)
    from delegraph.aot.quantize.annotation.specs import trainable

    program = bounded({"forward": _exported_for_training(request)}, bounds)["forward"]
    module = program.module(check_guards=False)
    assert isinstance(module, GraphModule)
    cells_as_layers(module, lambda _node: True)
    products_as_layers(module, lambda _node: True)
    remember_numbers(module.graph)
    part_norms(module, is_misjudged)
    composed = ComposedQuantizer("forward", how.quantizers, how.may_annotate, trainable)
    prepared = calling_torchao("forward", how.quantizers, lambda: pt2e().prepare_qat_pt2e(module, composed))
    join_norms(prepared)
    restore_numbers(prepared.graph)
    trained = _PreparedModule(prepared, prepared.graph)
    trained.meta = {**prepared.meta, _KEY: _Origin(program, how)}
    return trained


def converted_from_training(prepared: GraphModule) -> Quantized:
    """The trained module, which stays as it is, as a program. Raises `LoweringError` where `prepared` is something
    else, or no batch has gone through it."""
    if not isinstance(prepared, GraphModule) or _KEY not in prepared.meta:
        raise LoweringError(f"convert_qat takes the module that prepare_qat gave, not {type(prepared).__name__}")
    from delegraph.aot.quantize.annotation.observers import leave_unseen, ranges_found

    if not ranges_found(prepared):
        raise LoweringError(
            "convert_qat: the prepared module has seen no values, so that no range is known: run it on a few batches,"
            " prepared(x), or train it"
        )
    origin: _Origin = prepared.meta[_KEY]
    module = _copied(prepared).eval()
    leave_unseen(module, dict(graph_modules(module)))
    fold_batch_norms(module)
    with hidden_batch_norms(module.graph):
        converted = calling_torchao("forward", ["prepare_qat"], lambda: pt2e().convert_pt2e(module))
    _drop_batch_counts(converted)
    weights_into_bodies(converted)
    recipe_of = origin.how.recipe_of
    layers = {node.name: recipe_of(node) for node in all_nodes(converted) if node.op == "call_function"}
    for _, graph in graph_modules(converted):
        store_weights(graph, layers)
    report = method_report(converted, layers, None, None, (), origin.program, recipe_of, {})
    return Quantized(as_program("forward", converted, origin.program), report)


@dataclass(frozen=True, slots=True)
class _Origin:
    """The program that a prepared module was made from, and how. Copies of the module share it."""

    program: ExportedProgram
    how: QuantizationRequest

    def __deepcopy__(self, memo: object) -> Self:
        return self


class _PreparedModule(GraphModule):
    """Trains or not as `train` and `eval` say, as do copies of it: calls keep their own literals."""

    def train(self, mode: bool = True) -> Self:
        """Set the literals of the calls that do otherwise in training."""
        for node in self.graph.nodes:
            switch = _switch(node)
            if switch is not None:
                literal = node.args[switch]
                in_training = node.meta.setdefault(_TRAINED, literal if isinstance(literal, float) else True)
                node.update_arg(switch, in_training if mode else type(in_training)())
        self.recompile()
        return super().train(mode)


def _copied(module: GraphModule) -> GraphModule:
    with warnings.catch_warnings():  # which torch gives when its own tree specs are copied
        warnings.simplefilter("ignore", FutureWarning)
        return copy.deepcopy(module)


def _switch(node: Node) -> int | None:
    """Which argument of a call says whether it trains, if the call has that: not of norms without a running mean."""
    schema = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments[: len(node.args)]] if schema is not None else []
    place = next((place for place, name in enumerate(names) if name in _SWITCHES), None)
    return None if node.target in _NORMS and node.args[3] is None else place


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
