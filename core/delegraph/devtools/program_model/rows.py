"""A program as rows: its steps, weights and delegates, each with its module and its lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

from delegraph.interfaces.description import DelegateDescription
from delegraph.program.buffers import byte_view
from delegraph.program.debug_data import SourceNode, StepId
from delegraph.program.schema import Buffer

__all__ = ["BESIDE", "DelegateRow", "MethodModel", "NodeRow", "Origin", "ProgramModel", "WeightRow", "module_of"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a step: `operators` of the edge program, `modules` of the model and `lines` of its code, each once
    and in order; `results` are what they give, as text, and `weights` the names of those that they read. All are empty
    where the file does not tell."""

    operators: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()

    @property
    def computing(self) -> tuple[str, ...]:
        """The operators that the model's author wrote: those of `quantize` only where there are no others."""
        own = tuple(name for name in self.operators if not name.startswith("quantized_decomposed::"))
        return own or self.operators

    @property
    def module(self) -> str:
        """The innermost module around all of it: `blocks.0` of a convolution and the normalization behind it. What a
        module does with a result of one in it counts as that one's: an activation, `blocks.0`, behind `blocks.0.conv`.
        If no module is known, it is that of the weights."""
        inner = [path for path in self.modules if not any(other.startswith(f"{path}.") for other in self.modules)]
        return _common(tuple(inner)) if inner else module_of(self.weights)


def module_of(weights: tuple[str, ...]) -> str:
    """The innermost module around weights with these qualified names."""
    return _common(tuple(name.rpartition(".")[0] for name in weights))


def _common(paths: tuple[str, ...]) -> str:
    common = paths[0].split(".") if paths else []
    for path in paths[1:]:
        parts = path.split(".")
        same = [own == other for own, other in zip(common, parts, strict=False)]
        common = common[: same.index(False) if False in same else len(same)]
    return ".".join(common)


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A step of a method: a call of a kernel, or a node in the delegate number `delegate`.

    `name` is the engine's, or the instruction's number; `operator` the engine's, or the kernel's; `debug_id` is what
    events of a trace call it (`delegate_debug_id`). `reads` are the names of the weights that it reads, as `WeightRow`.
    `reason` says why no backend took it, if the file tells.
    """

    method: str
    instruction: int
    delegate: int | None
    name: str
    operator: str
    handles: tuple[int, ...]
    origin: Origin
    reads: tuple[str, ...] = ()
    debug_id: StepId | None = None
    reason: str = ""


BESIDE: Final = "a .ptd"
"""The place of weights that are not in the file."""

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WeightRow:
    """A constant as it is stored.

    `names` are those of the model's weights that it is, or is made of; several where the file does not say which of
    them. `origin` is that of the nodes that read it, and tells the module where there are no names. `stored` is its
    name there: the engine's, or the number of a constant. `place` is the part of the file that it lies in: `constants`,
    `initial state`, `delegate 0 of forward`, `named data KEY`; or `BESIDE` it.
    """

    method: str
    delegate: int | None
    names: tuple[str, ...]
    stored: str
    dtype: str
    shape: Shape
    nbytes: int
    place: str
    origin: Origin = Origin()
    data: Buffer | None = field(default=None, compare=False, repr=False)

    @property
    def module(self) -> str:
        """The module that it belongs to."""
        return module_of(self.names) if self.names else self.origin.module

    @property
    def label(self) -> str:
        """The weight's name in the model; `blocks.0.bn.*` for one of several; else what the engine calls it."""
        if len(self.names) == 1:
            return self.names[0]
        return f"{self.module}.*".removeprefix(".") if self.names else self.stored

    def digest(self) -> str:
        """A digest of its bytes and type, by which equal weights are known; "" where its backend does not give them."""
        if self.data is None:
            return ""
        import hashlib  # only who compares pays for it

        summed = hashlib.blake2b(f"{self.dtype}{self.shape}".encode(), digest_size=16)
        summed.update(byte_view(self.data))
        return summed.hexdigest()


