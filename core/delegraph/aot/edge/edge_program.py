"""ExportedProgram -> edge program; and back down to core operators where a kept one was not taken."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from torch._ops import OpOverload
from torch.export import ExportedProgram

from delegraph.aot.edge.dialects import ATEN, EDGE, FUNCTIONAL, Dialect, verify
from delegraph.aot.edge.to_edge_dialect import to_edge_dialect
from delegraph.aot.functional.decompose import Keep, NodeFilter, is_composite
from delegraph.aot.functional.functionalize import functionalize
from delegraph.aot.graph.bodies import all_nodes
from delegraph.errors import LoweringError
from delegraph.interfaces.lowering import Partitioner

__all__ = ["EdgeCompileConfig", "any_keeps", "decompose_leftovers", "kept_whole", "make_edge_program"]


@dataclass(frozen=True, slots=True)
class EdgeCompileConfig:
    """How edge programs are made. Names are ExecuTorch's (`exir/capture/_config.py`).

    `preserve_ops` stay whole whatever the backends ask for (each then needs a kernel or a backend);
    `_core_aten_ops_exception_list` are admitted although they are not core; without `_check_ir_validity` nothing is
    verified.
    """

    preserve_ops: Sequence[OpOverload] = ()
    _core_aten_ops_exception_list: Sequence[OpOverload] = ()
    _check_ir_validity: bool = True
    allowed_ops: frozenset[OpOverload] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "allowed_ops", frozenset({*self.preserve_ops, *self._core_aten_ops_exception_list}))


def make_edge_program(program: ExportedProgram, keep: Keep, config: EdgeCompileConfig) -> ExportedProgram:
    """One method, functionalised, decomposed as far as `keep` allows and rewritten to the edge dialect.

    Raises `VerificationError` where it is not in the dialect, and `LoweringError` for what cannot be expressed.
    """
    keep = {**keep, **dict.fromkeys(config.preserve_ops)}
    _check(program, ATEN, (), config)
    functional = functionalize(program, keep)
    _check(functional, FUNCTIONAL, keep, config)
    edge = to_edge_dialect(functional)
    _check(edge, EDGE, {*keep, *config.allowed_ops}, config)
    return edge


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
    """What stays whole if one of several partitioners is to see it whole."""
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


def decompose_leftovers(
    program: ExportedProgram, kept: Collection[OpOverload], config: EdgeCompileConfig
) -> ExportedProgram:
    """Decompose the nodes that were kept for a backend which then did not take them."""
    leftover = {op for op in kept if op not in config.preserve_ops and is_composite(op)}
    if not any(node.target in leftover for node in all_nodes(program.graph_module)):
        return program
    return to_edge_dialect(functionalize(program, {}, only=lambda node: node.target in leftover))


def _check(program: ExportedProgram, dialect: Dialect, kept: Collection[OpOverload], config: EdgeCompileConfig) -> None:
    if config._check_ir_validity:
        verify(program, dialect, kept)
