"""Backends and partitioners under ExecuTorch's paths."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._export.verifier import SpecViolationError
from torch.export import ExportedProgram, export
from torch.fx import GraphModule, Node
from torch.fx.passes.operator_support import OperatorSupportBase

from delegraph.aot import to_edge, to_edge_transform_and_lower
from delegraph.errors import InvalidPartition, LoweringError, PluginNotFound, PreprocessError, VerificationError
from delegraph_executorch.devtools.backend_debug import get_delegation_info, print_delegation_info
from delegraph_executorch.exir import to_edge as executorch_to_edge
from delegraph_executorch.exir._serialize._named_data_store import NamedDataStore
from delegraph_executorch.exir.backend.backend_api import to_backend
from delegraph_executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from delegraph_executorch.exir.backend.canonical_partitioners.all_node_partitioner import AllNodePartitioner
from delegraph_executorch.exir.backend.canonical_partitioners.duplicate_constant_node_pass import (
    duplicate_constant_node,
)
from delegraph_executorch.exir.backend.canonical_partitioners.group_partitioner import GroupBasedPartitioner
from delegraph_executorch.exir.backend.canonical_partitioners.pattern_op_partitioner import (
    generate_partitions_from_list_of_nodes,
    generate_pattern_op_partitions,
)
from delegraph_executorch.exir.backend.compile_spec_schema import CompileSpec
from delegraph_executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from delegraph_executorch.exir.backend.utils import (
    WhyNoPartition,
    WhyNoPartitionReporter,
    format_delegated_graph,
    get_delegated_payload,
    get_delegates,
    get_non_lowered_nodes,
    is_identical_graph,
    tag_constant_data,
)
from delegraph_executorch.exir.delegate import executorch_call_delegate, is_lowered_module
from delegraph_executorch.exir.lowered_backend_module import (
    get_lowered_backend_modules,
    get_lowered_submodules,
)
from delegraph_executorch.exir.schema import DelegateCall

X = torch.randn(2, 4)


class ListsOperators(BackendDetails):
    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        names = [node.target.__name__ for node in edge_program.graph.nodes if node.op == "call_function"]
        if "aten.cos.default" in names:
            raise RuntimeError("aten.cos.default is not supported")
        return PreprocessResult(";".join(names).encode())


class SharesData(BackendDetails):
    """Its delegates share a blob by key."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        store = NamedDataStore()
        store.add_named_data("shared", b"weights")
        return PreprocessResult(b"blob", data_store_output=store.get_named_data_store_output())


class Is(OperatorSupportBase):
    def __init__(self, check: Callable[[Node], bool]) -> None:
        self.check = check

    def is_node_supported(self, submodules: Any, node: Node) -> bool:
        return node.op == "call_function" and self.check(node)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.linear(x).relu() + x).sin() - x


def edge(model: torch.nn.Module | None = None) -> ExportedProgram:
    return to_edge(export(model or Model(), (X,))).exported_program()


def named(program: ExportedProgram, *names: str) -> list[Node]:
    return [node for node in program.graph.nodes if node.op == "call_function" and node.target.__name__ in names]


# ---- to_backend ------------------------------------------------------------------------------------


