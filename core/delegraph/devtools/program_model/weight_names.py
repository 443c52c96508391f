"""A weight as an engine stores it -> the weights of the user's model that it is, by what the nodes that read it read.

b_stem_weight_int8.28    read by a node made of `stem`         -> stem.weight, whose name is in it
weight:0 (16, 3, 3, 3)   read by a node that reads stem.*      -> stem.weight, of as many elements
conv.weights, a blob     read by a node made of conv and bn    -> all that these read: they are packed together
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod

from delegraph.interfaces.description import DelegateWeight
from delegraph.program.debug_data import SourceWeight

__all__ = ["names_of"]


def names_of(weight: DelegateWeight, candidates: Sequence[str], known: Mapping[str, SourceWeight]) -> tuple[str, ...]:
    """The qualified names of `candidates` that `weight` is; several where nothing tells which. None where it is not one
    of them: a scale, a table, a shape."""
    if weight.names or weight.dtype == "blob":
        return weight.names or tuple(candidates)
    said = _named_in(weight.name, candidates) or _named_in(weight.name, known)
    if said:
        return (said,)
    elements = prod(weight.shape)
    return tuple(name for name in candidates if name in known and prod(known[name].shape) == elements)


def _named_in(text: str, names: Iterable[str]) -> str:
    """The longest of `names` that an engine's name has in it, as a placeholder has it: `p_stem_conv_weight`."""
    said = (name for name in names if re.search(rf"(?:^|_){re.escape(name.replace('.', '_'))}(?:$|[_.])", text))
    return max(said, key=len, default="")
