"""Which operators read which bytes of a program's constants -> the weights of a description, each byte in one of them.

conv reads weights[0:96], gelu tables[0:256], two layers weights[96:128]
    ──> conv.weights 96 bytes · gelu.tables 256 · fc1+fc2.weights 32
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from delegraph.interfaces import Buffer, DelegateWeight
from delegraph_machines.hazards import Range

__all__ = ["ConstantReads", "read_by"]


class ConstantReads:
    """Collects the reads of operators, which are counted from 0 on; bytes that overlapping reads share are theirs
    together."""

    def __init__(self, operators: Sequence[str]) -> None:
        self._operators = operators
        self._reads: dict[Range, set[int]] = {}

    def add(self, operator: int, ranges: Iterable[Range]) -> None:
        """Note that an operator reads these bytes."""
        for read in ranges:
            if read.begin < read.end:
                self._reads.setdefault(read, set()).add(operator)

    def weights(
        self, contents: Mapping[str, Buffer], keys: Mapping[str, str]
    ) -> list[tuple[DelegateWeight, tuple[int, ...]]]:
        """Each with the operators that read it; `contents` are those of the memories. A memory in `keys` lies in the
        program's named data, under its key."""
        pieces: dict[tuple[str, tuple[int, ...]], list[memoryview]] = {}
        for read, readers in self._merged():
            content = memoryview(contents[read.memory])[read.begin : read.end]
            pieces.setdefault((read.memory, tuple(sorted(readers))), []).append(content)
        return [
            (self._weight(memory, readers, b"".join(content), keys.get(memory)), readers)
            for (memory, readers), content in pieces.items()
        ]

    def _weight(self, memory: str, readers: Iterable[int], content: bytes, key: str | None) -> DelegateWeight:
        name = f"{'+'.join(self._operators[reader] for reader in readers)}.{memory.lower()}"
        return DelegateWeight(name, "blob", (len(content),), len(content), key, data=content)

    def _merged(self) -> list[tuple[Range, set[int]]]:
        """The reads with those that overlap made one, by memory and place."""
        merged: list[tuple[Range, set[int]]] = []
        for read, readers in sorted(self._reads.items(), key=lambda item: (item[0].memory, item[0].begin)):
            if merged and merged[-1][0].overlaps(read):
                before, known = merged[-1]
                merged[-1] = Range(read.memory, before.begin, max(before.end, read.end)), known | readers
            else:
                merged.append((read, readers))
        return merged


def read_by(operator: int, weights: Iterable[tuple[DelegateWeight, tuple[int, ...]]]) -> tuple[str, ...]:
    """The names of the weights that an operator reads."""
    return tuple(weight.name for weight, readers in weights if operator in readers)
