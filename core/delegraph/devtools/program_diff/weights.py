"""The weights of two programs -> those that are new, gone, changed, moved, or stored otherwise.

Weights are known by their names in the model; `quantize` calls the integers of `fc.weight` `fc.weight_int8`. Constants
without such names are the engines' own: they are only counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from delegraph.devtools.program_diff.changes import Change, Kind
from delegraph.devtools.program_model.rows import ProgramModel, WeightRow
from delegraph.devtools.program_model.tables import tensor_text
from delegraph.program.buffers import byte_view

__all__ = ["weight_changes"]

_STORED_AS: Final = re.compile(r"_(?:u?int\d+|packed)$")
_PARTS: Final = re.compile(r"_(?:u?int\d+|packed)_(?:scales|zero_points)$")


def weight_changes(before: ProgramModel, after: ProgramModel) -> Iterator[Change]:
    """The differences between the weights of two programs."""
    old, new = _Named.of(before), _Named.of(after)
    for name in dict.fromkeys((*old.rows, *new.rows)):
        change = _change(name, old, new)
        if change is not None:
            yield change
    if old.unnamed != new.unnamed:
        same = (old.unnamed & new.unnamed).total()
        counts = (f"{old.unnamed.total():,}", f"{new.unnamed.total():,}")
        yield Change(Kind.WEIGHT, "constants without a name", *counts, f"{same:,} are equal")


@dataclass(frozen=True, slots=True)
class _Named:
    """The rows of a program's weights by name, that which a weight is alone before one that it is packed in; those
    which may be one of several weights; and the digests of constants that are none."""

    rows: Mapping[str, WeightRow]
    perhaps: Mapping[str, Sequence[WeightRow]]
    unnamed: Counter[str]

    @classmethod
    def of(cls, model: ProgramModel) -> _Named:
        rows: dict[str, WeightRow] = {}
        perhaps: dict[str, list[WeightRow]] = {}
        every = [row for method in model.methods for row in method.weights]
        for row in sorted(every, key=lambda row: (row.dtype == "blob", -row.nbytes)):
            is_known = len(row.names) == 1 or row.dtype == "blob"
            for name in (_STORED_AS.sub("", name) for name in row.names if not _PARTS.search(name)):
                if is_known:
                    rows.setdefault(name, row)
                else:
                    perhaps.setdefault(name, []).append(row)
        unnamed = Counter(row.digest() or row.stored for row in model.weights if not row.names)
        return cls(rows, perhaps, unnamed)

    def like(self, name: str, other: WeightRow) -> WeightRow | None:
        """The row of a weight that is `other` in another program; of several that it may be, the one that is equal."""
        several = self.perhaps.get(name, ())
        equal = (row for row in several if row.digest() and row.digest() == other.digest())
        return self.rows.get(name) or next(equal, None)


def _change(name: str, before: _Named, after: _Named) -> Change | None:
    old, new = before.rows.get(name), after.rows.get(name)
    old = before.like(name, new) if old is None and new is not None else old
    new = after.like(name, old) if new is None and old is not None else new
    if old is None or new is None:
        is_there = name in (before if old is None else after).perhaps
        how = "in another form" if is_there else "new" if old is None else "gone"
        return Change(Kind.WEIGHT, name, _told(old), _told(new), how)
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        return Change(Kind.WEIGHT, name, _told(old), _told(new), _stored_otherwise(old, new))
    if old.data is None or new.data is None or old.digest() == new.digest():
        # without content the parts of the files that hold it are compared as they are
        return None if old.place == new.place else Change(Kind.WEIGHT, name, old.place, new.place, "moved")
    return Change(Kind.WEIGHT, name, _told(old), _distance(old, new) or _told(new), "changed")


def _stored_otherwise(old: WeightRow, new: WeightRow) -> str:
    if "blob" in (old.dtype, new.dtype):
        return "in another form"
    return "requantized" if old.dtype != new.dtype else "another shape"


def _told(row: WeightRow | None) -> str:
    if row is None:
        return ""
    return f"blob, {row.nbytes:,} bytes" if row.dtype == "blob" else tensor_text(row.dtype, row.shape)


def _distance(old: WeightRow, new: WeightRow) -> str:
    """How many elements differ, and the ratio of signal to noise, where both are numbers that NumPy has."""
    before, after = _array(old), _array(new)
    if before is None or after is None or before.shape != after.shape or not before.size:
        return ""
    differing = int(np.count_nonzero(~((before == after) | (np.isnan(before) & np.isnan(after)))))
    signal, noise = float(np.sum(before**2)), float(np.sum((after - before) ** 2))
    ratio = f", {10 * log10(signal / noise):.1f} dB" if 0 < signal < np.inf and 0 < noise < np.inf else ""
    return f"{differing:,} of {before.size:,} differ{ratio}"


def _array(row: WeightRow) -> NDArray[Any] | None:
    if row.data is None or not re.fullmatch(r"u?int\d+|float\d+|bool", row.dtype):
        return None
    try:
        return np.frombuffer(byte_view(row.data), np.dtype(row.dtype)).astype(np.float64)
    except (TypeError, ValueError):  # a dtype of half bytes, or a stranger's
        return None
