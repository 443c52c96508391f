"""Debug handles: what was made of one call of the exported program has one number, everywhere."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.fx import Node

from delegraph.aot import PassResult, edge_program, graph_modules, to_edge
from delegraph.aot.graph.debug_handles import highest_handle


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        y = nn.functional.hardswish(self.linear(self.linear(x)))
        return torch.cond(y.sum() > 0, lambda y: y.sin() + 1, lambda y: y.cos() * 2, (y,)), y


def exported() -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(Model(), (torch.ones(2, 3),))


def handles(program: torch.export.ExportedProgram) -> list[tuple[str, Any]]:
    nodes = [node for _, module in graph_modules(program.graph_module) for node in module.graph.nodes]
    return [(node.name, node.meta.get("debug_handle")) for node in nodes]


def test_every_call_has_the_handle_of_the_call_that_it_was_made_of() -> None:
    """As ExecuTorch 1.4.1 numbers them: pieces share theirs, bodies continue, references go with their call."""
    program = to_edge(exported()).exported_program()
    numbered = [handle for _, handle in handles(program) if handle is not None]
    linear, hardswish, cond = [1, 1, 2, 2], [3] * 5, [6] * 4
    assert numbered == [*linear, *hardswish, 4, 5, *cond, *[7, 8, 8], *[9, 10, 10]]
    without = [node for node in program.graph.nodes if "debug_handle" not in node.meta]
    assert {node.op for node in without} == {"placeholder", "output"}


def test_what_torch_decomposed_before_counts_as_what_it_was() -> None:
    with torch.no_grad():
        program = torch.export.export(Model(), (torch.ones(2, 3),), strict=True).run_decompositions()
    numbered = [handle for _, handle in handles(to_edge(program).exported_program()) if handle is not None]
    assert numbered[:9] == [1, 1, 2, 2, 3, 3, 3, 3, 3]


def test_what_lowering_removes_leaves_no_gaps() -> None:
    class Removed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.to(torch.float32).view(x.shape)
            return (y.sin().contiguous() + 1).cos()

    program = torch.export.export(Removed(), (torch.ones(2, 3),))
    edge = to_edge(program).exported_program()
    numbered = [(name, handle) for name, handle in handles(edge) if handle is not None]
    assert numbered == [("aten_sin_default", 1), ("aten_add_tensor", 2), ("aten_cos_default", 3)]
    assert [*dict(handles(edge_program(program))).values()] == [*dict(handles(edge)).values()]


def test_calls_that_a_pass_adds_get_handles_of_their_own_and_edge_operators() -> None:
    def add_neg(module: torch.fx.GraphModule) -> PassResult:
        (last,) = (node for node in module.graph.nodes if node.name == "aten_div_tensor")
        with module.graph.inserting_after(last):
            added: Node = module.graph.call_function(torch.ops.aten.neg.default, (last,))
        added.meta["val"] = last.meta["val"]
        return PassResult(module, True)

    before = to_edge(exported())
    highest = highest_handle(before.exported_program().graph_module)
    program = before.transform([add_neg]).exported_program()
    assert dict(handles(program))["neg_default"] == highest + 1
    (added,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten.neg.default)
    assert added.target.__name__ == "aten.neg.default"


def test_the_given_program_is_left_without() -> None:
    program = exported()
    to_edge(program)
    assert not any(handle for _, handle in handles(program))


def test_instructions_are_known_by_the_handles_of_what_they_run() -> None:
    manager = to_edge(exported()).to_executorch()
    used = set(manager.debug_handle_map["forward"].values())
    assert used <= set(range(1, 11)) and {1, 3, 7, 10} <= used