def _identity(row: WeightRow) -> tuple[object, ...]:
    """Equal where two rows are of the same bytes. Named data is one weight under a key, by whatever names
    delegates have for it; or a device's pool, of which they read parts."""
    if not row.place.startswith("named data"):
        return row.place, row.stored
    return row.place, row.dtype, row.shape, row.digest() if row.dtype == "blob" else ""


@dataclass(frozen=True, slots=True)
class DelegateRow:
    """A delegate. `described` is what its backend says is in it; if that is None, `reason` says why.

    `place` is the part of the file that its blob is, `delegate 0 of forward`: delegates that have one blob, as a prompt
    of any length and a step of one token may, have the first one's.
    """

    method: str
    index: int
    backend: str
    nbytes: int
    place: str
    described: DelegateDescription | None
    reason: str = ""
    compile_specs: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def weight_nbytes(self) -> int:
        """The bytes of the weights in its blob."""
        weights = () if self.described is None else self.described.weights
        return sum(weight.nbytes for weight in weights if weight.key is None)


@dataclass(frozen=True, slots=True)
class MethodModel:
    """One method: its steps in the order of the file, its weights, its delegates; `calls` are whole delegates as steps,
    one for each that is called; `sources` are the nodes of the edge program by their debug handles, those of rows."""

    name: str
    nodes: tuple[NodeRow, ...]
    weights: tuple[WeightRow, ...]
    delegates: tuple[DelegateRow, ...]
    calls: tuple[NodeRow, ...] = ()
    sources: Mapping[int, SourceNode] = field(default_factory=dict)


@dataclass(frozen=True)
class ProgramModel:
    """All methods of a program: tools draw from this."""

    methods: tuple[MethodModel, ...]

    @property
    def nodes(self) -> tuple[NodeRow, ...]:
        """The steps of all methods."""
        return tuple(row for method in self.methods for row in method.nodes)

    @property
    def delegates(self) -> tuple[DelegateRow, ...]:
        """The delegates of all methods."""
        return tuple(row for method in self.methods for row in method.delegates)

    @cached_property
    def weights(self) -> tuple[WeightRow, ...]:
        """The weights of all methods, one that several share once: each byte of the file is in one of them."""
        rows: dict[tuple[object, ...], WeightRow] = {}
        for row in (row for method in self.methods for row in method.weights):
            rows.setdefault(_identity(row), row)
        return tuple(rows.values())

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        from delegraph.devtools.program_model.tables import node_tables
        from delegraph.notebook import table

        return "".join(table(content) for method in self.methods for content in node_tables(method))

    def node_of(self, method: str, instruction: int, debug_id: StepId | None = None) -> NodeRow | None:
        """The step that an event of a trace is about, by its instruction and the delegate's own id, without which it is
        a whole delegate or a kernel; None if it is unknown. An id may have a known one in it: `conv_3_tile_7`. Of a
        node that its engine added, which has no id, it is the name."""
        exact = self._by_event.get((method, instruction, debug_id))
        if exact is not None or debug_id is None:
            return exact
        ids = [place[2] for place in self._by_event if place[:2] == (method, instruction) and place[2] is not None]
        inside = max(
            (known for known in ids if str(known) in str(debug_id)), key=lambda known: len(str(known)), default=None
        )
        return None if inside is None else self._by_event[method, instruction, inside]

    @cached_property
    def _by_event(self) -> dict[tuple[str, int, StepId | None], NodeRow]:
        calls = [row for method in self.methods for row in method.calls]
        rows = {(row.method, row.instruction, row.debug_id): row for row in (*reversed(self.nodes), *calls)}
        added = (row for row in self.nodes if row.delegate is not None and row.debug_id is None)
        for row in added:
            rows.setdefault((row.method, row.instruction, row.name), row)
        return rows
