"""Program -> the same, results marked that lie in a part of another's memory, or in all of what they overwrite.

    %a, %b = aten.split_copy.Tensor(%x, 2)     # shows pieces of the memory of %x: no copy, no instruction
    %c = aten.exp.default(%a)                  # is a part of the memory of %cat: written there straight away
    %d = aten.sin.default(%b)                  # is a part of the memory of %cat
    %cat = aten.cat.default([%c, %d, %a])      # is written in parts: only %a is copied
    %put = aten.index_put.default(%e, …)       # overwrites the memory of %e, which nobody reads after it

The dims before the one that is cut or joined have size 1, sizes are static and layouts contiguous, so that a part is
one stretch of bytes; it begins where a tensor of its own could (`alignment`). A tensor has one home: it is a part of
one `cat`, and no result of the method, but the whole may be. Only memory is marked that the program itself plans and
writes once: no state, no weight, no input that the caller sees changed, nothing on a device.

A piece keeps all of its source alive, and a whole is there from its first part on. Where that would make more bytes
alive than there are without it, the copy stays (`live_bytes.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Final, TypeAlias

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import Argument, map_arg

from delegraph.aot.graph.bodies import graph_modules, output_producer, output_values
from delegraph.aot.graph.devices import device_of
from delegraph.aot.graph.fake_values import fake_tensor, several
from delegraph.aot.graph.memory_use import MEMORY_USE, PART_OF, PIECE_OFFSETS, MemoryUse, memory_use
from delegraph.aot.graph.signature import ResolvedSignature
from delegraph.aot.graph.tensor_spec import Bounds, TensorSpec
from delegraph.aot.passes.live_bytes import LiveBytes, Unit
from delegraph.aot.passes.reinplacing import updated_value, updating_call
from delegraph.aot.torch_internals import executorch_call_delegate as call_delegate
from delegraph.interfaces.graph_pass import ExportedProgramPassBase, ExportedProgramPassResult
from delegraph.program.devices import CPU
from delegraph.program.dtypes import nbytes

__all__ = ["PartElision"]

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class PartElision(ExportedProgramPassBase):
    """Marks `MemoryUse.PIECE`, `PART` with its `WHOLE`, and `IN_PLACE` on results of the program's own.

    The options say whether inputs and outputs have places in planned memory, and the alignment of places in bytes.
    Runs last, after `Reinplacing` and `ViewElision`, whose marks say which value shows whose memory.
    """

    alloc_graph_input: bool = True
    alloc_graph_output: bool = True
    alignment: int = 16

    def call(self, program: ExportedProgram) -> ExportedProgramPassResult:
        """Mark the method's graph and the bodies in it."""
        bounds, signature = Bounds.of_program(program), ResolvedSignature.of(program)
        inputs = signature.inputs if self.alloc_graph_input else ()
        changed = {write_back.target for write_back in signature.write_backs} | signature.states.keys()
        for path, module in graph_modules(program.graph_module):
            if path:  # the operands of a body may lie in anybody's memory
                roots = output_values(module.graph)  # and its results may go straight into the caller's
                alive = LiveBytes(module, bounds, roots)
                _Graph(alive, bounds, frozenset(), frozenset(_nodes(roots)), self.alignment).run()
                continue
            roots = signature.results
            alive = LiveBytes(module, bounds, roots, {*inputs, *signature.states}, signature.states)
            foreign = frozenset() if self.alloc_graph_output else frozenset(_nodes(roots))
            _Graph(alive, bounds, frozenset(set(inputs) - changed), foreign, self.alignment).run()
        return ExportedProgramPassResult(program, True)


