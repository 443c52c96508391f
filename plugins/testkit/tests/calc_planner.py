"""calc's memory planner: the largest tensor first, each at the lowest free place."""

from delegraph.interfaces import Plan


def calc_planner(lifetimes, alignment):
    """Behind `calc` in `delegraph.memory_planners`."""
    offsets = [0] * len(lifetimes)
    sizes = [0] * (max((each.memory_id for each in lifetimes), default=1) + 1)
    placed = []
    for index in sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i].nbytes):
        own, offset = lifetimes[index], 0
        rivals = [i for i in placed if meet(lifetimes[i], own)]
        for start, stop in sorted((offsets[i], offsets[i] + lifetimes[i].nbytes) for i in rivals):
            if offset + own.nbytes <= start:
                break
            offset = max(offset, aligned(stop, alignment))
        offsets[index] = offset
        placed.append(index)
        sizes[own.memory_id] = max(sizes[own.memory_id], aligned(offset + own.nbytes, alignment))
    return Plan(tuple(offsets), tuple(sizes), lower_bound=0)


def meet(a, b):
    """Whether two tensors must not share bytes."""
    return a.memory_id == b.memory_id and a.first <= b.last and b.first <= a.last


def aligned(nbytes, alignment):
    """The next multiple."""
    return -(-nbytes // alignment) * alignment
