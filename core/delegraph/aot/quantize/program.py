"""ATen program, quantizers, recipes, batches -> ATen program with `quantized_decomposed` calls and quantized weights.

    before                          after
        y = linear(x, w, b)             w' = dequantize(w_int8, …)
                                        x' = dequantize(quantize(x, …), …)
                                        y  = linear(x', w', b)

The way is torchao's (`torchao/quantization/pt2e/quantize_pt2e.py`): a quantizer annotates, observers are inserted,
batches are run, observers become calls. Before it mutation becomes data flow, while composite operators stay whole:
torchao puts an observer where a value is made, and what is written into a buffer afterwards would pass it by. The
weights of recipes that leave values in float are stored afterwards (`weight_only.py`). Bodies of control flow go the
same way, each by itself (`body_weights.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from delegraph.aot.functional.functionalize import functionalize
from delegraph.aot.graph.bodies import all_nodes, bodies, graph_modules
from delegraph.aot.quantize.annotation.composed import ComposedQuantizer
from delegraph.aot.quantize.measurement.calibrate import calibrate
from delegraph.aot.quantize.measurement.layers import kept_layers, method_report, worst_layers
from delegraph.aot.quantize.measurement.measure import Measured, Recorded, first_inputs, measured, recorded
from delegraph.aot.quantize.measurement.report import MethodQuantization
from delegraph.aot.quantize.recipes import Recipe
from delegraph.aot.quantize.request import QuantizationRequest
from delegraph.aot.quantize.rewrites.batch_norm import hidden_batch_norms
from delegraph.aot.quantize.rewrites.cells import cells_as_layers
from delegraph.aot.quantize.rewrites.norm_folding import fold_norms, join_norms, part_norms
from delegraph.aot.quantize.rewrites.stored_products import products_as_layers
from delegraph.aot.quantize.torchao import calling_torchao, graph_by_graph, pt2e
from delegraph.aot.quantize.torchao_weights import with_plain_weights
from delegraph.aot.quantize.weights.as_program import as_program, flat_inputs, positional_inputs
from delegraph.aot.quantize.weights.body_weights import weights_into_bodies
from delegraph.aot.quantize.weights.computed_weights import fold_computed_weights
from delegraph.aot.quantize.weights.weight_only import store_weights, stored_bits
from delegraph.errors import LoweringError

__all__ = ["Quantized", "quantize_program"]


@dataclass(frozen=True, slots=True)
class Quantized:
    """A quantized program, and what was measured of it where that was asked for."""

    program: ExportedProgram
    report: MethodQuantization | None


def quantize_program(method: str, program: ExportedProgram, how: QuantizationRequest) -> Quantized:
    """A new program; `program` keeps its weights and what its buffers hold.

    Where the worst layers are to stay float, it is quantized once to find them and once without them. Raises
    `LoweringError` naming the quantizer or the batch that is at fault.
    """
    program = with_plain_weights(method, program)
    batches = how.batches
    if how.measures_first and batches is not None and iter(batches) is batches:
        how = replace(how, batches=list(batches))
    attempt = _attempt(method, program, how, frozenset())
    left = worst_layers(attempt.layers, attempt.measured, how.keep_float, how.min_sqnr)
    kept = kept_layers(attempt.module, attempt.measured, left)
    if left:
        attempt = _attempt(method, program, how, left)
    report = None
    if how.report:
        measurement = attempt.reference, attempt.measured
        report = method_report(
            attempt.module, attempt.layers, *measurement, kept, program, how.recipe_of, attempt.left_float
        )
    return Quantized(as_program(method, attempt.module, program), report)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The converted module; by name, the recipes of the calls that are quantized, and why others are not; and what was
    measured."""

    module: GraphModule
    layers: Mapping[str, Recipe]
    left_float: Mapping[str, str]
    reference: Recorded | None
    measured: Measured | None


