"""A quantized module + what was measured -> a row of the report for each layer, and the layers that lose most."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import Target

from delegraph.aot.graph.bodies import all_nodes, attributes, graph_modules, referenced
from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.module_stack import module_path
from delegraph.aot.quantize.annotations import ancestors
from delegraph.aot.quantize.measurement.float_layers import float_layers
from delegraph.aot.quantize.measurement.measure import Measured, Recorded
from delegraph.aot.quantize.measurement.report import FloatLayer, LayerQuantization, MethodQuantization
from delegraph.aot.quantize.recipes import Recipe
from delegraph.aot.quantize.weights.stored_weights import TABLES

__all__ = ["kept_layers", "method_report", "worst_layers"]


_TABLES: Final[Mapping[Target, str]] = {function: name.partition(".")[0] for name, function in TABLES.items()}
"""The functions that stand for these operators, once their rows are stored."""


def worst_layers(
    layers: Mapping[str, Recipe], measured: Measured | None, count: int, min_sqnr: float | None
) -> frozenset[str]:
    """The names of the `count` layers that add most noise by themselves, and of all below `min_sqnr` dB."""
    if measured is None:
        return frozenset()
    lossy = {name: loss for name, loss in measured.alone.items() if name in layers and loss < math.inf}
    by_loss = sorted(lossy, key=lambda name: (lossy[name], name))
    below = {name for name in by_loss if min_sqnr is not None and lossy[name] < min_sqnr}
    return frozenset({*by_loss[:count], *below})


def kept_layers(module: GraphModule, measured: Measured | None, names: Collection[str]) -> tuple[FloatLayer, ...]:
    """The layers of these names of a quantized `module` that was `measured`, and how much each loses there."""
    nodes = {node.name: node for node in all_nodes(module)}
    return tuple(
        FloatLayer(name, _operator(nodes[name]), module_path(nodes[name]), f"quantized, it is at {loss:.1f} dB alone")
        for name, loss in sorted(({} if measured is None else measured.alone).items())
        if name in names
    )


def method_report(
    module: GraphModule,
    layers: Mapping[str, Recipe],
    reference: Recorded | None,
    measured: Measured | None,
    kept: Sequence[FloatLayer],
    program: ExportedProgram,
    recipe_of: Callable[[Node], Recipe],
    left: Mapping[str, str],
) -> MethodQuantization:
    """The report of one method: `module` is the quantized one, `program` the one in float; `layers` are those that were
    quantized, `recipe_of` is the recipe of any call, `left` says why calls are not annotated."""
    kept_names = tuple(layer.name for layer in kept)
    rows = [row for _, part in graph_modules(module) for row in _rows(part, layers, reference, measured)]
    stored = {id(tensor): tensor for _, part in graph_modules(module) for tensor in attributes(part).values()}
    return MethodQuantization(
        layers=tuple(rows),
        output_sqnr=None if measured is None else measured.outputs,
        kept_float=kept_names,
        nbytes=sum(tensor.nbytes for tensor in stored.values() if isinstance(tensor, torch.Tensor)),
        float_nbytes=sum(tensor.nbytes for tensor in {**program.constants, **program.state_dict}.values()
                         if isinstance(tensor, torch.Tensor)),
        left_float=float_layers(
            module, recipe_of, kept_names, {name: reason for name, reason in left.items() if name not in layers}
        ),
        kept_layers=tuple(kept),
    )  # fmt: skip


def _rows(
    module: GraphModule, layers: Mapping[str, Recipe], reference: Recorded | None, measured: Measured | None
) -> Iterator[LayerQuantization]:
    """The rows of one graph."""
    constant = _constant(module)
    alone = {} if measured is None else measured.alone
    for node in module.graph.nodes:
        own = _weights(node, constant) if node.name in layers else []
        if own or alone.get(node.name, math.inf) < math.inf:
            yield _row(module, node, layers[node.name], own, reference, measured)


def _row(
    module: GraphModule,
    node: Node,
    recipe: Recipe,
    leaves: Sequence[Node],
    reference: Recorded | None,
    measured: Measured | None,
) -> LayerQuantization:
    value = None if reference is None else reference.values.get(node.name)
    known = value is not None and value.numel() > 0
    weights = [referenced(module, leaf) for leaf in leaves]
    return LayerQuantization(
        name=node.name,
        operator=_operator(node),
        module=module_path(node),
        recipe=recipe.name,
        low=float(value.min()) if known and value is not None else None,
        high=float(value.max()) if known and value is not None else None,
        sqnr=None if measured is None else measured.alone.get(node.name),
        sqnr_in_all=None if measured is None else measured.in_all.get(node.name),
        weight_nbytes=sum(tensor.nbytes for tensor in weights),
        float_nbytes=sum(
            4 * _count(tensor) for tensor in weights if not tensor.is_floating_point() and tensor.ndim > 1
        ),
    )


def _operator(node: Node) -> str:
    return _TABLES.get(node.target) or operator_name(node)


def _weights(node: Node, constant: Collection[Node]) -> list[Node]:
    """The stored constants behind the weights that a call reads, where these are computed."""
    gathers = node.target in _TABLES  # its weight is not computed before it, and stands there as it is stored
    read = [arg for arg in node.all_input_nodes if arg in constant and (gathers or arg.op != "get_attr")]
    return [source for source in ancestors(read) if source.op == "get_attr"]


def _constant(module: GraphModule) -> set[Node]:
    """The nodes that are computed from constants alone."""
    constant: set[Node] = set()
    for node in module.graph.nodes:
        is_computed = node.op.startswith("call") and node.all_input_nodes and constant.issuperset(node.all_input_nodes)
        if node.op == "get_attr" or is_computed:
            constant.add(node)
    return constant


def _count(tensor: torch.Tensor) -> int:
    """How many weights an integer constant holds: of uint8, two to a byte."""
    return tensor.numel() * (2 if tensor.dtype == torch.uint8 else 1)