@dataclass(frozen=True, slots=True)
class _Graph:
    """Decides for one graph. `readable`: inputs whose memory may be shown. `foreign`: results whose memory may not be
    another's, nor another's theirs."""

    alive: LiveBytes
    bounds: Bounds
    readable: frozenset[Node]
    foreign: frozenset[Node]
    alignment: int

    def run(self) -> None:
        """Pieces first: a piece of a call's result may be a part of a whole from there."""
        for mark in (self._piece, self._whole, self._update):
            for node in self.alive.order:
                if node.op == "call_function" and memory_use(node) is None and device_of(node) == CPU:
                    mark(node)

    # ---- pieces of a source ----------------------------------------------------------------------------

    def _piece(self, node: Node) -> None:
        cut = _CUTS.get(node.target)
        source = self._source(node)
        if cut is None or source is None or not node.users:
            return
        spec, results = self._spec(node.args[0]), self.alive.results(node)
        pieces = [self.bounds.spec(value, node) for value in _values(node)]
        offsets = _offsets(cut(node, spec), spec, pieces, self.alignment)
        if offsets is None or any(unit is None or unit.is_kept or unit is source for unit in results):
            return
        if not _one_memory(node, source.origin):  # the user wants a copy in another memory
            return
        if self.alive.join(source, [unit for unit in results if unit is not None]):
            node.meta[MEMORY_USE], node.meta[PIECE_OFFSETS] = MemoryUse.PIECE, offsets

    def _source(self, node: Node) -> Unit | None:
        """The memory of the first argument, if it may be shown."""
        unit = self.alive.of(node.args[0]) if node.args else None
        if unit is None or not (self._is_own(unit) or unit.origin in self.readable):
            return None
        return unit if device_of(unit.origin) == CPU else None

    # ---- parts of a whole ------------------------------------------------------------------------------

    def _whole(self, node: Node) -> None:
        whole = self.alive.of(node)
        if node.target != aten.cat.default or whole is None or whole.origin is not node or not self._is_own(whole):
            return
        spec, operands = self._spec(node), node.args[0]
        specs = [self._spec(tensor) for tensor in operands]  # type: ignore[union-attr]
        if not _is_row_of(specs, spec, node):
            return
        parts: list[tuple[Node, Unit, int]] = []
        offset = copied = 0
        for operand, part in zip(operands, specs, strict=True):  # type: ignore[arg-type]
            # a part that would begin between two aligned places is copied: kernels rely on alignment
            unit = (
                self._part(operand, part, node, [unit for _, unit, _ in parts])
                if offset % self.alignment == 0
                else None
            )
            if unit is None:
                copied += part.nbytes
            else:
                parts.append((operand, unit, offset))
            offset += part.nbytes
        # where more than half would be copied, the whole's longer life is not worth it
        if not parts or 2 * copied > offset or not self.alive.join(whole, [unit for _, unit, _ in parts]):
            return
        node.meta[MEMORY_USE] = MemoryUse.WHOLE
        for _, unit, start in parts:
            value = _value_node(unit)
            value.meta[PART_OF] = node.name, start
            value.meta.setdefault(MEMORY_USE, MemoryUse.PART)

    def _part(self, operand: object, spec: TensorSpec, whole: Node, others: Sequence[Unit]) -> Unit | None:
        """The memory of `operand`, if it may lie in that of `whole`: made by a call for this alone, all of it shown."""
        unit = self.alive.of(operand)
        if unit is None or unit in others or unit.is_kept or not self._is_own(unit) or unit.nbytes != spec.nbytes:
            return None
        value = _value_node(unit)
        producer = output_producer(value)
        if producer is None or memory_use(value) not in (None, MemoryUse.WHOLE) or not self._spec(value).is_contiguous:
            return None
        # `cat([x, x])` has x twice, and it can lie in one place only
        reads = [read for read in _nodes(several(whole.args[0])) if self.alive.of(read) is unit]
        is_static = self._spec(value).is_static
        return unit if is_static and len(reads) == 1 and _one_memory(unit.origin, whole) else None

    # ---- updates ---------------------------------------------------------------------------------------

    def _update(self, node: Node) -> None:
        """An update of a result that nobody reads any more works on the result itself."""
        old = updated_value(node)
        source, unit = self.alive.of(old), self.alive.of(node)
        if source is None or unit is None or source is unit or source.is_kept or not self._is_own(source):
            return
        # the call reads the old value once, and it is the last that does
        call = updating_call(node)
        reads: list[Node] = []
        map_arg((call.args, call.kwargs), reads.append)
        if [self.alive.of(read) for read in reads].count(source) != 1 or source.last > self.alive.position[call]:
            return
        # the caller's memory is not planned; and an output's size is what its own tensor says
        if node in self.foreign or (unit.is_kept and source.nbytes != unit.nbytes):
            return
        if _one_memory(node, source.origin) and self.alive.join(source, [unit]):
            node.meta[MEMORY_USE] = MemoryUse.IN_PLACE

    # ---- what is known of values -----------------------------------------------------------------------

    def _is_own(self, unit: Unit) -> bool:
        """Whether the memory is planned, and a call writes it as its own result: not into another tensor."""
        node = unit.origin
        called = isinstance(node.target, OpOverload) and not node.target._schema.is_mutable
        if node.op != "call_function" or not (called or node.target is call_delegate) or device_of(node) != CPU:
            return False
        return not any(self.alive.of(foreign) is unit for foreign in self.foreign)

    def _spec(self, node: Argument) -> TensorSpec:
        assert isinstance(node, Node)
        return self.bounds.spec(fake_tensor(node), node)


