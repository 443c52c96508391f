"""Two programs -> their differences, by name where there are names, and else that there are some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final

from delegraph.devtools.program_diff.changes import Change, Kind, ProgramDiff
from delegraph.devtools.program_diff.weights import weight_changes
from delegraph.devtools.program_model.reading import read_model
from delegraph.devtools.program_model.rows import DelegateRow, ProgramModel
from delegraph.devtools.summary import MethodSummary, ValueSummary, summarize
from delegraph.interfaces.stamp import STAMP_KEY, read_stamp
from delegraph.plugins.registry import PluginRegistry, default_registry
from delegraph.program.buffers import byte_view
from delegraph.program.debug_data import DEBUG_DATA_KEY
from delegraph.program.schema import Buffer, CompileSpec, NamedData, Program
from delegraph.program.user_metadata import USER_METADATA_KEY, metadata_text, user_metadata_of
from delegraph.program.weights_origin import PROGRAM_KEY, digest, origin_of

__all__ = ["diff_programs"]


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two."""

    program: Program
    model: ProgramModel
    methods: Mapping[str, MethodSummary]

    @classmethod
    def of(cls, program: Program, plugins: PluginRegistry, data_path: Sequence[str]) -> _Side:
        named_data: Mapping[str, Buffer] = {key: entry.data for key, entry in program.named_data.items()}
        if data_path:
            from delegraph.runtime.program import Program as LoadedProgram
            from delegraph.runtime.program import Verification

            minimal = Verification.Minimal
            named_data = LoadedProgram.load(program, verification=minimal, data_path=data_path).named_data
        methods = {method.name: method for method in summarize(program).methods}
        return cls(program, read_model(program, named_data, plugins), methods)


def diff_programs(
    before: Program,
    after: Program,
    plugins: PluginRegistry | None = None,
    *,
    data_path: Sequence[str] = (),
    after_data_path: Sequence[str] = (),
) -> ProgramDiff:
    """The differences between two programs, `delegraph.program.deserialize_program` of their files.

    Nothing of them is run. A delegate whose backend does not describe it, or is not installed, is compared as bytes.
    `data_path` and `after_data_path` are the `.ptd` files of each: weights in them are compared as others are; without
    them, by the digests that the programs have of them. Raises `InvalidProgram`, and `InvalidExternalData` for a file
    of another program.
    """
    plugins = plugins or default_registry()
    sides = _Side.of(before, plugins, data_path), _Side.of(after, plugins, after_data_path)
    weights = list(weight_changes(sides[0].model, sides[1].model))
    known = {change.what for change in weights}
    told = [
        *_metadata(before, after),
        *_method_changes(*sides),
        *weights,
        *(change for change in _external(before, after) if change.what not in known),
    ]
    content = list(_content(before, after))
    if not told:
        return ProgramDiff(tuple(content))
    return ProgramDiff((*told, *_sizes(*sides), *content))


