"""The built-in passes, each alone: its graph before and after, line by line, and that the program still computes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.golden_graph_cases import CASES

from delegraph.aot.edge.dialects import EDGE
from delegraph.aot.graph.memory_use import MemoryUse, clear_memory_use, memory_use
from delegraph.aot.graph.text import graph_text, program_text
from delegraph.aot.lower import to_edge
from delegraph.aot.passes import ExportedProgramPassBase, run_passes
from delegraph.aot.passes.view_elision import ViewElision
from delegraph.errors import LoweringError

GOLDEN = Path(__file__).with_name("golden_graphs")


@pytest.mark.parametrize("name", CASES)
def test_the_graph_before_and_after(name: str, request: pytest.FixtureRequest) -> None:
    """`--renew` writes the files anew."""
    case = CASES[name]
    edge = to_edge(case.export()).exported_program()
    before = program_text(edge)
    after = run_passes(edge, [case.graph_pass], EDGE)
    assert program_text(edge) == before, "the pass edited its caller's program"
    assert program_text(run_passes(edge, [case.graph_pass], EDGE)) == program_text(after)
    text = f"before\n\n{before}\nafter\n\n{program_text(after)}"
    path = GOLDEN / f"{name}.txt"
    if request.config.getoption("--renew"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), "a new case: run with --renew"
    assert text == path.read_text()


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_program_computes_what_it_did(name: str) -> None:
    case = CASES[name]
    one, other = (to_edge(case.export()).exported_program() for _ in range(2))  # each has a state of its own
    args = tuple(torch.arange(float(torch.Size(shape).numel())).reshape(shape) for shape in case.shapes)
    wanted = one.module()(*args)
    got = run_passes(other, [case.graph_pass], EDGE).module()(*args)
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)


def test_marks_of_an_earlier_run_do_not_count() -> None:
    edge = to_edge(CASES["view_elision_same_bytes"].export())
    marked = run_passes(edge.exported_program(), [ViewElision()], EDGE)
    views = [node for node in marked.graph.nodes if memory_use(node) is MemoryUse.VIEW]
    assert len(views) == 2
    clear_memory_use(marked.graph_module, (MemoryUse.IN_PLACE,))
    assert all(memory_use(node) is MemoryUse.VIEW for node in views)
    clear_memory_use(marked.graph_module)
    assert not any(memory_use(node) for node in marked.graph.nodes)


def test_a_body_that_two_calls_enter_shares_no_memory_with_either() -> None:
    edge = to_edge(CASES["view_elision_in_a_body"].export()).exported_program()
    alone = run_passes(edge, [ViewElision()], EDGE)
    assert MemoryUse.VIEW.value in program_text(alone)
    for node in edge.graph.find_nodes(op="get_attr"):
        if "false" in str(node.target):
            node.replace_all_uses_with(edge.graph.find_nodes(op="get_attr")[0])
    edge.graph.eliminate_dead_code()
    assert MemoryUse.VIEW.value not in program_text(run_passes(edge, [ViewElision()], EDGE))


def test_a_program_pass_returns_a_program() -> None:
    class Forgets(ExportedProgramPassBase):
        def call(self, program):  # type: ignore[no-untyped-def]
            return None

    edge = to_edge(CASES["view_elision_output"].export()).exported_program()
    with pytest.raises(LoweringError, match=r"pass Forgets returned NoneType; .* returns an ExportedProgramPassResult"):
        run_passes(edge, [Forgets()], EDGE)


def test_a_pass_may_edit_the_bodies_of_its_copy() -> None:
    def negate_less(module: torch.fx.GraphModule) -> None:
        for body in (held for _, held in module.named_children() if isinstance(held, torch.fx.GraphModule)):
            for node in body.graph.nodes:
                if node.target == torch.ops.aten.neg.default:
                    node.target = torch.ops.aten.abs.default

    edge = to_edge(CASES["view_elision_in_a_body"].export()).exported_program()
    before = program_text(edge)
    assert "aten.abs" in program_text(run_passes(edge, [negate_less], EDGE))
    assert program_text(edge) == before


def test_the_text_of_a_graph_alone() -> None:
    module = torch.fx.symbolic_trace(lambda x, y: torch.sum(x[1:, None] + y, dtype=torch.float32))
    assert graph_text(module) == (
        "inputs\n  %x\n  %y\ngraph\n  %getitem = getitem(%x, [1::, None])\n"
        "  %add = add(%getitem, %y)\n  %sum_1 = sum(%add, dtype=f32)\noutputs\n  %sum_1\n"
    )
