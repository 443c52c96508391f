"""What a partitioner may do, and what is said when it does something else."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram, export
from torch.fx import Node

from delegraph.aot.delegation.partition import (
    TAG,
    Partitioned,
    partition_program,
    tag_constant_data,
    tag_mutated_buffer,
)
from delegraph.aot.graph.bodies import graph_modules
from delegraph.errors import InvalidPartition, LoweringError
from delegraph.interfaces import DelegationSpec, Partitioner, PartitionResult

X = torch.randn(2, 4)


class Diamond(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = x.relu()
        b = a.sigmoid()
        return a + b


class Stateful(torch.nn.Module):
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return self.linear(x).relu() + self.count


def functional(model: torch.nn.Module, *args: Any) -> ExportedProgram:
    return export(model, args).run_decompositions()


class Tagger(Partitioner):
    """Tags by node name; `also` may do whatever else to the program."""

    def __init__(
        self,
        tags: Mapping[str, str],
        specs: Mapping[str, DelegationSpec] | None = None,
        also: Callable[[ExportedProgram], object] = lambda program: None,
    ) -> None:
        self.tags = tags
        self.specs = {tag: DelegationSpec("B") for tag in tags.values()} if specs is None else specs
        self.also = also

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        for _, module in graph_modules(exported_program.graph_module):
            for node in module.graph.nodes:
                if node.name in self.tags:
                    node.meta[TAG] = self.tags[node.name]
        self.also(exported_program)
        return PartitionResult(exported_program, self.specs)


def run(partitioner: Partitioner, program: ExportedProgram | None = None) -> Partitioned:
    return partition_program(program or functional(Diamond(), X), partitioner)


def tags_of(program: ExportedProgram) -> dict[str, str]:
    return {node.name: node.meta[TAG] for node in program.graph.nodes if TAG in node.meta}


def test_order_puts_a_partition_after_what_it_reads() -> None:
    partitioned = run(Tagger({"sigmoid": "t", "add": "t"}))
    assert [(subgraph.tag, [n.name for n in subgraph.nodes]) for subgraph in partitioned.order[""]] == [
        (None, ["relu"]),
        ("t", ["sigmoid", "add"]),
    ]


def test_a_cycle_is_named_by_tag_nodes_partitioner_and_line() -> None:
    with pytest.raises(InvalidPartition) as error:
        run(Tagger({"relu": "loop", "add": "loop"}))
    message = str(error.value)
    assert "partitioner Tagger, method 'forward'" in message
    assert "dependency cycle through tag 'loop'" in message
    assert "relu (tag 'loop') -> sigmoid (in no partition)" in message
    assert "sigmoid (in no partition) -> add (tag 'loop')" in message
    assert error.value.node == "relu"
    assert "test_partition.py" in (error.value.location or "")


def test_two_partitions_that_wait_for_each_other_are_both_named() -> None:
    class Crossed(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.relu().sigmoid(), y.tanh().exp()

    program = functional(Crossed(), X, X)
    with pytest.raises(InvalidPartition, match=r"through tag '[pq]', '[pq]'"):
        run(Tagger({"relu": "p", "exp": "p", "tanh": "q", "sigmoid": "q"}), program)


@pytest.mark.parametrize(
    ("partitioner", "message"),
    [
        (Tagger({"relu": "t"}, {}), r"tag 't' has no DelegationSpec in partition_tags, which lists \[\]"),
        (Tagger({"x": "t"}), "tag 't' stands on an input of the graph"),
        (Tagger({"output": "t"}), "tag 't' stands on the graph's output"),
        (Tagger({"relu": 3}), "tag 3 has no DelegationSpec"),  # type: ignore[dict-item]
    ],
)
def test_tags_that_cannot_be_cut_out(partitioner: Partitioner, message: str) -> None:
    with pytest.raises(InvalidPartition, match=message):
        run(partitioner)


def _retarget(program: ExportedProgram) -> None:
    next(n for n in program.graph.nodes if n.name == "relu").target = torch.ops.aten.tanh.default


def _rewire(program: ExportedProgram) -> None:
    node = next(n for n in program.graph.nodes if n.name == "add")
    node.args = (node.args[0], node.args[0])


def _insert(program: ExportedProgram) -> None:
    node = next(n for n in program.graph.nodes if n.name == "add")
    with program.graph.inserting_before(node):
        program.graph.call_function(torch.ops.aten.relu.default, node.args[:1])


@pytest.mark.parametrize("change", [_retarget, _rewire, _insert])
def test_a_partitioner_that_edits_the_graph_is_refused(change: Callable[[ExportedProgram], None]) -> None:
    with pytest.raises(InvalidPartition, match="it changed the graph; a partitioner may only set"):
        run(Tagger({"relu": "t"}, also=change))


def test_a_partitioner_may_work_on_a_copy() -> None:
    class Copying(Tagger):
        def partition(self, exported_program: ExportedProgram) -> PartitionResult:
            return super().partition(copy.deepcopy(exported_program))

    program = functional(Diamond(), X)
    run(Copying({"relu": "t"}), program)
    assert tags_of(program) == {"relu": "t"}


def test_a_copy_that_differs_is_refused() -> None:
    class Other(Tagger):
        def partition(self, exported_program: ExportedProgram) -> PartitionResult:
            return super().partition(functional(Stateful(), X))

    with pytest.raises(InvalidPartition, match="it returned another graph"):
        run(Other({"relu": "t"}))


def test_what_is_no_partition_result_is_refused() -> None:
    class Wrong(Partitioner):
        def partition(self, exported_program: ExportedProgram) -> PartitionResult:
            return exported_program  # type: ignore[return-value]

    with pytest.raises(InvalidPartition, match="it returned ExportedProgram, not a PartitionResult"):
        run(Wrong())


def test_a_partitioner_that_raises_is_named() -> None:
    def fail(program: ExportedProgram) -> None:
        raise KeyError("lost")

    with pytest.raises(
        LoweringError, match="partitioner Tagger, method 'forward': it raised KeyError: 'lost'"
    ) as error:
        run(Tagger({}, also=fail))
    assert isinstance(error.value.__cause__, KeyError)


def test_stale_tags_do_not_reach_the_next_partitioner() -> None:
    program = functional(Diamond(), X)
    run(Tagger({"relu": "first"}), program)
    run(Tagger({"add": "second"}), program)
    assert tags_of(program) == {"add": "second"}


def test_elements_of_a_tuple_follow_the_call_that_makes_it() -> None:
    class Top(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            values, indices = torch.topk(x, 2)
            return values.relu(), indices

    program = functional(Top(), X)
    run(Tagger({"topk": "t"}), program)
    assert tags_of(program) == {"topk": "t", "getitem": "t", "getitem_1": "t"}
    run(Tagger({"getitem": "t", "relu": "t"}), program)
    assert tags_of(program) == {"relu": "t"}


# ---- constants and state ---------------------------------------------------------------------------


def _stateful(*tagged: str) -> ExportedProgram:
    program = functional(Stateful(), X)
    for node in program.graph.nodes:
        if node.name in tagged:
            node.meta[TAG] = "t"
    return program


def test_tag_constant_data_tags_weights_but_not_changed_buffers() -> None:
    program = _stateful("permute", "addmm", "add")
    tag_constant_data(program)
    assert {n for n in tags_of(program) if n.startswith(("p_", "b_"))} == {"p_linear_weight", "p_linear_bias"}


def test_tag_constant_data_leaves_large_shared_constants_outside() -> None:
    class Shared(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + self.w).relu() * self.w

    def tag(limit: int | None) -> bool:
        program = functional(Shared(), X)
        next(n for n in program.graph.nodes if n.name == "add").meta[TAG] = "t"
        tag_constant_data(program, limit)
        return "p_w" in tags_of(program)

    assert (tag(None), tag(16), tag(15)) == (True, True, False)  # four float32


def test_tag_mutated_buffer_asks_for_all_readers_and_the_new_value() -> None:
    whole = _stateful("add", "add_1", "relu")
    tag_mutated_buffer(whole)
    assert tags_of(whole)["b_count"] == "t"
    partly = _stateful("add_1")
    tag_mutated_buffer(partly)
    assert "b_count" not in tags_of(partly)


def test_a_changed_buffer_cannot_be_torn_from_its_readers() -> None:
    with pytest.raises(InvalidPartition, match="is a buffer that the model changes") as error:
        partition_program(functional(Stateful(), X), Tagger({"addmm": "t", "b_count": "t"}))
    assert error.value.node == "b_count"


def test_bodies_of_control_flow_are_found_by_path() -> None:
    class Branch(torch.nn.Module):
        def forward(self, p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(p, lambda x: x.relu(), lambda x: x.sigmoid(), (x,))  # type: ignore[no-any-return]

    program = functional(Branch(), torch.tensor(True), X)
    assert [path for path, _ in graph_modules(program.graph_module)] == ["", "true_graph_0", "false_graph_0"]
    partitioned = run(Tagger({"relu": "t"}), program)
    assert [subgraph.tag for subgraph in partitioned.order["true_graph_0"]] == ["t"]
    assert isinstance(partitioned.order[""][0].nodes[0], Node)