def _attempt(method: str, program: ExportedProgram, how: QuantizationRequest, left: Collection[str]) -> _Attempt:
    """Quantize all but the calls in `left`."""
    without_mutation = functionalize(program, {}, only=lambda _node: False)
    module = _of_layers(without_mutation, how, left)
    buffers = dict(module.named_buffers(remove_duplicate=False))
    initial = how.shared_buffers.found_by(method, buffers)
    _set_buffers(module, _clones(initial))  # calibration counts, and fills caches
    nodes = list(all_nodes(module))
    recipes = {n.name: how.recipe_of(n) for n in nodes if n.op == "call_function" and n.name not in left}
    layers = {node.name: recipes[node.name] for node in nodes if stored_bits(node, recipes.get(node.name))}
    prepared, first, normed, left_float = module, None, dict[str, str](), dict[str, str]()
    if how.quantizers:
        prepared, annotated, normed, left_float = _prepared(method, module, how, left)
        layers |= annotated
    with first_inputs(prepared) as entered:
        if how.batches is not None:
            first = calibrate(method, prepared, positional_inputs(program), how.batches)
        elif how.quantizers:  # weights have observers too, which have to run
            if program.example_inputs is None:
                raise LoweringError(
                    f"method {method!r} was exported without its example inputs, which quantizing without batches"
                    " needs: export it again, or give calibration_data"
                )
            args, kwargs = program.example_inputs
            with torch.no_grad():
                prepared(*args, **kwargs)
    if how.quantizers:
        from delegraph.aot.quantize.annotation.observers import leave_unseen

        leave_unseen(prepared, entered)
    how.shared_buffers.leave(dict(prepared.named_buffers(remove_duplicate=False)))
    reference, inputs = None, list[object]()
    if first is not None and (how.report or how.measures_first):
        inputs = flat_inputs(program, first)
        modules = _module_of(program), _functional_module(without_mutation, how), prepared
        for model in modules:  # each finds what the first batch of calibration did
            _set_buffers(model, _clones(initial))
        reference = recorded(*modules, inputs, {name: normed.get(name, name) for name in layers})
    _set_buffers(prepared, _clones(buffers))  # conversion runs what it takes for constant
    converted = prepared
    if how.quantizers:
        converted = calling_torchao(method, how.quantizers, lambda: graph_by_graph(prepared, _converted))
    for _, graph in graph_modules(converted):
        store_weights(graph, layers, how.stored_weights)
    how.shared_buffers.unmark(converted)
    _set_buffers(converted, _clones(initial))
    loss = measured(converted, inputs, reference) if reference is not None else None
    _set_buffers(converted, buffers)
    return _Attempt(converted, layers, left_float, reference, loss)


def _of_layers(program: ExportedProgram, how: QuantizationRequest, left: Collection[str]) -> GraphModule:
    """A module to edit: bodies have their weights, cells and products with a weight are layers, and weights that need
    not be computed are constants."""

    def is_quantized(node: Node) -> bool:
        return node.name not in left and not how.recipe_of(node).is_float

    module = _functional_module(program, how, check_guards=True)
    for _, graph in graph_modules(module):
        cells_as_layers(graph, is_quantized)
        products_as_layers(graph, is_quantized)
    fold_computed_weights(module, is_quantized)
    return module


def _functional_module(program: ExportedProgram, how: QuantizationRequest, check_guards: bool = False) -> GraphModule:
    """A module of a program without mutation: bodies have their weights, and all else is as the user wrote it."""
    module = _module_of(program, check_guards)
    how.shared_buffers.mark(module)  # a buffer that another method changes is no weight
    weights_into_bodies(module)
    return module


def _module_of(program: ExportedProgram, check_guards: bool = False) -> GraphModule:
    module = program.module(check_guards=check_guards)
    assert isinstance(module, GraphModule)
    for name, body in bodies(module).items():  # the modules of one program share them
        module.add_module(name, copy.deepcopy(body))
    return module


def _prepared(
    method: str, module: GraphModule, how: QuantizationRequest, left: Collection[str]
) -> tuple[GraphModule, dict[str, Recipe], dict[str, str], dict[str, str]]:
    """`module` with observers; the recipes of the calls that have some, those that a quantizer made included; by the
    names of layers, those of the norms that are folded into them; and why calls have no observers, by name."""
    recipes: dict[str, Recipe] = {}

    def may_annotate(quantizer: str, node: Node) -> bool:
        recipes[node.name] = how.recipe_of(node)
        return node.name not in left and how.may_annotate(quantizer, node)

    def step(graph: GraphModule) -> GraphModule:
        composed = ComposedQuantizer(method, how.quantizers, may_annotate)
        normed.update(fold_norms(graph))
        part_norms(graph)  # torchao would fold those that stay
        observed: GraphModule = pt2e().prepare_pt2e(graph, composed)
        join_norms(observed)
        annotated.update(composed.annotated)
        left_float.update(composed.left)
        return observed

    annotated, normed, left_float = set[str](), dict[str, str](), dict[str, str]()
    prepared = calling_torchao(method, how.quantizers, lambda: graph_by_graph(module, step))
    return prepared, {name: recipes[name] for name in annotated}, normed, left_float


def _converted(graph: GraphModule) -> GraphModule:
    with hidden_batch_norms(graph.graph):
        converted: GraphModule = pt2e().convert_pt2e(graph)
    converted.recompile()
    return converted


def _clones(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies; what is one tensor under two names stays one."""
    copies: dict[int, torch.Tensor] = {}
    return {name: copies.setdefault(id(tensor), tensor.clone()) for name, tensor in tensors.items()}


def _set_buffers(module: GraphModule, buffers: Mapping[str, torch.Tensor]) -> None:
    """Let the buffers of these names be these tensors, so far as they still exist: some are folded into weights."""
    submodules = dict(module.named_modules(remove_duplicate=False))
    for name, tensor in buffers.items():
        owner, _, attribute = name.rpartition(".")
        if owner in submodules and attribute in submodules[owner]._buffers:
            submodules[owner]._buffers[attribute] = tensor
