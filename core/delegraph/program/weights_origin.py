"""bytes <-> which lowering external weights came from: it tells a `.pte` and a `.ptd` that do not belong together.

ExecuTorch's schema has no place for it: a `.pte` has it as named data under `PROGRAM_KEY`, each `.ptd` under
`FILE_KEY` and its name, JSON that ExecuTorch ignores (two keys, since it refuses a key that both files have):

    {"version": 1, "program": "9c56cc51b374c3ba189210d5b6d4bf57",
     "weights": {"fc.weight": ["FLOAT[3, 4] in dim order [0, 1]", "7c4a8d09ca3762af61e59520943dc264"], …}}

`program` is the digest of the `.pte` without this entry: that of all code, blobs and weights that are not external.
Models that differ in nothing but their external weights have the same one, so their `.ptd` files can be swapped.
`weights` has every external weight of the lowering, whichever file it is in: how it is laid out, and the digest of its
bytes. Digests are the first 128 bits of SHA-256: they tell files apart, they protect nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from delegraph.errors import InvalidExternalData, InvalidProgram
from delegraph.lazy_dataclass import dataclass, field
from delegraph.program.buffers import byte_view
from delegraph.program.schema import Buffer, Program

__all__ = [
    "FILE_KEY",
    "PROGRAM_KEY",
    "WeightMark",
    "WeightsOrigin",
    "absent_weight",
    "digest",
    "origin_of",
    "read_origin",
]

PROGRAM_KEY: Final = "delegraph.external_weights"
FILE_KEY: Final = "delegraph.weights_of/"
VERSION: Final = 1
_DIGEST_NBYTES: Final = 16


@dataclass(frozen=True, slots=True)
class WeightMark:
    """One external weight: its layout in words, "a blob" for data of a backend, and the digest of its bytes."""

    layout: str
    digest: str


@dataclass(frozen=True, slots=True)
class WeightsOrigin:
    """A lowering with external weights: the digest of its `.pte`, and its weights by key."""

    program: str
    weights: Mapping[str, WeightMark] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The JSON that `read_origin` reads."""
        import json

        weights = {key: [mark.layout, mark.digest] for key, mark in self.weights.items()}
        return json.dumps({"version": VERSION, "program": self.program, "weights": weights}).encode()


def digest(pieces: Iterable[Buffer]) -> str:
    """A digest of the bytes, which tells them from others."""
    import hashlib  # only who writes files pays for it

    summed = hashlib.sha256()
    for piece in pieces:
        summed.update(byte_view(piece))
    return summed.hexdigest()[: 2 * _DIGEST_NBYTES]


def origin_of(program: Program) -> WeightsOrigin | None:
    """The external weights that `program` was lowered with; None if it has none, or if ExecuTorch wrote it.

    Raises `InvalidProgram` if the record is damaged.
    """
    named = program.named_data.get(PROGRAM_KEY)
    return None if named is None else read_origin(named.data, PROGRAM_KEY, InvalidProgram)


def read_origin(
    data: Buffer, key: str, error: type[InvalidProgram] | type[InvalidExternalData]
) -> WeightsOrigin | None:
    """The origin that stands under `key`; None for one of a later version. Raises `error` if it is damaged."""
    import json  # most files have none

    try:
        content = json.loads(bytes(byte_view(data)))
        if content["version"] > VERSION:
            return None
        weights = {name: WeightMark(_text(layout), _text(sum_)) for name, (layout, sum_) in content["weights"].items()}
        return WeightsOrigin(_text(content["program"]), weights)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as cause:
        raise error(f"the named data {key!r} is damaged: {cause!r:.200}") from cause


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():  # it may stand in a message
        raise TypeError(f"expected text that can be printed, got {value!r:.50}")
    return value


def absent_weight(name: str, others: Iterable[str]) -> str:
    """The message for a weight whose `.ptd` is not there; `others` are the named data that are."""
    weights = sorted(other for other in others if "/" not in other and not other.startswith("delegraph."))
    if not weights:
        return f"the data of {name!r:.100} is in a .ptd file; pass it as data_path=…, with all others of the model"
    shown = ", ".join(map(repr, weights[:8])) + (" …" if len(weights) > 8 else "")
    return (
        f"the .ptd files have no {name!r:.100}, but {shown}: they are another model's; pass those that were written"
        " with this program as data_path=[…]"
    )
