"""Supported nodes of a graph -> the smallest number of groups that can each run as one.

Number the nodes along the data: a supported node has the highest number among what it reads, an unsupported one too,
but plus one where it reads a supported node. Numbers never fall along an edge, and between two supported nodes with
an unsupported one on a path between them they rise. So all supported nodes of one number, a *stage*, can run as one:
after the unsupported nodes of that number, before everything with a higher one. No cycle can arise.

There are no fewer groups than stages: the number of the last stage is the number of times that some path changes from
supported to unsupported and back, and each time costs a group. So no two groups could be merged either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from torch.fx import Node

__all__ = ["Unit", "components", "stages"]

Unit: TypeAlias = Sequence[Node]
"""Nodes that are taken together or not at all: a call, and what goes with it."""


def stages(units: Sequence[Unit], supported: Collection[Node]) -> list[list[Node]]:
    """The groups, in an order in which they can run; within one the nodes stand as in `units`.

    `units` are a graph's calls in topological order. A unit is supported if its first node is in `supported`.
    """
    taken = [unit[0] in supported for unit in units]
    unit_of = {node: i for i, unit in enumerate(units) for node in unit}
    reads = [
        {unit_of[r] for node in unit for r in node.all_input_nodes if r in unit_of} - {i}
        for i, unit in enumerate(units)
    ]
    stage = _earliest(reads, taken)
    _sink(reads, taken, stage)
    groups: dict[int, list[Node]] = {}
    for unit, number, is_taken in zip(units, stage, taken, strict=True):
        if is_taken:
            groups.setdefault(number, []).extend(unit)
    return [groups[number] for number in sorted(groups)]


def _earliest(reads: Sequence[Collection[int]], taken: Sequence[bool]) -> list[int]:
    """Every unit's number, as small as can be. `reads` are the units that each unit reads."""
    stage: list[int] = []
    for i, sources in enumerate(reads):
        stage.append(max((stage[source] + (taken[source] and not taken[i]) for source in sources), default=0))
    return stage


def _sink(reads: Sequence[Collection[int]], taken: Sequence[bool], stage: list[int]) -> None:
    """Move units that nothing in their own stage reads to the first stage that does, if no more values cross then.

    Backwards, so that the readers' numbers are final. `latest` bounds each unit's number from above, `first` is the
    lowest number among the supported units that read it.
    """
    no_bound = len(stage)
    latest = [no_bound] * len(stage)
    first = [no_bound] * len(stage)
    for i in reversed(range(len(stage))):
        if taken[i]:
            if stage[i] < first[i] <= latest[i] and first[i] < no_bound:
                crossing = sum(stage[source] < first[i] for source in reads[i])
                stage[i] = first[i] if crossing <= 1 else stage[i]
            latest[i] = stage[i]
        for source in reads[i]:
            latest[source] = min(latest[source], latest[i] - (taken[source] and not taken[i]))
            if taken[i]:
                first[source] = min(first[source], stage[i])


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
