"""ExecuTorch's passes on graphs of ours: while one of them runs they are in its dialect, and its result is in ours.

    our graph                               while the pass runs
    exir_ops.edge.aten.relu.default         the wheel's object for the operator, which its passes compare with
    the verifier of an ExportedProgram      the wheel's
    the output node                         has the values that the program gives, as `meta["val"]`
    the program that the pass was made with the one that `transform` works on

That happens where passes are called: in `transform` and its like by `adapted_pass`, and in the methods `call` and
`__call__` of the wheel's base classes (`see_our_graphs`), so that `TheirPass()(graph_module)` does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import isfunction
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import rebind_unbacked

from delegraph.aot import (
    BackendOpOverload,
    EdgeOpOverload,
    ExportedProgramPassBase,
    ExportedProgramPassResult,
    exir_ops,
    graph_modules,
    program_with_graph,
)
from delegraph.errors import LoweringError
from delegraph_executorch.bridge.imports import executorch
from delegraph_executorch.bridge.programs import edge_verifier, note_outputs

__all__ = ["adapted_pass", "adapted_passes", "see_our_graphs"]


class _AdaptedPass(ExportedProgramPassBase):
    """A pass of graphs or of programs: of ExecuTorch, or one of ours that was made with a program."""

    def __init__(self, graph_pass: Any, is_theirs: bool) -> None:
        self.graph_pass, self.is_theirs = graph_pass, is_theirs
        self.__name__ = _name(graph_pass)

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        base = executorch("exir.pass_base:ExportedProgramPassBase") if self.is_theirs else ExportedProgramPassBase
        taken = exported_program if isinstance(self.graph_pass, base) else exported_program.graph_module
        with _made_with(exported_program, self.graph_pass):
            result = _run(self.graph_pass, self.graph_pass, taken) if self.is_theirs else self.graph_pass(taken)
        program = getattr(result, "exported_program", None)
        if program is None:
            module = exported_program.graph_module if result is None else getattr(result, "graph_module", result)
            program = program_with_graph(exported_program, module)
        return ExportedProgramPassResult(program, getattr(result, "modified", True))


def adapted_pass(graph_pass: Any) -> Any:
    """A pass as `transform` takes it: adapted if its class, or the function, is ExecuTorch's or derived from one, or if
    it was made with a program; itself otherwise."""
    kinds = (graph_pass,) if isfunction(graph_pass) else type(graph_pass).__mro__
    is_theirs = any(kind.__module__.startswith("executorch.") for kind in kinds)
    has_program = any(isinstance(value, ExportedProgram) for value in _attributes(graph_pass).values())
    return _AdaptedPass(graph_pass, is_theirs) if is_theirs or has_program else graph_pass


def adapted_passes(passes: Any) -> Any:
    """`adapted_pass` of each in a list, or in lists by method name; a pass manager is itself."""
    if isinstance(passes, Mapping):
        return {method: adapted_passes(own) for method, own in passes.items()}
    return [*map(adapted_pass, passes)] if isinstance(passes, (list, tuple)) else passes


def _name(graph_pass: Any) -> str:
    name: str = getattr(graph_pass, "__name__", type(graph_pass).__name__)
    return name


@contextmanager
def _made_with(program: ExportedProgram, graph_pass: Any) -> Iterator[None]:
    """Within the block the pass has `program` where it was made with one, whose weights and signature it may change."""
    programs = {name: value for name, value in _attributes(graph_pass).items() if isinstance(value, ExportedProgram)}
    try:
        _attributes(graph_pass).update(dict.fromkeys(programs, program))
        yield
    finally:
        _attributes(graph_pass).update(programs)


def _attributes(graph_pass: Any) -> dict[str, Any]:
    return getattr(graph_pass, "__dict__", {})


# ---- the two dialects ------------------------------------------------------------------------------


def _run(graph_pass: Any, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a method of the pass: all graphs that it gets and that it has are in its dialect."""
    involved = [*args, *kwargs.values(), *_attributes(graph_pass).values()]
    programs = [value for value in involved if isinstance(value, ExportedProgram)]
    if not any(isinstance(node.target, EdgeOpOverload) for node in _nodes(involved)):
        return method(*args, **kwargs)
    verifiers = [(program, program._verifiers) for program in programs]
    for node in _nodes(involved):
        if isinstance(node.target, EdgeOpOverload):
            node.target = _theirs(node.target)
        elif node.op == "output":
            note_outputs(node)
    for program in programs:
        program._verifiers = [edge_verifier()]
    result: Any = None
    try:
        with _symbols_kept():
            result = method(*args, **kwargs)
    finally:
        for program, own in verifiers:
            program._verifiers = own
        _bring_back(
            graph_pass, [*involved, *(getattr(result, name, None) for name in ("graph_module", "exported_program"))]
        )
    made = getattr(result, "exported_program", None)
    if made is not None and verifiers:
        made._verifiers = verifiers[0][1]
    return result


