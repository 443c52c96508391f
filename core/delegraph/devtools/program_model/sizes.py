"""A program's model -> where its bytes are: by part, by module, by weight; what is stored twice, what compresses."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from delegraph.devtools.program_model.rows import BESIDE, DelegateRow, ProgramModel, WeightRow
from delegraph.devtools.summary import FileSizes
from delegraph.program.alternatives import alternatives_of
from delegraph.program.buffers import byte_view
from delegraph.program.schema import Buffer, Program

__all__ = ["ModuleSize", "PartSize", "Repeated", "Sizes", "module_sizes", "sizes_of"]

SAMPLE: Final = 1 << 24
"""Bytes of a part that are compressed to tell how well it compresses."""
_SMALLEST: Final = 256
"""Repeated constants below this are noise: scales, shapes."""


@dataclass(frozen=True, slots=True)
class PartSize:
    """A part of the file: `within` is the part that it lies in, "" for the file itself. `compressed` is the share that
    zlib makes of its first 16 MiB; None where it was not tried."""

    name: str
    nbytes: int
    within: str = ""
    compressed: float | None = None


@dataclass(frozen=True, slots=True)
class ModuleSize:
    """The weights in the file that belong to a module and to those in it. "" is the whole model."""

    module: str
    nbytes: int
    weights: int


@dataclass(frozen=True, slots=True)
class Repeated:
    """Equal bytes that lie in several places; `nbytes` are those of one."""

    nbytes: int
    weights: tuple[str, ...]
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Where a file's bytes are. `parts` add up: those within "" to the file, those within another to that."""

    parts: tuple[PartSize, ...]
    modules: tuple[ModuleSize, ...]
    weights: tuple[WeightRow, ...]
    repeated: tuple[Repeated, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        return {
            "parts": [asdict(part) for part in self.parts],
            "modules": [asdict(module) for module in self.modules],
            "weights": [_weight_json(row) for row in self.weights],
            "repeated": [asdict(repeated) for repeated in self.repeated],
        }


def _weight_json(row: WeightRow) -> dict[str, Any]:
    fields = ("label", "names", "module", "stored", "dtype", "shape", "nbytes", "place", "method", "delegate")
    return {name: getattr(row, name) for name in fields}


def sizes_of(program: Program, model: ProgramModel, sizes: FileSizes) -> Sizes:
    """The sizes of `program`, whose file has `sizes` and which `model` tells about."""
    weights = tuple(sorted(model.weights, key=lambda row: -row.nbytes))
    return Sizes(
        parts=tuple(_parts(program, model, sizes)),
        modules=tuple(module_sizes(weights)),
        weights=weights,
        repeated=tuple(_repeated(weights)),
    )


# ---- parts -----------------------------------------------------------------------------------------


def _parts(program: Program, model: ProgramModel, sizes: FileSizes) -> Iterator[PartSize]:
    """The parts of the file, each followed by what is in it."""
    own = [
        PartSize("constants", _total(program.constants), compressed=_ratio(program.constants)),
        PartSize("initial state", _total(program.mutable_data), compressed=_ratio(program.mutable_data)),
        *_blobs(program, model),
        *(
            PartSize(f"named data {key}", _total([entry.data]), compressed=_ratio([entry.data]))
            for key, entry in program.named_data.items()
        ),
    ]
    inline = sum(part.nbytes for part in own) if not sizes.segments else 0
    yield PartSize("file", sizes.file)
    yield PartSize("flatbuffer", sizes.flatbuffer - inline, "file")
    inside = [part for part in own if part.nbytes]
    for part in inside:
        yield PartSize(part.name, part.nbytes, part.within or "file", part.compressed)
    outer = sum(part.nbytes for part in inside if not part.within)
    yield PartSize("headers, checksums and padding", sizes.file - sizes.flatbuffer + inline - outer, "file")


def _blobs(program: Program, model: ProgramModel) -> Iterator[PartSize]:
    """The blobs of delegates, and of the alternatives that may run in their place."""
    plans = {plan.name: plan for plan in program.execution_plan}
    by_place: dict[str, list[DelegateRow]] = {}
    for row in model.delegates:
        by_place.setdefault(row.place, []).append(row)
    for rows in by_place.values():
        row, sharing = rows[0], rows[1:]
        blob = program.delegate_data[plans[row.method].delegates[row.index].processed]
        also = "".join(f", {other.index} of {other.method}" for other in sharing)
        name = f"delegate {row.index} of {row.method}{also} ({row.backend})"
        yield PartSize(name, row.nbytes, compressed=_ratio([blob]))
        if row.described is not None:
            yield PartSize("weights", row.weight_nbytes, name)
            for part, nbytes in row.described.parts.items():
                yield PartSize(part, nbytes, name)
            rest = row.nbytes - row.weight_nbytes - sum(row.described.parts.values())
            yield PartSize("headers and padding", rest, name)
    for method, of_delegates in alternatives_of(program).items():
        others = [(index, other) for index, plans_of in of_delegates.items() for other in plans_of]
        for number, (index, other) in enumerate(others, 1):
            own = [program.delegate_data[delegate.processed] for delegate in other.delegates]
            yield PartSize(f"alternative {number} to delegate {index} of {method}", _total(own), compressed=_ratio(own))


def _total(buffers: Iterable[Buffer]) -> int:
    return sum(byte_view(buffer).nbytes for buffer in buffers)


def _ratio(buffers: Iterable[Buffer]) -> float | None:
    """The size of the first `SAMPLE` bytes when they are compressed, as a share; None of nothing."""
    left, before, after = SAMPLE, 0, 0
    packing = zlib.compressobj(6)
    for buffer in buffers:
        piece = byte_view(buffer)[:left]
        after += len(packing.compress(piece))
        before, left = before + piece.nbytes, left - piece.nbytes
        if not left:
            break
    return (after + len(packing.flush())) / before if before else None


# ---- weights ---------------------------------------------------------------------------------------


def module_sizes(weights: Iterable[WeightRow]) -> Iterator[ModuleSize]:
    """Every module around a weight that is in the file, in the order of their paths."""
    nbytes: dict[str, int] = {}
    counts: dict[str, int] = {}
    for row in weights:
        if row.place == BESIDE:
            continue
        path = row.module.split(".") if row.module else []
        for depth in range(len(path) + 1):
            module = ".".join(path[:depth])
            nbytes[module] = nbytes.get(module, 0) + row.nbytes
            counts[module] = counts.get(module, 0) + 1
    for module in sorted(nbytes, key=_by_path):
        yield ModuleSize(module, nbytes[module], counts[module])


def _by_path(module: str) -> list[tuple[int, str]]:
    """`layers.2` comes before `layers.10`."""
    return [(int(part) if part.isdecimal() else -1, part) for part in module.split(".")]


def _repeated(weights: Iterable[WeightRow]) -> Iterator[Repeated]:
    same: dict[str, list[WeightRow]] = {}
    for row in weights:
        digest = row.digest() if row.nbytes >= _SMALLEST else ""
        if digest:
            same.setdefault(digest, []).append(row)
    for rows in same.values():
        if len(rows) > 1:
            labels, places = (
                tuple(dict.fromkeys(texts)) for texts in zip(*((r.label, r.place) for r in rows), strict=True)
            )
            yield Repeated(rows[0].nbytes, labels, places)
