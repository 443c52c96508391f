"""A memory planner: every tensor has a place of its own. No torch."""

from delegraph.interfaces import Plan


def one_after_another(lifetimes, alignment):
    """Lifetimes -> plan."""
    ends, offsets = {0: 0}, []
    for lifetime in lifetimes:
        start = ends.get(lifetime.memory_id, 0)
        offsets.append(start)
        ends[lifetime.memory_id] = start + -(-lifetime.nbytes // alignment) * alignment
    sizes = tuple(ends.get(memory, 0) for memory in range(max(ends) + 1))
    return Plan(tuple(offsets), sizes, 0)
