"""Control flow -> If, Loop and Scan: a conditional or a loop within one delegate, bodies, weights and all.

    cond(p, yes, no, operands)               If(p)   { yes(operands) }  { no(operands) }
    while_loop(test, step, carried, rest)    Loop(test(carried, rest), carried)   { n = step(carried, rest)
                                                                                    test(n, rest), n }
    scan(step, carried, slices, rest)        Scan(carried, slices)   { step(carried, row of each slice, rest) }
    map_impl(step, slices, rest)             Scan(slices)            { step(row of each slice, rest) }

A body reads outer values (weights, `rest`) where they lie. A call whose bodies cannot be converted whole
is left, and the graphs of its bodies are partitioned one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import onnx_ir as ir
import torch
from torch.fx import Graph, Node

from delegraph.aot.authoring import body_of
from delegraph_onnx.converters.table import convert_with
from delegraph_onnx.dtypes import ALL, ONNX_TYPES
from delegraph_onnx.graph_builder import GraphBuilder, TensorLike
from delegraph_onnx.node_facts import dtype_of, shape_of

HIGHER_ORDER: Final = torch.ops.higher_order


def _gives_tensors(node: Node, *_: object) -> str | None:
    results = node.meta["val"]
    known = isinstance(results, tuple | list) and all(
        isinstance(result, torch.Tensor) and result.dtype in ONNX_TYPES for result in results
    )
    return None if known else "it gives other things than tensors"


@convert_with(
    [HIGHER_ORDER.cond], dtypes=ALL, takes_empty=True, check=lambda node, predicate, *_: (
        _gives_tensors(node) if isinstance(predicate, Node) else "its condition is known"))  # fmt: skip
def cond(
    g: GraphBuilder, node: Node, predicate: Node, yes: Node, no: Node, operands: Sequence[Node]
) -> Sequence[ir.Value]:
    chosen = g.tensor(predicate, torch.bool)
    return g.choose(chosen, lambda: _inlined(g, yes, operands), lambda: _inlined(g, no, operands))


@convert_with([HIGHER_ORDER.while_loop], dtypes=ALL, takes_empty=True, check=_gives_tensors)
def while_loop(
    g: GraphBuilder, node: Node, test: Node, step: Node, carried: Sequence[TensorLike], rest: Sequence[TensorLike]
) -> Sequence[ir.Value]:
    """ONNX's Loop reads before the first round, and at the end of each, whether there is another round."""
    placeholders = _placeholders(body_of(step))[: len(carried)]
    initial = [g.tensor(value, dtype_of(placeholder)) for value, placeholder in zip(carried, placeholders, strict=True)]

    def another(values: Sequence[ir.Value]) -> ir.Value:
        (result,) = _inlined(g, test, [*values, *rest])
        return g.reshape(result, [])

    first = another(initial)
    round_number = g.input("round", torch.int64, [])
    going = g.input("going", torch.bool, [])
    now = [g.input("carried", dtype_of(placeholder), shape_of(placeholder)) for placeholder in placeholders]

    def one_round() -> Sequence[ir.Value]:
        new = _inlined(g, step, [*now, *rest])
        return [another(new), *new]

    body = g.subgraph(one_round, [round_number, going, *now])
    return g.ops("Loop", len(placeholders), None, first, *initial, body=body)


@convert_with([HIGHER_ORDER.scan], dtypes=ALL, check=_gives_tensors)
def scan(
    g: GraphBuilder,
    node: Node,
    step: Node,
    carried: Sequence[TensorLike],
    slices: Sequence[Node],
    rest: Sequence[TensorLike],
) -> Sequence[ir.Value]:
    placeholders = _placeholders(body_of(step))[: len(carried) + len(slices)]
    inputs = [g.input("row", dtype_of(placeholder), shape_of(placeholder)) for placeholder in placeholders]
    body = g.subgraph(lambda: _inlined(g, step, [*inputs, *rest]), inputs)
    initial = [g.tensor(value, dtype_of(argument)) for value, argument in zip(carried, placeholders, strict=False)]
    sources = [g.value(source) for source in slices]
    return g.ops("Scan", len(body.outputs), *initial, *sources, body=body, num_scan_inputs=len(sources))


@convert_with([HIGHER_ORDER.map_impl], dtypes=ALL, check=_gives_tensors)
def map_rows(
    g: GraphBuilder, node: Node, step: Node, slices: Sequence[Node], rest: Sequence[TensorLike]
) -> Sequence[ir.Value]:
    return scan(g, node, step, (), slices, rest)


def _inlined(g: GraphBuilder, reference: Node, arguments: Iterable[TensorLike]) -> Sequence[ir.Value]:
    """Convert the calls of a body on `arguments`; its results."""
    from delegraph_onnx.convert import CallConverter  # which calls this module again

    graph = body_of(reference)
    for placeholder, argument in zip(_placeholders(graph), arguments, strict=True):
        g.bind(placeholder, argument)
    CallConverter(g).convert_calls(graph)
    results = graph.output_node().args[0]
    results = results if isinstance(results, tuple | list) else [results]
    return [g.tensor(result, dtype_of(result)) for result in results if isinstance(result, Node)]


def _placeholders(graph: Graph) -> Sequence[Node]:
    return graph.find_nodes(op="placeholder")
