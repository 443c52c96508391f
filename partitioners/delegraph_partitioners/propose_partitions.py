"""Supported nodes of a graph -> the smallest number of groups that can each run as one.

Number the nodes along the data: a supported node has the highest number among what it reads, an unsupported one too,
but plus one where it reads a supported node. Numbers never fall along an edge, and between two supported nodes with
an unsupported one on a path between them they rise. So all supported nodes of one number, a *level*, can run as one:
after the unsupported nodes of that number, before everything with a higher one. No cycle can arise.

There are no fewer groups than levels: the number of the last level is the number of times that some path changes from
supported to unsupported and back, and each time costs a group. So no two groups could be merged either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from torch.fx import Node

__all__ = ["Unit", "components", "propose_partitions"]

Unit: TypeAlias = Sequence[Node]
"""Nodes that are taken together or not at all: a call, and those that belong to it."""


def propose_partitions(units: Sequence[Unit], supported: Collection[Node]) -> list[list[Node]]:
    """The groups, in an order in which they can run; within one the nodes stand as in `units`.

    `units` are a graph's calls in topological order. A unit is supported if its first node is in `supported`.
    """
    taken = [unit[0] in supported for unit in units]
    unit_of = {node: i for i, unit in enumerate(units) for node in unit}
    reads = [
        {unit_of[r] for node in unit for r in node.all_input_nodes if r in unit_of} - {i}
        for i, unit in enumerate(units)
    ]
    level = _earliest(reads, taken)
    _sink(reads, taken, level)
    groups: dict[int, list[Node]] = {}
    for unit, number, is_taken in zip(units, level, taken, strict=True):
        if is_taken:
            groups.setdefault(number, []).extend(unit)
    return [groups[number] for number in sorted(groups)]


def _earliest(reads: Sequence[Collection[int]], taken: Sequence[bool]) -> list[int]:
    """Every unit's number, as small as can be. `reads` are the units that each unit reads."""
    level: list[int] = []
    for i, sources in enumerate(reads):
        # an unsupported unit that reads a supported one can only run after that one's group: it begins the next level
        level.append(max((level[source] + (taken[source] and not taken[i]) for source in sources), default=0))
    return level


def _sink(reads: Sequence[Collection[int]], taken: Sequence[bool], level: list[int]) -> None:
    """Move units that nothing in their own level reads to the first level that does, if no more values cross then.

    Backwards, so that the readers' numbers are final. `latest` bounds each unit's number from above, `first` is the
    lowest number among the supported units that read it. A weight follows to where it is multiplied, however many
    calls unpack and dequantize it: what they alone read moves with them, and is not counted.
    """
    alone = _read_by_one_alone(reads, taken)
    no_bound = len(level)
    latest = [no_bound] * len(level)
    first = [no_bound] * len(level)
    for i in reversed(range(len(level))):
        if taken[i]:
            if level[i] < first[i] <= latest[i] and first[i] < no_bound:
                # a unit that sinks no longer hands its result over, but its sources hand theirs over instead
                crossing = sum(level[source] < first[i] and not alone[source] for source in reads[i])
                level[i] = first[i] if crossing <= 1 else level[i]
            latest[i] = level[i]
        for source in reads[i]:
            # a supported source of an unsupported reader must stay a level before it
            latest[source] = min(latest[source], latest[i] - (taken[source] and not taken[i]))
            if taken[i]:
                first[source] = min(first[source], level[i])


def _read_by_one_alone(reads: Sequence[Collection[int]], taken: Sequence[bool]) -> list[bool]:
    """Whether a supported unit has one reader, and all units that it reads, and those that they do, likewise."""
    readers = Counter(source for sources in reads for source in sources)
    alone: list[bool] = []
    for i, sources in enumerate(reads):
        alone.append(taken[i] and readers[i] == 1 and all(alone[source] for source in sources))
    return alone


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
