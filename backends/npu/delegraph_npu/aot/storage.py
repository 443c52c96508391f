"""`ir.Graph` -> the operators that compute, and the place of each tensor: operators that only move become views.

concat(a, b) -> c     a and b are written to their places in c
slice, transpose      other offsets and strides of the same bytes
reshape               the same bytes, if they lie side by side; otherwise they are copied first
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from delegraph.program import dense_strides
from delegraph_npu.aot import ir

__all__ = ["Storage", "StorageLayout", "Strides", "View", "dense", "lay_out"]

Strides: TypeAlias = tuple[int, int, int, int]
"""Bytes between neighbours along n, h, w and c."""


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """Bytes in which tensors lie; a constant's have `content`."""

    name: str
    nbytes: int
    content: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The place of a tensor in its storage."""

    storage: Storage
    offset: int
    strides: Strides

    def at(self, box: ir.Box) -> int:
        """The offset of the first element of `box`."""
        return self.offset + sum(span[0] * stride for span, stride in zip(box, self.strides, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class StorageLayout:
    """The remaining operators, and a view for each tensor that they, inputs or outputs name."""

    graph: ir.Graph
    views: dict[ir.Tensor, View]

    def __str__(self) -> str:
        lines = [
            f"{tensor.name}: {view.storage.name} + {view.offset} by {view.strides}"
            for tensor, view in self.views.items()
        ]
        return f"{self.graph}\n" + "\n".join(lines) + "\n"


def lay_out(graph: ir.Graph) -> StorageLayout:
    """Give every tensor a view."""
    return _Views(graph).result()


_MOVING = (ir.Concat, ir.Slice, ir.Transpose, ir.Reshape)


class _Views:
    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.views: dict[ir.Tensor, View] = {}
        self.operators: list[ir.Operator] = []
        self.computed = {o.output for o in graph.operators if not isinstance(o, _MOVING)}
        self.parent: dict[ir.Tensor, tuple[ir.Tensor, int, int]] = {}  # the concat's result, the axis, the first index
        for operator in graph.operators:
            if isinstance(operator, ir.Concat):
                self._join(operator)

    def result(self) -> StorageLayout:
        for operator in self.graph.operators:
            if isinstance(operator, ir.Concat):
                self._copy_others(operator)
            elif isinstance(operator, ir.Reshape):
                self._reshape(operator)
            elif not isinstance(operator, _MOVING):
                self.operators.append(operator)
            else:
                self.views[operator.output] = self._moved(operator)
        graph = replace(self.graph, operators=tuple(self.operators))
        named = [t for o in graph.operators for t in (*o.inputs, o.output)]
        named += [laid.tensor for laid in (*graph.inputs, *graph.outputs)]
        return StorageLayout(graph, {tensor: self.view(tensor) for tensor in dict.fromkeys(named)})

    def view(self, tensor: ir.Tensor) -> View:
        """The place of `tensor`: in storage of its own, unless it is part of another tensor's."""
        view = self.views.get(tensor)
        if view is None:
            if tensor in self.parent:
                whole, axis, begin = self.parent[tensor]
                base = self.view(whole)
                view = View(base.storage, base.offset + begin * base.strides[axis], base.strides)
            else:
                content = None if tensor.content is None else np.ascontiguousarray(tensor.content).tobytes()
                view = View(Storage(tensor.name, tensor.nbytes, content), 0, dense(tensor.shape, tensor.dtype))
            self.views[tensor] = view
        return view

    def _join(self, operator: ir.Concat) -> None:
        """Tensors that are only computed for one concat are written into its result."""
        begin = 0
        for tensor in operator.inputs:
            if tensor in self.computed and tensor not in self.parent and operator.inputs.count(tensor) == 1:
                self.parent[tensor] = operator.output, operator.axis, begin
            begin += tensor.shape[operator.axis]

    def _copy_others(self, operator: ir.Concat) -> None:
        begin = 0
        for tensor in operator.inputs:
            if self.parent.get(tensor) != (operator.output, operator.axis, begin):
                part = replace(tensor, name=f"{operator.output.name}.{begin}", content=None)
                self.parent[part] = operator.output, operator.axis, begin
                self._copy(operator, tensor, part)
            begin += tensor.shape[operator.axis]

    def _reshape(self, operator: ir.Reshape) -> None:
        source = operator.inputs[0]
        view = self.view(source)
        if not _side_by_side(source.shape, view.strides, source.dtype.itemsize):
            part = replace(source, name=f"{source.name}.rows", content=None)
            self._copy(operator, source, part)
            view = self.view(part)
        strides = dense(operator.output.shape, operator.output.dtype)
        self.views[operator.output] = View(view.storage, view.offset, strides)

    def _copy(self, operator: ir.Operator, source: ir.Tensor, target: ir.Tensor) -> None:
        copy = ir.Copy(operator.name, (source,), target, *source.bounds, debug_handles=operator.debug_handles)
        self.operators.append(copy)

    def _moved(self, operator: ir.Operator) -> View:
        view = self.view(operator.inputs[0])
        if isinstance(operator, ir.Transpose):
            n, h, w, c = (view.strides[axis] for axis in operator.order)
            return View(view.storage, view.offset, (n, h, w, c))
        assert isinstance(operator, ir.Slice)
        offset = sum(begin * stride for begin, stride in zip(operator.begin, view.strides, strict=True))
        n, h, w, c = (step * stride for step, stride in zip(operator.step, view.strides, strict=True))
        return View(view.storage, view.offset + offset, (n, h, w, c))


def dense(shape: ir.Shape, dtype: np.dtype[Any]) -> Strides:
    """The strides of elements side by side."""
    n, h, w, c = dense_strides(shape, dtype.itemsize)
    return n, h, w, c


def _side_by_side(shape: ir.Shape, strides: Strides, itemsize: int) -> bool:
    expected = dense_strides(shape, itemsize)
    return all(size == 1 or a == b for size, a, b in zip(shape, strides, expected, strict=True))
