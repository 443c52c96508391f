"""(program, passes) -> program, each pass checked before and after it ran."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule

from delegraph.aot.edge.dialects import Dialect, verify
from delegraph.aot.graph.bodies import attributes
from delegraph.aot.graph.edit import copy_program, rebuild
from delegraph.errors import DelegraphError, LoweringError
from delegraph.interfaces.graph_pass import GraphPass, ProgramPass

__all__ = ["run_passes"]


def run_passes(
    program: ExportedProgram,
    passes: Iterable[GraphPass],
    dialect: Dialect | None,
    kept: Collection[OpOverload] = (),
) -> ExportedProgram:
    """A new program with the passes applied in order; `program` is left as it was.

    Behind each pass the program has to be in `dialect` (None: nothing is asked of it) and in what the pass itself
    ensures; before it, in what it requires. `kept` as in `verify`. Raises `VerificationError` where that does not hold,
    `LoweringError` naming the pass if one raises.
    """
    for graph_pass in passes:
        _verify(program, getattr(graph_pass, "requires", None), kept)
        program = _run(copy_program(program), graph_pass)
        _verify(program, dialect, kept)
        _verify(program, getattr(graph_pass, "ensures", None), kept)
    return program


def _verify(program: ExportedProgram, dialect: Any, kept: Collection[OpOverload]) -> None:
    if dialect is not None:
        verify(program, dialect, kept)


def _run(program: ExportedProgram, graph_pass: GraphPass) -> ExportedProgram:
    name = getattr(graph_pass, "__name__", type(graph_pass).__name__)
    try:
        result = graph_pass(program) if isinstance(graph_pass, ProgramPass) else graph_pass(program.graph_module)
    except DelegraphError:
        raise
    except Exception as cause:
        raise LoweringError(f"pass {name} failed: {cause}") from cause
    if isinstance(graph_pass, ProgramPass):
        return _checked(result, name)
    module = program.graph_module if result is None else getattr(result, "graph_module", result)
    if not isinstance(module, GraphModule):
        raise LoweringError(
            f"pass {name} returned {type(module).__name__}; expected a PassResult, a GraphModule or None"
        )
    module.graph.lint()
    return rebuild(program, attributes(module), module.graph, program.graph_signature.output_specs)


def _checked(result: Any, name: str) -> ExportedProgram:
    if not isinstance(result, ExportedProgram):
        raise LoweringError(f"pass {name} returned {type(result).__name__}; a ProgramPass returns an ExportedProgram")
    result.graph.lint()
    return result
