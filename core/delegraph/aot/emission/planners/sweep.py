"""Tensors of one memory -> offsets, as an allocator at run time would choose them: near-linear, for any number."""

from __future__ import annotations

from bisect import bisect_left, insort

from delegraph.aot.emission.planners.one_memory import OneMemory

__all__ = ["sweep"]


def sweep(memory: OneMemory) -> list[int]:
    """Best fit in the order of birth over a list of free blocks, as an allocator at run time would; near-linear."""
    sizes, firsts, lasts = memory.sizes, memory.firsts, memory.lasts
    offsets = [0] * len(sizes)
    births = sorted(range(len(sizes)), key=lambda i: (firsts[i], firsts[i] - lasts[i], -sizes[i], i))
    deaths = sorted(range(len(sizes)), key=lambda i: (lasts[i], i))
    free = _FreeList()
    dead = 0
    for i in births:
        while lasts[deaths[dead]] < firsts[i]:
            free.give(offsets[deaths[dead]], sizes[deaths[dead]])
            dead += 1
        offsets[i] = free.take(sizes[i])
    return offsets


class _FreeList:
    """Free blocks below a growing end, findable by place and by size."""

    def __init__(self) -> None:
        self._end = 0
        self._by_start: dict[int, int] = {}  # start -> size
        self._by_end: dict[int, int] = {}  # end -> size
        self._by_size: list[tuple[int, int]] = []  # (size, start), sorted

    def take(self, size: int) -> int:
        """The start of the smallest free block that holds `size`, or of new space at the end."""
        if size == 0:
            return 0
        at = bisect_left(self._by_size, (size, -1))
        if at < len(self._by_size):
            block, start = self._by_size[at]
            self._remove(start, block)
            if block > size:
                self._add(start + size, block - size)
            return start
        # The last block may touch the end: grow it, rather than leave it behind.
        start = self._end - self._by_end.get(self._end, 0)
        if start < self._end:
            self._remove(start, self._end - start)
        self._end = start + size
        return start

    def give(self, start: int, size: int) -> None:
        """Return a block; it is joined with free neighbours."""
        if size == 0:
            return
        before = self._by_end.get(start, 0)
        if before:
            self._remove(start - before, before)
        after = self._by_start.get(start + size, 0)
        if after:
            self._remove(start + size, after)
        self._add(start - before, before + size + after)

    def _add(self, start: int, size: int) -> None:
        self._by_start[start] = size
        self._by_end[start + size] = size
        insort(self._by_size, (size, start))

    def _remove(self, start: int, size: int) -> None:
        del self._by_start[start], self._by_end[start + size]
        del self._by_size[bisect_left(self._by_size, (size, start))]
