"""(program, passes) -> program, each pass checked before and after it ran."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule

from delegraph.aot.edge.dialects import Dialect, verify
from delegraph.aot.edge.edge_ops import use_edge_operators
from delegraph.aot.graph.bodies import attributes, output_values
from delegraph.aot.graph.debug_handles import fill_debug_handles
from delegraph.aot.graph.edit import copy_program, rebuild
from delegraph.errors import LoweringError, foreign_code
from delegraph.interfaces.graph_pass import ExportedProgramPassBase, ExportedProgramPassResult, GraphPass

__all__ = ["program_with_graph", "run_passes"]


def run_passes(
    program: ExportedProgram,
    passes: Iterable[GraphPass],
    dialect: Dialect | None,
    kept: Collection[OpOverload] = (),
) -> ExportedProgram:
    """A new program with the passes applied in order; `program` is left as it was.

    Calls that a pass adds become calls of edge operators and get debug handles.

    Behind each pass the program has to be in `dialect` (None: nothing is asked of it) and in the pass's own
    `ensured_dialect`; before it, in its `required_dialect`. `kept` as in `verify`. Raises `VerificationError` where
    that does not hold, `LoweringError` naming the pass if one raises.
    """
    for graph_pass in passes:
        _verify(program, getattr(graph_pass, "required_dialect", None), kept)
        program = _run(copy_program(program), graph_pass)
        use_edge_operators(program.graph_module)
        fill_debug_handles(program.graph_module)
        _verify(program, dialect, kept)
        _verify(program, getattr(graph_pass, "ensured_dialect", None), kept)
    return program


def _verify(program: ExportedProgram, dialect: Dialect | None, kept: Collection[OpOverload]) -> None:
    if dialect is not None:
        verify(program, dialect, kept)


def _run(program: ExportedProgram, graph_pass: GraphPass) -> ExportedProgram:
    name = getattr(graph_pass, "__name__", type(graph_pass).__name__)
    of_program = isinstance(graph_pass, ExportedProgramPassBase)
    with foreign_code(f"pass {name} failed:"):
        result = graph_pass(program if of_program else program.graph_module)  # type: ignore[arg-type]
    return _of_program_pass(result, name) if of_program else _of_graph_pass(program, result, name)


def _of_program_pass(result: object, name: str) -> ExportedProgram:
    if not isinstance(result, ExportedProgramPassResult):
        raise LoweringError(
            f"pass {name} returned {type(result).__name__}; an ExportedProgramPassBase returns an"
            " ExportedProgramPassResult"
        )
    result.exported_program.graph.lint()
    return result.exported_program


def _of_graph_pass(program: ExportedProgram, result: object, name: str) -> ExportedProgram:
    module = program.graph_module if result is None else getattr(result, "graph_module", result)
    if not isinstance(module, GraphModule):
        raise LoweringError(
            f"pass {name} returned {type(module).__name__}; expected a PassResult, a GraphModule or None"
        )
    module.graph.lint()
    _check_interface(program, module, name)
    return program_with_graph(program, module)


def program_with_graph(program: ExportedProgram, module: GraphModule) -> ExportedProgram:
    """`program` with what a pass has made of its graph, which takes and gives the same.

    Inputs are told by name, or, where names are others but as many, by position. State and constants are shared; torch
    checks the result.
    """
    new = rebuild(program, attributes(module), module.graph, program.graph_signature.output_specs)
    new.graph_module.meta = dict(module.meta)
    return new


def _check_interface(program: ExportedProgram, module: GraphModule, name: str) -> None:
    """Raise `LoweringError` unless the graph takes and gives what the program does: a graph alone has no signature.
    Weights may be missing: they are gone then."""
    signature = program.graph_signature
    inputs, outputs = module.graph.find_nodes(op="placeholder"), output_values(module.graph)
    specs = {spec.arg.name: spec for spec in signature.input_specs}
    new = [node.name for node in inputs if node.name not in specs and "constant_name" not in node.meta]
    names = {node.name for node in inputs}
    gone = [n for n, spec in specs.items() if spec.kind is InputKind.USER_INPUT and n not in names]
    renamed = len(inputs) == len(specs)
    changed = [
        *([] if renamed else [f"a new input {each!r}" for each in new] + [f"no input {each!r}" for each in gone]),
        *([f"{len(outputs)} outputs for {n}"] if len(outputs) != (n := len(signature.output_specs)) else []),
    ]
    if changed:
        raise LoweringError(
            f"pass {name} leaves {', '.join(changed)}; a pass that changes what a program takes or gives is an"
            " ExportedProgramPassBase, which changes its graph_signature too"
        )
