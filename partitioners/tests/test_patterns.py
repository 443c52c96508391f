"""Patterns: what matches, what does not, and that a match is delegated whole."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from core.tests.aot.delegating import to_backend
from torch.export import ExportedProgram, export

from delegraph.aot import edge_program
from delegraph.aot.authoring import behind, either
from delegraph.interfaces import BackendDetails, CompileSpec, PreprocessResult
from delegraph.plugins import PluginRegistry
from delegraph_partitioners import ANY, Capture, Op, Pattern, PatternPartitioner, find_matches, op

aten = torch.ops.aten
X, Y = torch.randn(2, 4), torch.randn(2, 4)


def edge(function: Any, *args: Any) -> ExportedProgram:
    class Model(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return function(*inputs)

    with torch.no_grad():
        return edge_program(export(Model(), args))


def plain(names: Iterable[str]) -> list[str]:
    """`add_1` for `aten_add_tensor_1`: how the edge dialect names its nodes is not the subject here."""
    return [re.sub(r"^aten_|_(copy_default|default|tensor)(?=_\d+$|$)", "", name) for name in names]


def found(pattern: Pattern | Op, function: Any, *args: Any) -> list[list[str]]:
    matches = find_matches([pattern], edge(function, *args).graph)
    return [plain(node.name for node in match.nodes) for match in matches]


ADD_RELU = op(aten.relu, op(aten.add.Tensor, Capture("x"), Capture("y")))


def test_every_occurrence_is_found_in_graph_order() -> None:
    assert found(ADD_RELU, lambda x, y: (x + y).relu() * (x + x).relu(), X, Y) == [["add", "relu"], ["add_1", "relu_1"]]


def test_inner_values_may_not_be_read_from_outside() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + x
        return y.relu(), y.sigmoid()

    assert found(ADD_RELU, function, X) == []


def test_captures_hold_what_they_stand_for() -> None:
    [match] = find_matches([ADD_RELU], edge(lambda x, y: (x.exp() + y).relu(), X, Y).graph)
    assert list(match.captures) == ["x", "y"]
    assert plain(node.name for node in match.captures.values()) == ["exp", "inputs_1"]
    assert plain(node.name for node in match.outputs) == ["relu"]


def test_one_name_stands_for_one_value() -> None:
    double = op(aten.add.Tensor, Capture("x"), Capture("x"))
    assert found(double, lambda x, y: (x + x) * (x + y), X, Y) == [["add"]]
    anything = op(aten.add.Tensor, ANY, ANY)
    assert found(anything, lambda x, y: (x + x) * (x + y), X, Y) == [["add"], ["add_1"]]


def test_one_node_of_the_pattern_is_one_node_of_the_graph() -> None:
    shared = op(aten.sigmoid, ANY)
    silu = op(aten.mul.Tensor, shared, shared)
    assert found(silu, lambda x, y: x.sigmoid() * y.sigmoid(), X, Y) == []
    assert found(silu, lambda x, y: x.sigmoid() * y, X, Y) == []

    def square(x: torch.Tensor) -> torch.Tensor:
        y = x.sigmoid()
        return y * y

    assert found(silu, square, X) == [["sigmoid", "mul"]]


def test_values_have_to_be_equal() -> None:
    middle = op(aten.permute_copy, ANY, [1, 0])
    assert found(middle, lambda x: x.permute(1, 0).exp(), X) == [["permute"]]
    assert found(middle, lambda x: x[None].permute(2, 1, 0), X) == []


def test_several_operators_and_keywords() -> None:
    either = op((aten.relu, aten.sigmoid.default), ANY)
    assert found(either, lambda x: x.relu() * x.sigmoid() * x.tanh(), X) == [["relu"], ["sigmoid"]]
    cast = op(aten.add.Tensor, ANY, ANY, alpha=2)
    assert found(cast, lambda x: torch.add(x, x.exp(), alpha=2) + x, X) == [["add"]]


def test_operands_that_commute_match_in_both_orders() -> None:
    pattern = op(aten.add.Tensor, op(aten.relu, ANY), Capture("y"))
    assert found(pattern, lambda x, y: x.relu() + y, X, Y) == [["relu", "add"]]
    assert found(pattern, lambda x, y: y + x.relu(), X, Y) == [["relu", "add"]]
    assert found(pattern, lambda x, y: torch.add(y, x.relu(), alpha=2), X, Y) == []
    assert found(op(aten.sub.Tensor, op(aten.relu, ANY), ANY), lambda x, y: y - x.relu(), X, Y) == []


def test_another_order_is_tried_where_the_first_leads_nowhere() -> None:
    x, twice = Capture("x"), op(aten.mul.Tensor, Capture("x"), Capture("z"))
    pattern = op(aten.sub.Tensor, op(aten.add.Tensor, x, twice), x)
    assert found(pattern, lambda x, y: (x + y * x) - x, X, Y) == [["mul", "add", "sub"]]
    assert found(pattern, lambda x, y: (x + y * x) - y, X, Y) == []


def test_conditions_alternatives_and_what_may_stand_between() -> None:
    square = op(aten.mm, ANY, ANY).where(lambda node: node.meta["val"].shape[0] == node.meta["val"].shape[1])
    assert found(square, lambda x: (x @ x.t()) + (x @ x.t() @ x).sum(), X) == [["mm"], ["mm_1"]]
    small = op(aten.relu, Capture("x", lambda node: node.meta["val"].numel() < 8))
    assert found(small, lambda x: x.relu() + x[:1].relu(), X) == [["relu_1"]]
    gate = op(aten.mul.Tensor, ANY, either(op(aten.sigmoid, ANY), op(aten.tanh, ANY)))
    assert found(gate, lambda x, y: x * y.tanh() + y * x.sigmoid(), X, Y) == [["tanh", "mul"], ["sigmoid", "mul_1"]]
    aside = op(aten.relu, behind(op(aten.permute_copy, ANY).calls, op(aten.exp, ANY)))
    assert found(aside, lambda x: x.exp().t().relu(), X) == [["exp", "permute", "relu"]]
    assert found(aside, lambda x: x.exp().relu(), X) == [["exp", "relu"]]


def test_matches_do_not_overlap() -> None:
    chain = op(aten.relu, op(aten.relu, ANY))
    assert found(chain, lambda x: x.relu().relu().relu(), X) == [["relu", "relu_1"]]


def test_elements_of_tuples() -> None:
    first = op(operator.getitem, op(aten.topk, ANY, 2), 0)
    assert found(first, lambda x: torch.topk(x, 2)[0], X) == [["topk", "getitem"]]
    assert found(first, lambda x: torch.topk(x, 2), X) == []  # the indices are read as well


def test_a_traced_function_is_a_pattern() -> None:
    pattern = Pattern.traced(lambda x, w: torch.relu(x @ w + 1.0), (torch.empty(2, 3), torch.empty(3, 4)))
    assert found(pattern, lambda x, w: torch.relu(x @ w + 1.0).exp(), X, X.t()) == [["mm", "add", "relu"]]
    assert found(pattern, lambda x, w: torch.relu(x @ w + 2.0), X, X.t()) == []
    loose = Pattern.traced(lambda x, w: torch.relu(x @ w + 1.0), (torch.empty(2, 3), torch.empty(3, 4)), literals=False)
    assert found(loose, lambda x, w: torch.relu(x @ w + 2.0), X, X.t()) == [["mm", "add", "relu"]]


def test_a_module_is_a_pattern_for_any_weights() -> None:
    pattern = Pattern.traced(torch.nn.Linear(3, 5), (torch.empty(1, 3),))
    linear = torch.nn.Linear(4, 4)
    assert found(pattern, lambda x: linear(linear(x)).exp(), X) != []


def test_a_pattern_computes_what_it_gives_back() -> None:
    with pytest.raises(ValueError, match="the pattern gives back"):
        Pattern.traced(lambda x, y: (x, x + y), (X, Y))


def _two_outputs() -> Pattern:
    total = op(aten.add.Tensor, Capture("x"), Capture("y"))
    return Pattern((op(aten.relu, total), op(aten.sigmoid, total)))


def test_patterns_with_several_outputs() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + x
        return y.relu(), y.sigmoid()

    assert found(_two_outputs(), function, X) == [["add", "relu", "sigmoid"]]


def test_a_match_that_would_wait_for_itself_is_left_out() -> None:
    pattern = Pattern((op(aten.relu, Capture("x")), op(aten.add.Tensor, Capture("x"), ANY)))

    def apart(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.relu(), x + x.exp()

    def through(x: torch.Tensor) -> torch.Tensor:
        return x + x.relu().exp()  # exp lies between the two outputs

    assert found(pattern, apart, X) == [["relu", "add"]]
    assert found(pattern, through, X) == []


# ---- partitioning ----------------------------------------------------------------------------------


class Blank(BackendDetails):
    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        return PreprocessResult(b"blob")


def test_matches_are_delegated_whole_and_together() -> None:
    registry = PluginRegistry()
    registry.register("lowerings", "Blank", Blank)

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((x + y).relu() + x).relu().exp() + (x + x).relu()

    partitioner = PatternPartitioner("Blank", [ADD_RELU])
    delegated = to_backend({"forward": edge(function, X, Y)}, [partitioner], registry)
    [delegate] = delegated.partitions["forward"]
    assert plain(delegate.nodes) == ["add", "relu", "add_1", "relu_1", "add_2", "relu_2"]
    seen = delegated.seen["forward"]["PatternPartitioner"].values()
    declined = {one.name: one.reason for answers in seen for one in answers if one.tag is None}
    assert plain(declined) == ["exp", "add_3"]
    assert set(declined.values()) == {"is in no match of Blank's patterns"}
    torch.testing.assert_close(delegated.programs["forward"].module()(X, Y), function(X, Y))


def test_a_match_is_never_torn_by_what_it_waits_for() -> None:
    registry = PluginRegistry()
    registry.register("lowerings", "Blank", Blank)
    weighted = op(aten.mul.Tensor, op(aten.add.Tensor, ANY, ANY), ANY)

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        first = (x + y) * x
        return (y + x) * first.exp()  # the second match's add could run early, its mul only after exp

    delegated = to_backend({"forward": edge(function, X, Y)}, [PatternPartitioner("Blank", [weighted])], registry)
    delegates = [set(plain(delegate.nodes)) for delegate in delegated.partitions["forward"]]
    assert delegates == [{"add", "mul"}, {"add_1", "mul_1"}]
    torch.testing.assert_close(delegated.programs["forward"].module()(X, Y), function(X, Y))
