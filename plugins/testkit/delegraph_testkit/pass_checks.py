"""Passes: numbers stay, nodes say what they give and where they come from, and nothing but the result is changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

from delegraph.aot import EdgeProgramManager, ExportedProgramPassBase, copy_program, graph_modules, user_location
from delegraph.plugins import default_registry
from delegraph_testkit.bench import Bench, Stored
from delegraph_testkit.edge_programs import content, described, edge_programs
from delegraph_testkit.lowering import asked_for, to_array
from delegraph_testkit.models import example
from delegraph_testkit.outcomes import Declined
from delegraph_testkit.running import check_call

__all__ = [
    "a_pass_is_made",
    "changes_are_told",
    "numbers_are_kept",
    "origins_are_kept",
    "running_it_again_ends",
    "the_model_is_left_alone",
    "transforming_is_repeatable",
    "values_are_described",
]

_RUNS: Final = 8
"""Runs after which a pass that still changes what it has made is taken to go on for ever."""


def a_pass_is_made(bench: Bench) -> None:
    """Its factory makes something that can be called with a graph module, or with a program."""
    made = _made(bench)
    assert callable(made), f"its factory made {made!r}, which cannot be called"


def numbers_are_kept(bench: Bench, stored: Stored) -> None:
    """In eager mode the program gives the results of the model, after the pass as before it."""
    after = _transformed(bench, edge_programs(example(stored.name)))
    run = {method: after.exported_program(method).module() for method in after.methods}
    for number, call in enumerate(stored.calls):
        with torch.no_grad():
            results = pytree.tree_leaves(run[call.method](*map(torch.from_numpy, call.inputs)))
        check_call(bench, call, list(map(to_array, results)), f"{stored.name}, call {number} of {call.method!r}")


def values_are_described(bench: Bench, stored: Stored) -> None:
    """Each node's `meta["val"]` has the shape and dtype of the tensor that the node gives."""
    after = _transformed(bench, edge_programs(example(stored.name)))
    for call in stored.calls[:1]:
        program = after.exported_program(call.method)
        with torch.no_grad():
            _Comparing(program.graph_module, stored.name).run(*_inputs(program, call.inputs))


class _Comparing(Interpreter):
    """Runs a graph, and compares what each node gives with what it says."""

    def __init__(self, module: GraphModule, model: str) -> None:
        super().__init__(module)
        self._model = model

    def run_node(self, node: Node) -> Any:
        actual, value = super().run_node(node), node.meta.get("val")
        if isinstance(actual, torch.Tensor) and isinstance(value, torch.Tensor):
            told, real = (f"{each.dtype} {tuple(each.shape)}" for each in (value, actual))
            assert told == real, f"{self._model}: {node.name} gives {real}, and its meta['val'] says {told}"
        return actual


def _inputs(program: ExportedProgram, arrays: Any) -> Iterator[Any]:
    """The inputs of a program's graph: weights, and those of a call."""
    own, weights = map(torch.from_numpy, arrays), {**program.constants, **program.state_dict}
    for spec in program.graph_signature.input_specs:
        yield next(own) if spec.kind is InputKind.USER_INPUT else weights[str(spec.target)]


def origins_are_kept(bench: Bench, stored: Stored) -> None:
    """Each call has the debug handle and the stack trace of one in the program before the pass.

    Reports, profiles and errors lead to the user's line by them.
    """
    before = edge_programs(example(stored.name))
    for method in before.methods:
        program = before.exported_program(method)
        calls = _calls(program.graph_module)
        handles = {handle for node in calls for handle in _handles(node)}
        traced = all(map(user_location, calls))
        for node in _calls(_applied(bench, program).module):
            own = _handles(node)
            lost = [] if own and handles.issuperset(own) else ["debug handle"]
            lost += ["stack trace"] if traced and not user_location(node) else []
            assert not lost, (
                f"{stored.name}: {node.name} ({node.target}) has no {' and no '.join(lost)} of the program before the"
                " pass: give it the meta of the call that it is there for"
            )


def _calls(module: GraphModule) -> list[Node]:
    return [node for _, body in graph_modules(module) for node in body.graph.nodes if node.op == "call_function"]


def _handles(node: Node) -> tuple[int, ...]:
    handle = node.meta.get("debug_handle", ())
    return (handle,) if isinstance(handle, int) else tuple(handle)


def the_model_is_left_alone(bench: Bench, stored: Stored) -> None:
    """The program before the pass, with its weights, stays as it was: the user goes on with it."""
    before = edge_programs(example(stored.name))
    kept = [content(before, method) for method in sorted(before.methods)]
    _transformed(bench, before)
    same = kept == [content(before, method) for method in sorted(before.methods)]
    assert same, f"{stored.name}: the pass changed the program that it got a copy of; weights are shared: make new ones"


def transforming_is_repeatable(bench: Bench, stored: Stored) -> None:
    """The same program becomes the same program, each time."""
    before = edge_programs(example(stored.name))
    once, again = (_transformed(bench, before) for _ in range(2))
    same = all(content(once, method) == content(again, method) for method in before.methods)
    assert same, f"{stored.name} is two different programs after the pass has run on it twice"


def changes_are_told(bench: Bench, stored: Stored) -> None:
    """A pass that says `modified=False` has left the program as it was: managers of passes end by that."""
    before = edge_programs(example(stored.name))
    for method in before.methods:
        program = before.exported_program(method)
        applied = _applied(bench, program)
        same = applied.modified or described(applied.module) == described(program.graph_module)
        assert same, f"{stored.name}: the pass says modified=False, and has changed the graph of {method!r}"


@dataclass(frozen=True, slots=True)
class _Applied:
    """The graph as a pass itself has left it, and whether it says that it has changed it."""

    module: GraphModule
    modified: bool


def _applied(bench: Bench, program: ExportedProgram) -> _Applied:
    copy, graph_pass = copy_program(program), _made(bench)
    if isinstance(graph_pass, ExportedProgramPassBase):
        result = graph_pass(copy)
        return _Applied(result.exported_program.graph_module, result.modified)
    told = graph_pass(copy.graph_module)
    module = copy.graph_module if told is None else getattr(told, "graph_module", told)
    return _Applied(module, getattr(told, "modified", True))


def running_it_again_ends(bench: Bench, stored: Stored) -> str:
    """The pass runs on what it has made, and soon changes nothing more; one that always does says so in its report."""
    programs = _transformed(bench, edge_programs(example(stored.name)))
    last = [content(programs, method) for method in sorted(programs.methods)]
    for runs in range(1, _RUNS):
        programs = _transformed(bench, programs)
        now = [content(programs, method) for method in sorted(programs.methods)]
        if now == last:
            return f"{stored.name}: it has made all of its changes after {runs} runs" if runs > 1 else ""
        last = now
    raise Declined(f"{stored.name}: it still changes what it has made after {_RUNS} runs: run it once")


def _transformed(bench: Bench, programs: EdgeProgramManager) -> EdgeProgramManager:
    return programs.transform([asked_for(bench.subject)])


def _made(bench: Bench) -> Any:
    return default_registry().create("passes", bench.subject.name, bench.subject.claims.options)