def _pairs(kind: Kind, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    """A change for each key under which there is something else."""
    for what in dict.fromkeys((*before, *after)):
        old, new = before.get(what, ""), after.get(what, "")
        if old != new:
            yield Change(kind, what, old, new)


def _metadata(before: Program, after: Program) -> Iterator[Change]:
    old, new = user_metadata_of(before), user_metadata_of(after)
    for what in dict.fromkeys((*old, *new)):
        if old.get(what) != new.get(what):
            yield Change(Kind.METADATA, what, *(metadata_text(side.get(what, ""), 60) for side in (old, new)))


# ---- methods ---------------------------------------------------------------------------------------


def _method_changes(before: _Side, after: _Side) -> Iterator[Change]:
    yield from _pairs(Kind.METHOD, *(dict.fromkeys(side.methods, "there") for side in (before, after)))
    for name in (name for name in before.methods if name in after.methods):
        old, new = before.methods[name], after.methods[name]
        yield from _pairs(Kind.INPUT, _values(name, "input", old.inputs), _values(name, "input", new.inputs))
        yield from _pairs(Kind.OUTPUT, _values(name, "output", old.outputs), _values(name, "output", new.outputs))
        yield from _pairs(Kind.OPERATOR, *(_operators(side.model, name) for side in (before, after)))
        yield from _placements(name, before.model, after.model)
        yield from _delegates(name, before.model, after.model)
        yield from _pairs(Kind.MEMORY, _memory(name, old), _memory(name, new))


def _values(method: str, role: str, values: Iterable[ValueSummary]) -> dict[str, str]:
    return {f"{role} {index} of {method}": _value(value) for index, value in enumerate(values)}


def _value(value: ValueSummary) -> str:
    shape = ", ".join(value.dims) if value.dims else ", ".join(map(str, value.shape or ()))
    dynamic = "up to " if value.dynamic and not value.dims else ""
    typed = f"{value.kind} {dynamic}[{shape}]" if value.shape is not None else f"{value.kind} {value.value}".rstrip()
    return f"{value.name}: {typed}" if value.name else typed


def _operators(model: ProgramModel, method: str) -> dict[str, str]:
    """How often each operator is called, by who runs it."""
    runs = _runners(model)
    rows = (row for row in model.nodes if row.method == method)
    counts = Counter(f"{row.operator} on {runs[row.method, row.delegate]}" for row in rows)
    return {operator: f"{calls} x" for operator, calls in sorted(counts.items())}


def _runners(model: ProgramModel) -> dict[tuple[str, int | None], str]:
    """Who runs the steps of a delegate, or those outside of them."""
    kernels: dict[tuple[str, int | None], str] = {(method.name, None): "kernels" for method in model.methods}
    return kernels | {(row.method, row.index): row.backend for row in model.delegates}


def _placements(method: str, before: ProgramModel, after: ProgramModel) -> Iterator[Change]:
    """The operators of the model that others run now; those that both files have, and tell of."""
    old, new = (_runners_of_operators(model, method) for model in (before, after))
    for operator in old:
        if old[operator] != new.get(operator, old[operator]):
            yield Change(Kind.PLACEMENT, operator, " and ".join(old[operator]), " and ".join(new[operator]))


def _runners_of_operators(model: ProgramModel, method: str) -> dict[str, tuple[str, ...]]:
    runs, runners = _runners(model), dict[str, dict[str, None]]()
    for row in model.nodes:
        if row.method == method:
            for operator in row.origin.computing:
                where = f" in {row.origin.module}" if row.origin.module else ""
                runners.setdefault(f"{operator}{where}", {})[runs[row.method, row.delegate]] = None
    return {operator: tuple(sorted(names)) for operator, names in runners.items()}


def _delegates(method: str, before: ProgramModel, after: ProgramModel) -> Iterator[Change]:
    old, new = ([row for row in model.delegates if row.method == method] for model in (before, after))
    for index, pair in enumerate(zip_longest(old, new)):
        sides = ({} if row is None else _delegate(row) for row in pair)
        for change in _pairs(Kind.DELEGATE, *sides):
            yield replace(change, what=f"delegate {index} of {method}: {change.what}")


def _delegate(row: DelegateRow) -> dict[str, str]:
    """A delegate, but for its nodes and weights."""
    stamp = read_stamp(CompileSpec(key, value) for key, value in row.compile_specs.items())
    told = {
        "backend": row.backend,
        "bytes": f"{row.nbytes:,}",
        "made by": f"{stamp.distribution} {stamp.version}" if stamp else "",
    }
    for key, value in row.compile_specs.items():
        if key != STAMP_KEY:
            told[f"compile spec {key}"] = _spec(value)
    if row.described is None:
        return told
    inside = {"device": row.described.device, "nodes": str(len(row.described.nodes))}
    return {**told, **inside, **row.described.options}


def _spec(value: bytes) -> str:
    text = value.decode(errors="replace")
    return text if text.isprintable() and len(text) <= 40 else f"{len(value):,} bytes"


def _memory(name: str, method: MethodSummary) -> dict[str, str]:
    return {f"memory {memory_id} of {name}": f"{nbytes:,}" for memory_id, nbytes in method.memory.items()}


# ---- bytes -----------------------------------------------------------------------------------------


def _external(before: Program, after: Program) -> Iterator[Change]:
    """The weights in `.ptd` files, by the digests that the programs have of them."""
    origins = (origin_of(program) for program in (before, after))
    marks = ({} if origin is None else origin.weights for origin in origins)
    told = ({key: f"{mark.layout}, {mark.digest[:8]}" for key, mark in of_side.items()} for of_side in marks)
    for change in _pairs(Kind.WEIGHT, *told):
        yield replace(change, how="beside the program")


def _sizes(before: _Side, after: _Side) -> Iterator[Change]:
    yield from _pairs(Kind.SIZE, _parts(before.program), _parts(after.program))


def _parts(program: Program) -> dict[str, str]:
    parts = {
        "constants": program.constants,
        "initial state": program.mutable_data,
        "delegates": program.delegate_data,
        **{f"named data {key}": [entry.data] for key, entry in _named(program).items()},
    }
    return {name: f"{sum(byte_view(buffer).nbytes for buffer in buffers):,}" for name, buffers in parts.items()}


def _named(program: Program) -> dict[str, NamedData]:
    told_elsewhere = (DEBUG_DATA_KEY, PROGRAM_KEY, USER_METADATA_KEY)
    return {key: entry for key, entry in program.named_data.items() if key not in told_elsewhere}


def _content(before: Program, after: Program) -> Iterator[Change]:
    """The parts whose bytes differ, or whose records do, with their digests."""
    for change in _pairs(Kind.CONTENT, _digests(before), _digests(after)):
        yield replace(change, before=change.before[:_SHOWN], after=change.after[:_SHOWN])


def _digests(program: Program) -> dict[str, str]:
    plans = program.execution_plan
    blobs = {
        f"delegate {index} of {plan.name}": [program.delegate_data[delegate.processed]]
        for plan in plans
        for index, delegate in enumerate(plan.delegates)
    }
    parts: dict[str, Iterable[Buffer]] = {
        **{f"values and instructions of {plan.name}": [repr(plan).encode()] for plan in plans},
        **blobs,
        "constants": program.constants,
        "initial state": program.mutable_data,
        **{f"named data {key}": [entry.data] for key, entry in _named(program).items()},
    }
    return {name: digest(_with_sizes(buffers)) for name, buffers in parts.items()}


_SHOWN: Final = 12
"""Digits of a digest that people see."""


def _with_sizes(buffers: Iterable[Buffer]) -> Iterator[Buffer]:
    """Each buffer behind its size, so that no two lists of buffers are one."""
    for buffer in buffers:
        yield byte_view(buffer).nbytes.to_bytes(8, "little")
        yield buffer