@contextmanager
def _symbols_kept() -> Iterator[None]:
    """Within the block a number of a tensor keeps its symbol when a graph is traced again.

    n = item(x)    ->    n, of the new symbol u11, is u0, of which the program knows what it is smaller than
    """
    interpreter = executorch("exir.pass_base:_ExportPassBase").ExportInterpreter
    own = interpreter.run_node

    def run_node(self: Any, n: Node) -> Any:
        result = own(self, n)
        number = n.meta.get("val")
        if n.target == torch.ops.aten._local_scalar_dense.default and isinstance(number, torch.SymInt):
            n.meta["unbacked_bindings"] = {number.node.expr: ()}
            rebind_unbacked(number.node.shape_env, n, result.data)
        return result

    interpreter.run_node = run_node
    try:
        yield
    finally:
        interpreter.run_node = own


def _nodes(values: Iterable[Any]) -> Iterator[Node]:
    """The nodes of those of `values` that are graph modules or programs, bodies of control flow included."""
    for value in values:
        module = value.graph_module if isinstance(value, ExportedProgram) else value
        if isinstance(module, GraphModule):
            for _, body in graph_modules(module):
                yield from body.graph.nodes


def _bring_back(graph_pass: Any, values: Iterable[Any]) -> None:
    """Let calls of ExecuTorch's operators be ours. Raises `LoweringError` for a call of another thing there."""
    kind = executorch("exir.dialects.edge._ops:EdgeOpOverload")
    for node in _nodes(values):
        target: Any = node.target
        if isinstance(target, kind):
            node.target = _ours(target)
        elif node.op == "call_function" and _is_theirs(target):
            raise LoweringError(
                f"ExecuTorch's pass {_name(graph_pass)} left a call of {target.__module__}.{target.__name__} in the"
                f" graph, node {node.name!r}, which its own later stages alone know; leave the pass out:"
                " `to_executorch` plans memory, and elides views, without it"
            )


def _is_theirs(target: Any) -> bool:
    module = getattr(target, "__module__", None) or ""
    return not isinstance(target, EdgeOpOverload) and module.startswith("executorch.")


def _theirs(op: EdgeOpOverload) -> Any:
    return _named(executorch("exir.dialects._ops:ops"), op, isinstance(op, BackendOpOverload))


def _ours(op: Any) -> Any:
    return _named(exir_ops, op, isinstance(op, executorch("exir.dialects.backend._ops:BackendOpOverload")))


def _named(operators: Any, op: Any, of_backends: bool) -> Any:
    namespace, _, name = op._op._schema.name.partition("::")
    dialect = operators.backend if of_backends else operators.edge
    return getattr(getattr(getattr(dialect, namespace), name), op._op._overloadname)


# ---- passes that are called by hand ----------------------------------------------------------------


def see_our_graphs(pass_base: Any) -> None:
    """Let passes derived from the classes of `executorch.exir.pass_base`, now or later, run on our graphs as well."""
    for base in (pass_base._ExportPassBase, pass_base.ExportedProgramPassBase):
        base.__call__ = base.__call__  # which may be torch's, and is not to be changed there
        kinds = [base]
        for kind in kinds:
            _let_run(kind)
            kinds += kind.__subclasses__()
        base.__init_subclass__ = classmethod(_let_run)


def _let_run(kind: Any, /, **_options: Any) -> None:
    for name in ("call", "__call__"):
        method = vars(kind).get(name)
        if isfunction(method):
            setattr(kind, name, _seeing_our_graphs(method))


def _seeing_our_graphs(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _run(self, method.__get__(self), *args, **kwargs)

    return run
