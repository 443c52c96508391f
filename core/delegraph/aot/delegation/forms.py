"""Source program -> the form that one backend asked to see -> the source program with what that backend chose.

A backend names operators that it wants whole. The source program keeps whole the operators that any of the backends
asked for; each backend sees its own whole, and the others decomposed. Calls that it leaves are whole for the next one:

    source              its form                    it takes the mm           source for the next
    y = linear(x, w)    t = permute(w)              t = permute(w)            t = permute(w)
    z = gelu(y)         y = mm(x, t)        [tag]   y = mm(x, t)     [tag]    y = delegate(x, t)
                        a, b, … (gelu's)            z = gelu(y)               z = gelu(y)

`gelu`, of which it took no piece, is one call again; of `linear` a piece is gone, so the others stay pieces. Both
graphs on the right are rebuilt from the source by the same rules, so that a call is found again by its lasting name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot.delegation.partition import TAG, DependencyCycle, Partitioned, scheduled
from delegraph.aot.delegation.reexported import with_flat_calls
from delegraph.aot.edge.to_edge_dialect import to_edge_dialect
from delegraph.aot.functional.decompose import Keep, NodeFilter, is_composite
from delegraph.aot.functional.functionalize import functionalize
from delegraph.aot.graph.bodies import all_nodes, graph_modules
from delegraph.aot.graph.debug_handles import close_gaps
from delegraph.aot.graph.edit import copy_program
from delegraph.aot.graph.provenance import source_of
from delegraph.errors import LoweringError, foreign_code
from delegraph.interfaces.lowering import Partitioner

__all__ = [
    "any_keeps",
    "edge_program",
    "form_for_kernels",
    "form_of",
    "kept_whole",
    "onto_source",
    "transformed_for_pre_decomposition",
]


def edge_program(exported: ExportedProgram, partitioner: Partitioner | None = None) -> ExportedProgram:
    """An exported program as `partitioner` would see it: in the edge dialect, with what it asks for whole.

    Without one, everything is decomposed. No passes are run and nothing is verified. Raises `LoweringError`, as
    lowering does.
    """
    keep: Keep = {}
    if partitioner is not None:
        name = type(partitioner).__name__
        exported = transformed_for_pre_decomposition(exported, {name: partitioner})
        keep = kept_whole(exported, partitioner, name)
    program = _in_edge_dialect(with_flat_calls(exported), keep)
    close_gaps(program.graph_module)
    return program


def transformed_for_pre_decomposition(
    program: ExportedProgram, partitioners: Mapping[str, Partitioner]
) -> ExportedProgram:
    """An exported program as `partitioners`, by the names that reports call them, change it, one after the other.

    Raises `LoweringError` naming the partitioner for what it raises, and for anything but a program.
    """
    for name, partitioner in partitioners.items():
        hook = partitioner.transform_for_pre_decomposition
        if getattr(hook, "__func__", None) is Partitioner.transform_for_pre_decomposition:
            continue
        told = f"partitioner {name}: its transform_for_pre_decomposition"
        with foreign_code(f"{told} raised"):
            transformed = hook(copy_program(program))
        if not isinstance(transformed, ExportedProgram):
            raise LoweringError(f"{told} returned {type(transformed).__name__} instead of an ExportedProgram")
        program = transformed
    return program


def kept_whole(program: ExportedProgram, partitioner: Partitioner, name: str) -> Keep:
    """The operators that `partitioner`, which reports call `name`, asks to see whole.

    Raises `LoweringError` for an operator that cannot be kept: one that changes its arguments.
    """
    operators, accepts = partitioner.ops_to_not_decompose(program)
    for op in operators:
        if op._schema.is_mutable:
            raise LoweringError(
                f"partitioner {name} asks to keep {op}, which changes its arguments; name its functional form"
            )
    return dict.fromkeys(operators, accepts)


def any_keeps(keeps: Iterable[Keep]) -> Keep:
    """The operators that stay whole if any of several partitioners is to see them whole."""
    accepting: dict[OpOverload, list[NodeFilter | None]] = {}
    for keep in keeps:
        for op, accepts in keep.items():
            accepting.setdefault(op, []).append(accepts)
    return {op: _any_of(filters) for op, filters in accepting.items()}


def _any_of(filters: Sequence[NodeFilter | None]) -> NodeFilter | None:
    real = [accepts for accepts in filters if accepts is not None]
    if len(real) < len(filters):
        return None
    return lambda node: any(accepts(node) for accepts in real)


def form_for_kernels(
    source: ExportedProgram, preserved: Collection[OpOverload], whole: Collection[OpOverload]
) -> ExportedProgram:
    """`source` with the calls of `whole` operators that no backend took decomposed, except the `preserved` ones."""
    return form_of(source, dict.fromkeys(preserved), whole)


def form_of(source: ExportedProgram, keep: Keep, whole: Collection[OpOverload]) -> ExportedProgram:
    """`source` with the operators in `whole` decomposed, except where `keep` has them; itself if nothing is to be done.

    The calls that are decomposed become pieces of the name (`graph.provenance`).
    """
    if not any(_is_decomposed(node, keep, whole) for node in all_nodes(source.graph_module)):
        return source
    return _in_edge_dialect(source, keep, lambda node: node.target in whole)


def _in_edge_dialect(program: ExportedProgram, keep: Keep, only: NodeFilter | None = None) -> ExportedProgram:
    return to_edge_dialect(functionalize(program, keep, only))


def _is_decomposed(node: Node, keep: Keep, whole: Collection[OpOverload]) -> bool:
    if not isinstance(node.target, OpOverload) or node.target not in whole or not is_composite(node.target):
        return False
    if node.target not in keep:
        return True
    accepts = keep[node.target]
    return accepts is not None and not accepts(node)


def onto_source(
    source: ExportedProgram, partitioned: Partitioned, keep: Keep, whole: Collection[OpOverload]
) -> Partitioned:
    """The choice that was made on a form of `source`, on `source` itself: only calls of which a piece was taken are
    decomposed."""
    form = partitioned.program
    if form is source or not partitioned.tags:
        return partitioned if form is source else replace(partitioned, program=source, order={})
    calls = {source_of(node) for node in all_nodes(source.graph_module)}
    call_of = {name: _call_of(name, calls) for name in _names(form)}
    decomposed = {call for name, call in call_of.items() if name not in calls}
    taken = {call_of[source_of(node)] for node in all_nodes(form.graph_module) if TAG in node.meta} & decomposed
    while True:  # decompose no more calls than a schedule needs
        program = form
        if taken != decomposed:
            program = _decomposed(source, keep, whole, taken)
            _copy_tags(form, program)
        try:
            return replace(partitioned, program=program, order=scheduled(program))
        except DependencyCycle as cycle:
            # a call with several results can stand before and behind one partition: only its pieces can be scheduled
            #     a, b = whole(x)   [behind tag 0, before tag 0]      ->      a = piece(x);  b = other_piece(x)
            in_the_way = {source_of(node) for _, nodes in cycle.groups for node in nodes} & (decomposed - taken)
            taken = taken | (in_the_way or decomposed)


def _decomposed(
    source: ExportedProgram, keep: Keep, whole: Collection[OpOverload], calls: Collection[str]
) -> ExportedProgram:
    """As `form_of`, but only the calls of these lasting names are decomposed."""

    return _in_edge_dialect(source, keep, lambda node: node.target in whole and source_of(node) in calls)


def _call_of(name: str, calls: Collection[str]) -> str:
    """The call among `calls` that `name` is, or is a piece of; itself if there is none."""
    call = name
    while call not in calls and "/" in call:
        call = call.rpartition("/")[0]
    return call if call in calls else name


def _names(program: ExportedProgram) -> set[str]:
    return {source_of(node) for node in all_nodes(program.graph_module)}


def _copy_tags(tagged: ExportedProgram, program: ExportedProgram) -> None:
    """Give the nodes of `program` the tags that those of the same lasting names have in `tagged`, and what else the
    partitioner noted for its compiler: on these, and on what they read."""
    notes = {
        (path, source_of(noted)): noted.meta
        for path, module in graph_modules(tagged.graph_module)
        for node in module.graph.nodes
        if TAG in node.meta
        for noted in (node, *node.all_input_nodes)
    }
    for path, module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            noted = notes.get((path, source_of(node)), {})
            node.meta.update({key: note for key, note in noted.items() if key == TAG or key not in node.meta})
