"""cond, map, scan and while_loop -> jumps in the one instruction list.

Results of a branch are written straight into the tensors of the `cond`, never moved: ExecuTorch's MoveCall lets two
tensors share one place, and two live results could overwrite each other. A loop's carried values are tensors of their
own that each round overwrites at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from torch.fx import Node
from torch.fx.node import Argument

from delegraph.aot.emission.nodes import GraphEmitter, NodeValue
from delegraph.aot.graph.bodies import output_producer, output_values
from delegraph.aot.graph.fake_values import Args, several
from delegraph.program.schema import Operator

__all__ = ["CONTROL_FLOW"]

SELECT: Final = Operator("aten::select_copy", "int_out")
SYM_SIZE: Final = Operator("aten::sym_size", "int")
COPY_INDEX: Final = Operator("executorch_prim::et_copy_index", "tensor")


def emit_cond(outer: GraphEmitter, node: Node) -> NodeValue:
    """JumpFalse to the else branch; the true branch; jump to the end; the else branch."""
    predicate, true_body, false_body, *rest = node.args
    operands = rest[0] if rest else ()
    # made before either branch, which both write: behind the end nobody knows which of them ran
    builder, outs = outer.builder, _results(outer, node)
    to_else = builder.jump_if_false(outer.index(predicate))
    _emit_body(outer, true_body, [outer.value(operand) for operand in operands], outs)  # type: ignore[union-attr]
    builder.node = node
    to_end = builder.jump()
    builder.land(to_else)
    _emit_body(outer, false_body, [outer.value(operand) for operand in operands], outs)  # type: ignore[union-attr]
    builder.node = node
    builder.land(to_end)
    return outs


def emit_map(outer: GraphEmitter, node: Node) -> NodeValue:
    """A scan that carries nothing."""
    body, xs, additional = node.args
    return _emit_scan(outer, node, body, (), xs, additional)  # type: ignore[arg-type]


def emit_scan(outer: GraphEmitter, node: Node) -> NodeValue:
    """Carried values first, then the stacked results."""
    body, init, xs, additional = node.args[:4]
    return _emit_scan(outer, node, body, init, xs, additional)  # type: ignore[arg-type]


def _emit_scan(outer: GraphEmitter, node: Node, body: Argument, init: Args, xs: Args, additional: Args) -> NodeValue:
    """i = 0; while i < n: carries, row = body(carries, xs[i], additional); stacked[i] = row; i += 1."""
    builder, table = outer.builder, outer.builder.table
    carries = _results(outer, node, stop=len(init))
    stacked = _results(outer, node, start=len(init), dynamic=True)
    _set_all(outer, [outer.index(value) for value in init], carries)
    inner = outer.body(body)
    slices = _slices(inner, skip=len(init), count=len(xs))
    counter, rounds, zero = table.variable(0), table.variable(0), builder.constant(0)
    builder.kernel(SYM_SIZE, [outer.index(xs[0]), zero, rounds])
    builder.prim_into("sub", [counter, counter], counter)  # 0 again, should the method run twice
    head = builder.here
    to_end = builder.jump_if_false(builder.prim("lt", [counter, rounds], True))
    for source, part in zip(xs, slices, strict=True):
        builder.kernel(SELECT, [outer.index(source), zero, counter, part, part])  # out, then the return slot
    rows = _run(inner, [*carries, *slices, *(outer.value(value) for value in additional)])
    builder.node = node
    for stack, row in zip(stacked, rows[len(init) :], strict=True):
        builder.kernel(COPY_INDEX, [stack, row, counter])
    # after the rows are stacked: a row may be a carried value, which is overwritten here
    _set_all(inner, _detached(inner, rows[: len(init)], carries), carries)
    builder.prim_into("add", [counter, builder.constant(1)], counter)
    builder.jump(head)
    builder.land(to_end)
    return (*carries, *stacked)


def emit_while_loop(outer: GraphEmitter, node: Node) -> NodeValue:
    """The condition stands at the head; a false one jumps behind the loop."""
    condition, body, carried, additional = node.args
    builder, carries = outer.builder, _results(outer, node)
    _set_all(outer, [outer.index(value) for value in several(carried)], carries)
    # condition and body read the carried values where they lie, so each round needs no copies of its inputs
    inputs = [*carries, *(outer.value(value) for value in additional)]  # type: ignore[union-attr]
    head = builder.here
    (predicate,) = _run(outer.body(condition), inputs)
    builder.node = node
    to_end = builder.jump_if_false(predicate)
    inner = outer.body(body)
    rows = _run(inner, inputs)
    builder.node = node
    # only now: all that the body computes may still read the old ones
    _set_all(inner, _detached(inner, rows, carries), carries)
    builder.jump(head)
    builder.land(to_end)
    return carries


# ---- bodies ----------------------------------------------------------------------------------------


def _results(
    outer: GraphEmitter, node: Node, start: int = 0, stop: int | None = None, dynamic: bool = False
) -> tuple[int, ...]:
    """Values for the results of `node` from `start` on. A stack grows row by row, so it is dynamic."""
    values = list(enumerate(node.meta["val"]))[start:stop]
    return tuple(outer.result(node, position, value, dynamic) for position, value in values)


def _run(inner: GraphEmitter, inputs: Sequence[NodeValue]) -> list[int]:
    """Emit a body on `inputs`; the values of its outputs."""
    placeholders = inner.module.graph.find_nodes(op="placeholder")
    inner.values.update(zip(placeholders, inputs, strict=True))
    outputs = output_values(inner.module.graph)
    inner.run(outputs)
    return [inner.index(output) for output in outputs]


def _emit_body(outer: GraphEmitter, reference: Argument, inputs: Sequence[NodeValue], targets: Sequence[int]) -> None:
    """Emit a branch so that its outputs end up in `targets`: written there at once, or copied where that cannot be."""
    inner = outer.body(reference)
    for output, target in zip(output_values(inner.module.graph), targets, strict=True):
        producer = output_producer(output)
        if producer is not None:
            inner.destinations.setdefault(producer, target)  # a value that is two outputs is copied for the second
    results = _run(inner, inputs)
    pairs = [(result, target) for result, target in zip(results, targets, strict=True) if result != target]
    _set_all(inner, [result for result, _ in pairs], [target for _, target in pairs])


def _slices(inner: GraphEmitter, skip: int, count: int) -> tuple[int, ...]:
    """Tensors for the rows of the scanned inputs."""
    placeholders = inner.module.graph.find_nodes(op="placeholder")[skip : skip + count]
    return tuple(inner.result(node, 0, node.meta["val"]) for node in placeholders)


def _set_all(emitter: GraphEmitter, sources: Sequence[int], targets: Sequence[int]) -> None:
    """Give each target the value of its source; tensors by copy, scalars by move."""
    table = emitter.builder.table
    for source, target in zip(sources, targets, strict=True):
        if source == target:
            continue
        if table.is_tensor(target):
            emitter.builder.clone(source, target)
        else:
            emitter.builder.move(source, target)


def _detached(inner: GraphEmitter, results: Sequence[int], carries: Sequence[int]) -> list[int]:
    """`results`, with those copied away that another carried value's update would overwrite before they are read.

    body(a, b) -> (b, a)        a <- b; b <- a  would lose a        t = clone(b), u = clone(a); a <- t; b <- u
    """
    table, builder = inner.builder.table, inner.builder
    roots = {table.root(carry) for carry in carries}
    detached = list(results)
    for position, (result, carry) in enumerate(zip(results, carries, strict=True)):
        if result != carry and table.root(result) in roots:
            detached[position] = table.twin(result)
            if table.is_tensor(result):
                builder.clone(result, detached[position])
            else:
                builder.move(result, detached[position])
    return detached


CONTROL_FLOW: Final[dict[str, Callable[[GraphEmitter, Node], NodeValue]]] = {
    "cond": emit_cond,
    "map_impl": emit_map,
    "scan": emit_scan,
    "while_loop": emit_while_loop,
}
"""By the name of the higher-order operator."""
