"""Supported nodes of a graph -> the smallest number of groups that can each run as one.

Number the nodes along the data: a supported node has the highest number among what it reads, an unsupported one too,
but plus one where it reads a supported node. Numbers never fall along an edge, and between two supported nodes with
an unsupported one on a path between them they rise. So all supported nodes of one number, a *stage*, can run as one:
after the unsupported nodes of that number, before everything with a higher one. No cycle can arise.

There are no fewer groups than stages: the number of the last stage is the number of times that some path changes from
supported to unsupported and back, and each time costs a group. So no two groups could be merged either.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence

from torch.fx import Node

__all__ = ["components", "stages"]


def stages(calls: Sequence[Node], supported: Collection[Node]) -> list[list[Node]]:
    """The groups, in an order in which they can run; within one the nodes stand as in `calls`.

    `calls` are a graph's calls in topological order; values from elsewhere (inputs, constants) are always there.
    """
    stage = _earliest(calls, supported)
    _sink(calls, supported, stage)
    groups: dict[int, list[Node]] = {}
    for node in calls:
        if node in supported:
            groups.setdefault(stage[node], []).append(node)
    return [groups[number] for number in sorted(groups)]


def _earliest(calls: Iterable[Node], supported: Collection[Node]) -> dict[Node, int]:
    """Every call's number, as small as can be."""
    stage: dict[Node, int] = {}
    for node in calls:
        number = 0
        rises = node not in supported
        for read in node.all_input_nodes:
            if read in stage:
                number = max(number, stage[read] + (rises and read in supported))
        stage[node] = number
    return stage


def _sink(calls: Sequence[Node], supported: Collection[Node], stage: dict[Node, int]) -> None:
    """Move nodes that nothing in their own stage reads to the first stage that does, if no more values cross then.

    Backwards, so that the readers' numbers are final. `latest` bounds the unsupported nodes' numbers from above.
    """
    latest: dict[Node, int] = {}
    for node in reversed(calls):
        users = [user for user in node.users if user in stage]
        if node not in supported:
            latest[node] = min((stage[u] if u in supported else latest[u] for u in users), default=len(calls))
            continue
        bound = min((stage[u] if u in supported else latest[u] - 1 for u in users), default=0)
        readers = min((stage[u] for u in users if u in supported), default=bound + 1)
        if stage[node] < readers <= bound and node.target is not operator.getitem:
            crossing = sum(read in stage and stage[read] < readers for read in node.all_input_nodes)
            if crossing <= 1:
                stage[node] = readers


def components(nodes: Iterable[Node]) -> list[list[Node]]:
    """The pieces of `nodes` that edges among them connect, each in the order of `nodes`."""
    piece_of: dict[Node, int | None] = dict.fromkeys(nodes)
    count = 0
    for start in piece_of:
        if piece_of[start] is None:
            piece_of[start] = count
            stack = [start]
            while stack:
                node = stack.pop()
                near = [n for n in (*node.all_input_nodes, *node.users) if n in piece_of and piece_of[n] is None]
                piece_of.update(dict.fromkeys(near, count))
                stack.extend(near)
            count += 1
    pieces: list[list[Node]] = [[] for _ in range(count)]
    for node, number in piece_of.items():
        assert number is not None
        pieces[number].append(node)
    return pieces
