"""Stages against brute force on small graphs: convex, acyclic, and never one group too many."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx import Graph, Node

from delegraph_partitioners.propose_partitions import components, propose_partitions


@st.composite
def dags(draw: st.DrawFn, largest: int = 8) -> tuple[list[Node], set[Node]]:
    """A random graph's calls in topological order, and a random choice of supported ones."""
    size = draw(st.integers(1, largest))
    graph = Graph()
    nodes = [graph.placeholder("x")]
    for _ in range(size):
        reads = draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3, unique=True))
        nodes.append(graph.call_function(torch.relu, tuple(reads)))
    flags = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    return nodes[1:], {node for node, flag in zip(nodes[1:], flags, strict=True) if flag}


def grouped(calls: Sequence[Node], supported: set[Node]) -> list[list[Node]]:
    return propose_partitions([(node,) for node in calls], supported)


def is_acyclic(calls: Iterable[Node], groups: Iterable[Iterable[Node]]) -> bool:
    """Whether the graph is a DAG once every group is one node; by removing nodes without reads again and again."""
    group_of: dict[Node, object] = {node: i for i, group in enumerate(groups) for node in group}
    key = {node: group_of.get(node, node) for node in calls}
    reads = {k: set() for k in key.values()}  # type: ignore[var-annotated]
    for node, k in key.items():
        reads[k] |= {key[read] for read in node.all_input_nodes if read in key} - {k}
    while free := [k for k, others in reads.items() if not others]:
        for k in free:
            del reads[k]
        for others in reads.values():
            others.difference_update(free)
    return not reads


def partitions(items: Sequence[Node]) -> Iterable[list[list[Node]]]:
    """Every way to divide `items` into groups."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for division in partitions(rest):
        yield [[first], *division]
        for i, group in enumerate(division):
            yield [*division[:i], [first, *group], *division[i + 1 :]]


@given(dags(40))
@settings(deadline=None)
def test_groups_hold_the_supported_nodes_once_and_make_no_cycle(dag: tuple[list[Node], set[Node]]) -> None:
    calls, supported = dag
    groups = grouped(calls, supported)
    taken = [node for group in groups for node in group]
    assert len(taken) == len(set(taken))
    assert set(taken) == supported
    assert is_acyclic(calls, groups)


@given(dags(40))
@settings(deadline=None)
def test_no_two_groups_could_be_one(dag: tuple[list[Node], set[Node]]) -> None:
    calls, supported = dag
    groups = grouped(calls, supported)
    for i, first in enumerate(groups):
        for second in groups[i + 1 :]:
            rest = [group for group in groups if group is not first and group is not second]
            assert not is_acyclic(calls, [[*first, *second], *rest])


@given(dags(7))
@settings(deadline=None, max_examples=60)
def test_no_division_has_fewer_groups(dag: tuple[list[Node], set[Node]]) -> None:
    calls, supported = dag
    fewest = min(len(d) for d in partitions(sorted(supported, key=calls.index)) if is_acyclic(calls, d))
    assert len(grouped(calls, supported)) == fewest


@given(dags(40))
@settings(deadline=None)
def test_the_order_of_groups_is_one_in_which_they_can_run(dag: tuple[list[Node], set[Node]]) -> None:
    calls, supported = dag
    groups = grouped(calls, supported)
    position = {node: i for i, group in enumerate(groups) for node in group}
    assert all(
        position[read] <= position[node] for node in supported for read in node.all_input_nodes if read in position
    )


@given(dags(20))
@settings(deadline=None)
def test_components_are_what_edges_connect(dag: tuple[list[Node], set[Node]]) -> None:
    calls, supported = dag
    nodes = [node for node in calls if node in supported]
    pieces = components(nodes)
    number = {node: i for i, piece in enumerate(pieces) for node in piece}
    assert sorted(number, key=calls.index) == nodes
    assert all(number[read] == number[node] for node in nodes for read in node.all_input_nodes if read in supported)
    for piece in pieces:
        reached = {piece[0]}
        for _ in piece:
            reached |= {n for node in reached for n in (*node.all_input_nodes, *node.users) if n in piece}
        assert reached == set(piece)


def test_a_node_moves_to_where_it_is_read() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    early = graph.call_function(torch.relu, (x,))
    first = graph.call_function(torch.tanh, (x,))
    unsupported = graph.call_function(torch.sigmoid, (first,))
    last = graph.call_function(operator.add, (early, unsupported))
    groups = grouped([early, first, unsupported, last], {early, first, last})
    assert groups == [[first], [early, last]]  # `early` crosses no border, `first` has to


def test_units_stay_together() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.relu, (x,))
    b = graph.call_function(torch.sigmoid, (x,))
    c = graph.call_function(operator.add, (a, b))
    earlier = graph.call_function(torch.tanh, (x,))
    between = graph.call_function(torch.exp, (earlier,))
    d = graph.call_function(operator.mul, (c, between))
    groups = propose_partitions([(earlier,), (between,), (a, b, c, d)], {earlier, a, b, c, d})
    assert groups == [[earlier], [a, b, c, d]]