# ---- cutting and joining ---------------------------------------------------------------------------

Cut: TypeAlias = tuple[int, Sequence[int]]
"""The dim along which an operator cuts its first argument, and the index at which each of its results begins."""


def _argument(node: Node, position: int, name: str, default: int | None) -> Argument:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def _dim(node: Node, position: int) -> int:
    dim = _argument(node, position, "dim", 0)
    assert isinstance(dim, int)
    return dim


def _sliced(node: Node, spec: TensorSpec) -> Cut | None:
    dim, start, step = (_argument(node, i, name, d) for i, name, d in ((1, "dim", 0), (2, "start", 0), (4, "step", 1)))
    return _from(spec, dim, 0 if start is None else start) if step == 1 else None


def _narrowed(node: Node, spec: TensorSpec) -> Cut | None:
    return _from(spec, node.args[1], node.args[2])


def _from(spec: TensorSpec, dim: Argument, start: Argument) -> Cut | None:
    """The cut that begins at `start`, which counts from the end if it is below 0."""
    if not isinstance(start, int) or not isinstance(dim, int) or not spec.sizes:
        return None
    size = spec.sizes[dim]
    return dim % len(spec.sizes), [min(max(start + size if start < 0 else start, 0), size)]


def _split(node: Node, spec: TensorSpec) -> Cut | None:
    """`split_copy` and `split_with_sizes_copy`: one after the other."""
    dim = _dim(node, 2)
    sizes = [piece.shape[dim] for piece in node.meta["val"]]
    if not all(isinstance(size, int) for size in sizes):
        return None
    return dim % len(spec.sizes), list(accumulate(sizes, initial=0))[:-1]


def _unbound(node: Node, spec: TensorSpec) -> Cut | None:
    return _dim(node, 1) % len(spec.sizes), range(len(node.meta["val"]))


_CUTS: Final[Mapping[object, Callable[[Node, TensorSpec], Cut | None]]] = {
    aten.slice_copy.Tensor: _sliced,
    aten.narrow_copy.default: _narrowed,
    aten.select_copy.int: _narrowed,
    aten.split_copy.Tensor: _split,
    aten.split_with_sizes_copy.default: _split,
    aten.unbind_copy.int: _unbound,
}


def _offsets(
    cut: Cut | None, whole: TensorSpec, pieces: Sequence[TensorSpec], alignment: int
) -> tuple[int, ...] | None:
    """Where each piece begins, in bytes, if each is a stretch of the whole's bytes that a tensor may begin at."""
    if cut is None or not all(spec.is_static and spec.is_contiguous and spec.nbytes for spec in (whole, *pieces)):
        return None
    dim, starts = cut
    if prod(whole.sizes[:dim]) != 1:  # a piece would be several stretches, one for each index of the outer dims
        return None
    row = nbytes(whole.scalar_type, whole.sizes[dim + 1 :])
    offsets = tuple(start * row for start in starts)
    return None if any(offset % alignment for offset in offsets) else offsets


def _is_row_of(parts: Sequence[TensorSpec], whole: TensorSpec, cat: Node) -> bool:
    """Whether the bytes of `whole` are those of `parts`, one after the other."""
    dim = _dim(cat, 1) % max(len(whole.sizes), 1)
    alike = all(part.is_static and part.is_contiguous and part.nbytes and part.dtype == whole.dtype for part in parts)
    fits = whole.is_static and whole.is_contiguous and sum(part.nbytes for part in parts) == whole.nbytes
    return alike and fits and prod(whole.sizes[:dim]) == 1


def _values(node: Node) -> Sequence[torch.Tensor]:
    value = node.meta["val"]
    return value if isinstance(value, (tuple, list)) else (value,)


def _value_node(unit: Unit) -> Node:
    """The node whose value is the tensor: the call, or the `getitem` that takes it from the call's results."""
    if isinstance(unit.origin.meta["val"], torch.Tensor):
        return unit.origin
    elements = (user for user in unit.origin.users if user.target is operator.getitem)
    return next(user for user in elements if user.args[1] == unit.position)


def _one_memory(a: Node, b: Node) -> bool:
    """Whether `a` and `b` are to lie in the same memory, by `memory_id`."""
    return bool(a.meta.get("memory_id") == b.meta.get("memory_id"))


def _nodes(values: Iterable[object]) -> Iterator[Node]:
    yield from (value for value in values if isinstance(value, Node))
