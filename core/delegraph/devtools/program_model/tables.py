"""A program's model and its sizes -> tables for people, in terminals and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from delegraph.devtools.program_model.rows import DelegateRow, MethodModel, NodeRow, Origin
from delegraph.devtools.program_model.sizes import ModuleSize, PartSize, Sizes
from delegraph.tables import Table, count

__all__ = ["module_table", "node_tables", "origin_cells", "short_operator", "size_tables", "tensor_text"]

SHOWN: Final = 30
"""Rows of a table of sizes; JSON has all of them."""


def size_tables(sizes: Sizes) -> Iterator[Table]:
    """Parts, modules, weights, and what is stored several times; of the longer ones the largest."""
    yield _part_table(sizes.parts)
    yield module_table(sizes.modules, SHOWN)
    methods = {row.method for row in sizes.weights}
    only = f" of {next(iter(methods))}" if len(methods) == 1 else ""
    weights = [
        (row.label, tensor_text(row.dtype, row.shape), count(row.nbytes), row.place.removesuffix(only))
        for row in sizes.weights[:SHOWN]
    ]
    title = _title("weights", len(weights), len(sizes.weights))
    yield Table(title, ("weight", "stored as", "bytes", "in"), weights, frozenset({"bytes"}))
    repeated = [(", ".join(same.weights), count(same.nbytes), ", ".join(same.places)) for same in sizes.repeated]
    columns = ("weights", "bytes of each", "in")
    yield Table("stored more than once", columns, repeated, frozenset({"bytes of each"}))


def _part_table(parts: Iterable[PartSize]) -> Table:
    rows = []
    for part in parts:
        depth = 0 if not part.within else 1 if part.within == "file" else 2
        packed = "" if part.compressed is None else f"{part.compressed:.0%}"
        rows.append((f"{'  ' * depth}{part.name}", count(part.nbytes), packed))
    return Table("parts of the file", ("part", "bytes", "zlib"), rows, frozenset({"bytes", "zlib"}))


def module_table(sizes: Sequence[ModuleSize], most: int) -> Table:
    """The modules with the most bytes of weights, `most` of them, in the order of their paths."""
    largest = sorted(sizes, key=lambda size: -size.nbytes)[:most]
    whole = max((size.nbytes for size in sizes), default=0) or 1
    rows = [
        (size.module or "the model", count(size.weights), count(size.nbytes), f"{size.nbytes / whole:.1%}")
        for size in sizes
        if size in largest
    ]
    title = _title("weights by module", len(rows), len(sizes))
    return Table(title, ("module", "weights", "bytes", "share"), rows, frozenset({"weights", "bytes", "share"}))


def _title(what: str, shown: int, known: int) -> str:
    return what if shown == known else f"{what}, the largest {shown} of {known}"


# ---- nodes -----------------------------------------------------------------------------------------


def node_tables(method: MethodModel) -> Iterator[Table]:
    """The calls of kernels, and the nodes of each delegate, or why they are not known."""
    columns = ("step", "operator", "of the model", "module", "line")
    kernels = [(str(row.instruction), *_cells(row)) for row in method.nodes if row.delegate is None]
    yield Table(f"{method.name}: calls of kernels", columns, kernels, frozenset({"step"}))
    for delegate in method.delegates:
        rows = [row for row in method.nodes if row.delegate == delegate.index]
        yield Table(_delegate_title(delegate, len(rows)), columns, [(str(i), *_cells(r)) for i, r in enumerate(rows)])


def _delegate_title(delegate: DelegateRow, nodes: int) -> str:
    name = f"{delegate.method}: delegate {delegate.index}, {delegate.backend}"
    if delegate.described is None:
        return f"{name}: {delegate.reason}"
    device = f" for {delegate.described.device}" if delegate.described.device else ""
    return f"{name}{device}, {nodes} nodes"


def _cells(row: NodeRow) -> tuple[str, str, str, str]:
    return short_operator(row.operator), *origin_cells(row.origin)


def origin_cells(origin: Origin) -> tuple[str, str, str]:
    """The operators of the model, its module, and its lines, in few words."""
    operators = dict.fromkeys(map(short_operator, origin.computing))
    lines = dict.fromkeys(line.partition(",")[0] for line in origin.lines)
    return ", ".join(operators), origin.module, ", ".join(lines)


def short_operator(name: str) -> str:
    """`convolution` of `aten::convolution.out`; an engine's operator as it is."""
    return name.rpartition("::")[2].partition(".")[0] if "::" in name else name


def tensor_text(dtype: str, shape: Sequence[int]) -> str:
    """`float32 16x3x3x3`, without a space that a line would break at; of what is in no such form only that."""
    return f"{dtype} {'x'.join(map(str, shape))}" if shape and dtype != "blob" else dtype
