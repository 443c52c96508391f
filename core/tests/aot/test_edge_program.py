"""`edge_program`: what a partitioner would be shown, without lowering anything."""

from __future__ import annotations

import pytest
import torch
from torch.export import ExportedProgram, export

from delegraph.aot import Partitioner, PartitionResult, edge_program, program_text, to_edge, to_edge_transform_and_lower
from delegraph.errors import LoweringError

aten = torch.ops.aten


class Asks(Partitioner):
    """Asks for `operators` whole, remembers what it is shown, and takes nothing."""

    def __init__(self, *operators: torch._ops.OpOverload) -> None:
        self.operators = list(operators)
        self.shown = ""

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[torch._ops.OpOverload], None]:
        return self.operators, None

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        self.shown = program_text(exported_program)
        return PartitionResult(exported_program, {})


@pytest.fixture
def exported() -> ExportedProgram:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Hardswish(inplace=True)).eval()
    return export(model, (torch.randn(2, 4),))


def test_a_partitioner_is_shown_it_so(exported: ExportedProgram) -> None:
    partitioner = Asks(aten.linear.default)
    program = edge_program(exported, partitioner)
    assert aten.linear.default in {node.target for node in program.graph.nodes}
    to_edge_transform_and_lower(exported, partitioner=[partitioner])
    assert program_text(program) == partitioner.shown


def test_without_one_everything_is_decomposed(exported: ExportedProgram) -> None:
    program = edge_program(exported)
    assert aten.linear.default not in {node.target for node in program.graph.nodes}
    assert program_text(program) == program_text(to_edge(exported).exported_program())


def test_what_cannot_be_kept_is_refused(exported: ExportedProgram) -> None:
    with pytest.raises(LoweringError, match=r"Asks asks to keep aten.hardswish_.default, which changes its arguments"):
        edge_program(exported, Asks(aten.hardswish_.default))


# ---- what a partitioner changes before -------------------------------------------------------------


class WithoutActivation(Asks):
    """Has Hardswish replaced by what it reads, wherever it stands."""

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        for node in list(exported_program.graph.nodes):
            if node.target == aten.hardswish_.default:
                node.replace_all_uses_with(node.args[0])
                exported_program.graph.erase_node(node)
            elif node.op == "output":
                (spec,) = exported_program.graph_signature.output_specs
                spec.arg.name = node.args[0][0].name
        return exported_program


def test_partitioners_change_the_program_before_it_is_decomposed(exported: ExportedProgram) -> None:
    before, seen = program_text(exported), Asks()
    edge = to_edge_transform_and_lower(exported, partitioner=[WithoutActivation(), seen])
    assert "hardswish" not in program_text(edge.exported_program()) and "mul" not in seen.shown
    assert program_text(exported) == before
    assert program_text(edge_program(exported, WithoutActivation())) == seen.shown


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "partitioner Bad: its transform_for_pre_decomposition returned NoneType instead of an ExportedProgram"),
        (KeyError("x"), "partitioner Bad: its transform_for_pre_decomposition raised KeyError: 'x'"),
    ],
)
def test_what_a_partitioner_may_not_do_before(exported: ExportedProgram, result: object, message: str) -> None:
    class Bad(Asks):
        def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
            if isinstance(result, Exception):
                raise result
            return result  # type: ignore[return-value]

    with pytest.raises(LoweringError, match=message):
        to_edge_transform_and_lower(exported, partitioner=[Bad()])