def test_what_it_raises_is_also_what_executorch_raises() -> None:
    with pytest.raises(NotImplementedError, match=r"Backend Missing was not found\.") as missing:
        to_backend("Missing", edge(), [])
    assert isinstance(missing.value, PluginNotFound)

    class Cosine(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.cos()

    with pytest.raises(RuntimeError, match=r"aten\.cos\.default is not supported") as failed:
        to_backend("ListsOperators", edge(Cosine()), [])
    assert isinstance(failed.value, PreprocessError)

    class TagsOutput(Partitioner):
        def partition(self, exported_program: ExportedProgram) -> PartitionResult:
            exported_program.graph.output_node().meta["delegation_tag"] = "t"
            return PartitionResult(exported_program, {"t": DelegationSpec("ListsOperators", [])})

    manager = executorch_to_edge(export(Model(), (X,)))
    for lower in (lambda: to_backend(edge(), TagsOutput()), lambda: manager.to_backend(TagsOutput())):
        with pytest.raises(AssertionError, match="output node output should not be tagged") as refused:
            lower()
        assert isinstance(refused.value, InvalidPartition)
        assert isinstance(refused.value, RuntimeError)
        assert refused.value.node == "output"


def test_a_violation_of_the_dialect_is_torchs_error_too() -> None:
    class Flat(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(-1)

    def leave_the_dialect(module: GraphModule) -> None:
        (copy,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.view_copy.default)
        copy.target = torch.ops.aten.view.default

    with pytest.raises(SpecViolationError, match="not in the edge dialect") as error:
        executorch_to_edge(export(Flat(), (X,))).transform([leave_the_dialect])
    assert isinstance(error.value, VerificationError)


def test_a_whole_model_and_what_there_is_to_read_of_it() -> None:
    model = Model()
    program = to_backend(edge(model), AllNodePartitioner("ListsOperators", [CompileSpec("k", b"v")]))
    module = program.graph_module
    [(name, lowered, call)] = get_lowered_submodules(module)
    assert (name, call.target) == ("lowered_module_0", executorch_call_delegate)
    assert is_lowered_module(lowered)
    assert get_lowered_backend_modules(module) == [lowered]
    assert [node.name for node in get_delegates(program.graph)] == ["lowered_module_0"]
    assert get_non_lowered_nodes(program.graph) == []
    operators = ("permute_copy.default", "addmm.default", "relu.default", "add.Tensor", "sin.default", "sub.Tensor")
    blob = ";".join(f"aten.{name}" for name in operators).encode()
    assert get_delegated_payload(module) == {"lowered_module_0": ("ListsOperators", [CompileSpec("k", b"v")], blob)}
    text = format_delegated_graph(module)
    assert text.index("backend_id: ListsOperators") < text.index("aten.addmm.default") < text.index("call_delegate](")
    with torch.no_grad():
        torch.testing.assert_close(program.module()(X), model(X))


def test_a_lowered_modules_program_is_in_executorchs_records() -> None:
    lowered = to_backend("ListsOperators", to_edge(export(Model(), (X,))).exported_program(), [])
    program = lowered.program()
    (step,) = program.execution_plan[0].chains[0].instructions
    assert isinstance(step.instr_args, DelegateCall)
    assert program.backend_delegate_data[0].data == lowered.processed_bytes


def test_a_lowered_module_that_is_called_twice_is_one_attribute() -> None:
    lowered = to_backend("ListsOperators", to_edge(export(Model(), (X,))).exported_program(), [])

    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lowered = lowered

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.add(self.lowered(x), self.lowered(x))

    program = to_edge(export(Twice(), (X,), strict=True)).exported_program()
    assert [name for name, _, _ in get_lowered_submodules(program.graph_module)] == ["lowered_module_0"] * 2


def test_a_managers_programs_can_be_replaced_and_their_shared_data_are_there() -> None:
    manager = executorch_to_edge(export(Model(), (X,)))
    assert list(manager._edge_programs) == ["forward"] and len(manager._edge_programs) == 1
    lowered = to_backend(manager.exported_program(), AllNodePartitioner("SharesData", []))
    manager._edge_programs["forward"] = lowered
    assert manager.exported_program() is lowered
    assert manager._named_data_store.buffers == [b"weights"] and list(manager._named_data_store.pte_data) == ["shared"]
    with pytest.raises(KeyError):
        manager._edge_programs["other"] = lowered
    with pytest.raises(LoweringError, match="make an EdgeProgramManager of the programs that shall stay"):
        del manager._edge_programs["forward"]


def test_how_much_is_delegated(capsys: pytest.CaptureFixture[str]) -> None:
    class TakesSine(Partitioner):
        def partition(self, exported_program: ExportedProgram) -> PartitionResult:
            for node in named(exported_program, "aten.sin.default", "aten.add.Tensor"):
                node.meta["delegation_tag"] = "t"
            return PartitionResult(exported_program, {"t": DelegationSpec("ListsOperators", [])})

    module = to_backend(edge(), TakesSine()).graph_module
    info = get_delegation_info(module)
    assert (info.num_delegated_subgraphs, info.num_delegated_nodes, info.num_non_delegated_nodes) == (1, 2, 5)
    assert "Total delegated subgraphs: 1\nNumber of delegated nodes: 2\n" in info.get_summary()
    print_delegation_info(module)
    assert capsys.readouterr().out.rstrip().splitlines()[-1].split() == ["Total", "2", "5"]


# ---- canonical partitioners ------------------------------------------------------------------------


def test_partitions_are_the_largest_and_the_last_comes_first() -> None:
    program = edge()
    without_relu = Is(lambda node: node.target.__name__ != "aten.relu.default")
    last, first = generate_pattern_op_partitions(program.graph_module, op_support=without_relu)
    assert [node.target.__name__ for node in first.nodes] == ["aten.permute_copy.default", "aten.addmm.default"]
    assert [node.target.__name__ for node in last.nodes] == ["aten.add.Tensor", "aten.sin.default", "aten.sub.Tensor"]
    assert (last.id, first.id) == (0, 1)


def test_a_pattern_is_a_graph() -> None:
    class Pattern(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu() + x

    program = edge()

    class Found(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.relu() + x).sin()

    pattern = to_edge(export(Pattern(), (X,))).exported_program().graph_module.graph
    program = to_edge(export(Found(), (X,))).exported_program()
    [partition] = generate_pattern_op_partitions(program.graph_module, [pattern])
    assert [node.target.__name__ for node in partition.nodes] == ["aten.relu.default", "aten.add.Tensor"]
    with pytest.raises(AssertionError, match="nothing says what to partition"):
        generate_partitions_from_list_of_nodes(program.graph_module)


def test_groups_stay_together_unless_they_wait_for_each_other() -> None:
    program = edge()
    addmm, relu, add, sin = named(
        program, "aten.addmm.default", "aten.relu.default", "aten.add.Tensor", "aten.sin.default"
    )
    chosen = {addmm, relu, add, sin}

    def partitions(*groups: list[Node], taken: set[Node] = chosen) -> list[set[Node]]:
        support = Is(lambda node: node in taken)
        made = GroupBasedPartitioner(program.graph_module, support, True, node_groups=groups).propose_partitions()
        return [set(partition.nodes) for partition in made]

    assert partitions([addmm, relu]) == [chosen]
    assert partitions([addmm, add], taken={addmm, add, sin}) == [{add, sin}, {addmm}]  # relu lies between
    with pytest.raises(ValueError, match="exists in multiple groups"):
        partitions([addmm], [addmm])
    alone = GroupBasedPartitioner(program.graph_module, Is(lambda node: node is sin))
    assert alone.propose_partitions() == []


def test_a_constant_for_each_of_its_readers() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + self.weight) * self.weight

    program = edge(Tied())
    assert duplicate_constant_node(program, "p_weight") == {"p_weight_copy_0"}
    assert [len(node.users) for node in program.graph.find_nodes(op="placeholder")] == [1, 1, 1]
    with torch.no_grad():
        torch.testing.assert_close(program.module()(X), X + 1)
    with pytest.raises(RuntimeError, match="x is an input of the program"):
        duplicate_constant_node(program, "x")


# ---- reasons ---------------------------------------------------------------------------------------


def test_why_a_node_was_left_stands_in_the_report(caplog: pytest.LogCaptureFixture) -> None:
    reporter = WhyNoPartitionReporter()

    class Explains(Partitioner):
        def partition(self, exported_program: ExportedProgram) -> PartitionResult:
            why = WhyNoPartition(logging.getLogger("mine"))
            for node in exported_program.graph.nodes:
                if node.op == "call_function" and node.target.__name__ == "aten.sin.default":
                    why(node, "sines are slow")
            checked = reporter.wrap_check(Is(lambda node: node.target.__name__ == "aten.add.Tensor"), "not an add")
            for node in exported_program.graph.nodes:
                if checked.is_node_supported({}, node):
                    node.meta["delegation_tag"] = "t"
            tag_constant_data(exported_program)
            return PartitionResult(exported_program, {"t": DelegationSpec("ListsOperators", [])})

    with caplog.at_level(logging.DEBUG, logger="mine"):
        manager = to_edge_transform_and_lower(export(Model(), (X,)), partitioner=Explains())
    left = {entry.operator: entry.reasons["Explains"] for entry in manager.report.methods["forward"].leftovers}
    assert left["aten::sin"] == "sines are slow"
    assert left["aten::relu"] == "not an add"
    assert "was not partitioned because sines are slow" in caplog.text
    table = reporter.get_table_report().splitlines()
    assert table[0].split("  ")[0] == "Node name"
    assert len(table) == 1 + 5
    assert WhyNoPartitionReporter().get_table_report() == "No nodes rejected."


# ---- graphs ----------------------------------------------------------------------------------------


def test_graphs_are_compared_node_by_node() -> None:
    class Twice(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(super().forward(x))

    one, same, other = edge(), edge(), edge(Twice())
    assert is_identical_graph(one.graph_module, same.graph_module)
    assert not is_identical_graph(one.graph_module, other.graph_module)
