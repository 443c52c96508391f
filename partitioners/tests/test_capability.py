"""The capability-based partitioner on real programs: what it takes, what it leaves and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from core.tests.aot.delegating import Delegated, to_backend
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.export import Dim, ExportedProgram, export
from torch.fx import Node

from delegraph.errors import InvalidArgument, InvalidPartition
from delegraph.interfaces import BackendDetails, CompileSpec, Partitioner, PreprocessResult
from delegraph.plugins import PluginRegistry
from delegraph_partitioners import AllNodesPartitioner, CapabilityBasedPartitioner, OperatorsPartitioner

aten = torch.ops.aten
X = torch.randn(2, 4)


class Blank(BackendDetails):
    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        return PreprocessResult(b"blob")


REGISTRY = PluginRegistry()
REGISTRY.register("lowerings", "Blank", Blank)


def functional(function: Any, *args: Any, **options: Any) -> ExportedProgram:
    class Model(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return function(*inputs)

    return export(Model(), args, **options).run_decompositions()


def lower(program: ExportedProgram, *partitioners: Partitioner) -> Delegated:
    return to_backend({"forward": program}, partitioners, REGISTRY)


def taken(delegated: Delegated) -> list[tuple[str, ...]]:
    return [delegate.nodes for delegate in delegated.partitions["forward"]]


def declined(delegated: Delegated, name: str = "CapabilityBasedPartitioner") -> dict[str, str]:
    seen = [one for answers in delegated.seen["forward"][name].values() for one in answers if one.tag is None]
    return {one.name: one.reason for one in seen}


def unless(*operators: str) -> Any:
    """Support for everything but these."""

    def support(node: Node) -> str | None:
        name = getattr(node.target, "__name__", str(node.target))
        return f"{name} is too hard" if name.split(".")[0] in operators else None

    return support


def test_support_decides_and_its_reason_is_kept() -> None:
    program = functional(lambda x: x.relu().sigmoid().tanh(), X)
    delegated = lower(program, CapabilityBasedPartitioner("Blank", unless("sigmoid")))
    assert taken(delegated) == [("relu",), ("tanh",)]
    assert declined(delegated) == {"sigmoid": "sigmoid.default is too hard"}


def test_compile_specs_reach_the_delegate() -> None:
    spec = CompileSpec("mode", b"fast")
    delegated = lower(functional(lambda x: x.relu(), X), CapabilityBasedPartitioner("Blank", unless(), [spec]))
    assert delegated.partitions["forward"][0].lowered_module.compile_specs[0] == spec


def test_partitions_below_the_minimum_are_left() -> None:
    program = functional(lambda x: x.relu().sigmoid().tanh().exp(), X)
    delegated = lower(program, CapabilityBasedPartitioner("Blank", unless("sigmoid"), minimum_nodes=2))
    assert taken(delegated) == [("tanh", "exp")]
    assert declined(delegated)["relu"] == "its partition would have 1 nodes, fewer than the 2 asked for"


def test_a_partition_has_at_least_one_node() -> None:
    with pytest.raises(InvalidArgument, match="minimum_nodes is 0; a partition has at least one node"):
        CapabilityBasedPartitioner("Blank", unless(), minimum_nodes=0)


def test_views_alone_are_left_unless_wanted() -> None:
    program = functional(lambda x: (x.view(4, 2).t().sigmoid().relu().t(), x + 1), X)
    reason = "is supported, but only together with views and copies: not worth a delegate"
    careful = lower(program, CapabilityBasedPartitioner("Blank", unless("sigmoid")))
    assert taken(careful) == [("relu", "permute_1", "add")]
    assert {declined(careful)[name] for name in ("view", "permute")} == {reason}
    eager = lower(program, CapabilityBasedPartitioner("Blank", unless("sigmoid"), allow_trivial=True))
    assert {"view", "permute"} <= {name for nodes in taken(eager) for name in nodes}


def test_elements_go_where_their_tuple_goes() -> None:
    program = functional(lambda x: torch.topk(x.relu(), 2)[0].exp(), X)
    left = lower(program, CapabilityBasedPartitioner("Blank", unless("topk")))
    assert taken(left) == [("relu",), ("exp",)]
    partitioner = CapabilityBasedPartitioner("Blank", unless("topk"))
    assert partitioner.partition(program).declined["getitem"] == "is an element of topk, which was left"
    assert taken(lower(program, CapabilityBasedPartitioner("Blank", unless()))) == [("relu", "topk", "exp")]


def test_sizes_flow_in_as_inputs_unless_asked_for() -> None:
    shapes = {"dynamic_shapes": (({0: Dim("n", min=2, max=9)},),)}
    program = functional(lambda x: x.relu().view(x.shape[0] * 2, -1).exp(), X, **shapes)
    outside = lower(program, CapabilityBasedPartitioner("Blank", unless()))
    assert [sorted(nodes) for nodes in taken(outside)] == [["exp", "relu", "view"]]
    assert set(declined(outside).values()) == {
        "computes a size or another scalar, which goes into delegates as an input"
    }
    inside = lower(program, CapabilityBasedPartitioner("Blank", unless(), take_scalars=True))
    assert declined(inside) == {}
    for delegated in (outside, inside):
        x = torch.randn(5, 4)
        torch.testing.assert_close(delegated.programs["forward"].module()(x), x.relu().view(10, -1).exp())


def test_numbers_and_views_alone_make_no_delegate() -> None:
    shapes = {"dynamic_shapes": (({0: Dim("n", min=2, max=9)},),)}
    program = functional(lambda x: (x.view(x.shape[0] * 2, -1), x.shape[0]), X, **shapes)
    alone = lower(program, CapabilityBasedPartitioner("Blank", unless(), take_scalars=True))
    assert taken(alone) == []
    assert set(declined(alone).values()) == {
        "computes a size or another scalar that no delegate needs",
        "is supported, but only together with views and copies: not worth a delegate",
    }
    program = functional(lambda x: x.relu() * (x.shape[0] * 2 + 1), X, **shapes)
    small = lower(program, CapabilityBasedPartitioner("Blank", unless(), take_scalars=True, minimum_nodes=3))
    assert taken(small) == []


def test_a_second_partitioner_takes_what_the_first_left() -> None:
    program = functional(lambda x: x.relu().sigmoid().tanh(), X)
    delegated = lower(program, OperatorsPartitioner("Blank", [aten.sigmoid]), AllNodesPartitioner("Blank"))
    assert [(d.partitioner, d.nodes) for d in delegated.partitions["forward"]] == [
        ("OperatorsPartitioner", ("sigmoid",)),
        ("AllNodesPartitioner", ("relu",)),
        ("AllNodesPartitioner", ("tanh",)),
    ]
    again = AllNodesPartitioner("Blank").partition(delegated.programs["forward"])
    assert again.declined["executorch_call_delegate"] == "is a delegate already"


def test_bodies_of_control_flow_are_partitioned_unless_the_call_is_taken() -> None:
    def function(p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(p, lambda x: x.relu().exp(), lambda x: x.tanh(), (x,)).sin()  # type: ignore[no-any-return]

    program = functional(function, torch.tensor(True), X)
    inside = lower(program, CapabilityBasedPartitioner("Blank", unless("cond", "exp")))
    assert [(d.path, d.nodes) for d in inside.partitions["forward"]] == [
        ("", ("sin",)),
        ("true_graph_0", ("relu",)),
        ("false_graph_0", ("tanh",)),
    ]
    assert declined(inside)["true_graph_0.exp"] == "exp.default is too hard"
    whole = lower(program, CapabilityBasedPartitioner("Blank", unless()))
    assert [(d.path, d.nodes) for d in whole.partitions["forward"]] == [("", ("cond", "sin"))]
    for delegated in (inside, whole):
        for flag in (torch.tensor(True), torch.tensor(False)):
            torch.testing.assert_close(delegated.programs["forward"].module()(flag, X), function(flag, X))


def test_operators_to_keep_whole_are_those_that_support_accepts() -> None:
    partitioner = CapabilityBasedPartitioner("Blank", unless("gelu"), keep_whole=[aten.silu.default])
    program = functional(lambda x: x.relu(), X)
    operators, accepts = partitioner.ops_to_not_decompose(program)
    assert operators == [aten.silu.default]
    assert accepts is not None
    assert accepts(next(iter(program.graph.find_nodes(op="call_function", target=aten.relu.default))))


@pytest.mark.parametrize("operators", [[aten.add], [aten.add.Tensor], ["aten::add"], ["aten::add.Tensor"]])
def test_operators_by_name_packet_or_overload(operators: Iterable[Any]) -> None:
    program = functional(lambda x: (x + x).relu(), X)
    delegated = lower(program, OperatorsPartitioner("Blank", operators))
    assert taken(delegated) == [("add",)]
    assert declined(delegated, "OperatorsPartitioner") == {
        "relu": "aten::relu.default is not among the operators that Blank is given"
    }


# ---- whatever the support is, the program stays the same ---------------------------------------------

_UNARY = (torch.relu, torch.sigmoid, torch.tanh, torch.sin, torch.neg)
_BINARY = (torch.add, torch.mul, torch.maximum, torch.sub)


@st.composite
def programs(draw: st.DrawFn) -> tuple[ExportedProgram, Any, frozenset[int]]:
    """A random program of up to 12 calls, the function itself, and the positions of its unsupported calls."""
    steps = draw(
        st.lists(
            st.tuples(st.sampled_from((*_UNARY, *_BINARY)), st.integers(0, 99), st.integers(0, 99)),
            min_size=1,
            max_size=12,
        )
    )
    outputs = draw(st.lists(st.integers(0, 99), min_size=1, max_size=3))
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 4))

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            values = [x, x + self.weight]
            for function, i, j in steps:
                operands = (values[i % len(values)], values[j % len(values)])
                values.append(function(*operands) if function in _BINARY else function(operands[0]))
            return (values[-1], *(values[i % len(values)] + 0 for i in outputs))

    model = Model()
    unsupported = draw(st.frozensets(st.integers(0, 15)))
    return export(model, (X,)).run_decompositions(), model, unsupported


@pytest.mark.models
@given(programs())
@settings(deadline=None, max_examples=25)
def test_the_delegated_program_computes_the_same(case: tuple[ExportedProgram, Any, frozenset[int]]) -> None:
    program, model, unsupported = case
    calls = [node.name for node in program.graph.nodes if node.op == "call_function"]
    hard = {name for i, name in enumerate(calls) if i in unsupported}
    partitioner = CapabilityBasedPartitioner("Blank", lambda node: "hard" if node.name in hard else None)
    delegated = lower(program, partitioner)
    assert {name for nodes in taken(delegated) for name in nodes} == set(calls) - hard
    assert set(declined(delegated)) == hard
    assert taken(lower(program, partitioner)) == taken(delegated)  # the same again
    assert not any("delegation_tag" in node.meta for node in delegated.programs["forward"].graph.nodes)
    with torch.no_grad():
        torch.testing.assert_close(delegated.programs["forward"].module()(X), model(X))


def test_support_that_returns_a_bool() -> None:
    def support(node: Node) -> Any:
        return node.target == aten.relu.default

    with pytest.raises(InvalidPartition) as caught:
        lower(functional(lambda x: x.relu(), X), CapabilityBasedPartitioner("Blank", support))
    assert "of Blank returned True; it returns None for a node that the backend takes, and the reason in words" in str(
        caught.value
    )
    assert caught.value.node == "relu"


class Scaled(torch.nn.Module):
    """Two products with weights that several calls compute from constants; what is left to kernels is between them."""

    def __init__(self, *, shared: bool) -> None:
        super().__init__()
        self.first, self.scale = torch.nn.Parameter(torch.randn(4, 4)), torch.nn.Parameter(torch.randn(4, 1))
        self.second = self.first if shared else torch.nn.Parameter(torch.randn(4, 4))
        self.shared = shared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.first * self.scale.exp()
        between = (x @ weight).relu()
        return between @ (weight if self.shared else (self.second.sin() * self.scale.exp()).t())


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_computed_from_constants_is_where_it_is_read(shared: bool) -> None:
    program = export(Scaled(shared=shared), (X,)).run_decompositions()
    first, second = taken(lower(program, CapabilityBasedPartitioner("Blank", unless("relu"))))
    if shared:  # read by both: computed once
        assert (first, second) == (("exp", "mul", "mm"), ("mm_1",))
    else:
        assert (first, second) == (("exp", "mul", "mm"), ("sin", "exp_1", "mul_1", "permute", "mm_1"))


def test_a_delegate_of_nothing_but_a_number_repeated_is_not_made() -> None:
    program = functional(lambda x: x.relu() + torch.full((4,), 2.0), X)
    delegated = lower(program, CapabilityBasedPartitioner("Blank", unless("relu", "add")))
    assert taken(delegated) == []
    assert "only together with views and copies" in declined(delegated)["full"]
