"""Fake value -> TensorSpec: dtype, upper bounds of the sizes, dim order; a bound that is not known is an error.

Nothing here ever looks at an example size: a dimension's bound comes from its symbol's range, or lowering stops.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from delegraph.aot.graph.dtypes import scalar_type_of
from delegraph.aot.graph.source_location import user_location
from delegraph.aot.torch_internals import ValueRanges, bound_sympy
from delegraph.errors import LoweringError, UnboundedDimension
from delegraph.program.dtypes import nbytes
from delegraph.program.schema import ScalarType, TensorShapeDynamism

__all__ = ["Bounds", "TensorSpec", "result_spec", "spec_of_tensor"]

MAX_BOUND: Final = 2**31 - 2
"""A larger bound is torch's default for "no bound given": a size in the file is an int32 (`Tensor.sizes`)."""

MAX_RANK: Final = 16
"""ExecuTorch's runtime refuses tensors of more dimensions (`runtime/core/portable_type/tensor_impl.h`)."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor as the file describes it, without its place. `sizes` are upper bounds unless STATIC."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]
    dynamism: TensorShapeDynamism = TensorShapeDynamism.STATIC

    @property
    def scalar_type(self) -> ScalarType:
        """The element type's code."""
        return scalar_type_of(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes that a tensor of the largest shape takes."""
        return nbytes(self.scalar_type, self.sizes)

    @property
    def is_static(self) -> bool:
        """Whether the shape is known now."""
        return self.dynamism is TensorShapeDynamism.STATIC

    @property
    def is_contiguous(self) -> bool:
        """Whether the dims lie in memory as they are counted."""
        return self.dim_order == tuple(range(len(self.sizes)))

    @property
    def is_channels_last(self) -> bool:
        """Whether the channels, dimension 1, are innermost."""
        return len(self.sizes) > 2 and self.dim_order == _channels_last(len(self.sizes))


@dataclass(frozen=True, slots=True)
class Origin:
    """The input, and its dimension (None: it is an int), that a symbol stands for."""

    input: str
    dim: int | None

    def __str__(self) -> str:
        return f"input {self.input!r}" if self.dim is None else f"dimension {self.dim} of input {self.input!r}"

    @property
    def remedy(self) -> str:
        """The code to write to give it a bound."""
        if self.dim is None:
            return f"torch._check({self.input} <= 1024) in the model"
        return f'dynamic_shapes={{"{self.input}": {{{self.dim}: Dim("n", max=1024)}}}} in torch.export.export'


@dataclass(slots=True)
class Bounds:
    """Upper bounds of one program's symbolic sizes, and where each symbol comes from (for messages)."""

    ranges: dict[sympy.Symbol, ValueRanges[Any]] = field(default_factory=dict)
    origins: Mapping[sympy.Symbol, Origin] = field(default_factory=dict)
    _upper: dict[sympy.Expr, int] = field(default_factory=dict)
    _static: dict[tuple[object, ...], TensorSpec] = field(default_factory=dict)

    @classmethod
    def of_program(cls, program: ExportedProgram) -> Bounds:
        """Bounds from the program's shape environment, tightened by its range constraints."""
        ranges: dict[sympy.Symbol, ValueRanges[Any]] = {}
        env = _shape_env(program)
        if env is not None:
            ranges.update(env.var_to_range)
        for symbol, limits in program.range_constraints.items():
            ranges[symbol] = ranges[symbol] & limits if symbol in ranges else limits
        return cls(ranges, _origins(program))

    def upper(self, size: int | torch.SymInt, node: Node, dim: int) -> int:
        """The largest value that `size`, dimension `dim` of `node`, can take. Raises `UnboundedDimension`."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        bound = self._upper.get(expression)
        if bound is None:
            bound = self._upper[expression] = self._bound(expression, node, dim)
        return bound

    def _bound(self, expression: sympy.Expr, node: Node, dim: int) -> int:
        upper = bound_sympy(expression, self.ranges).upper
        if upper.is_finite is not False and upper <= MAX_BOUND:
            return int(upper)
        open_symbols = [
            s for s in sorted(expression.free_symbols, key=str) if s not in self.ranges or _is_open(self.ranges[s])
        ]
        raise UnboundedDimension(_unbounded_text(open_symbols, self.origins, dim, node), **_where(node))

    def spec(self, value: torch.Tensor, node: Node) -> TensorSpec:
        """The spec of `value`, a fake tensor that `node` yields."""
        sizes, strides = tuple(value.size()), value.stride()
        key = (value.dtype, sizes, strides)
        if value._has_symbolic_sizes_strides:
            return self._dynamic_spec(value, node)
        spec = self._static.get(key)
        if spec is None:
            spec = self._static[key] = TensorSpec(value.dtype, sizes, _dim_order(sizes, strides, node))
        return spec

    def _dynamic_spec(self, value: torch.Tensor, node: Node) -> TensorSpec:
        sizes = tuple(self.upper(size, node, dim) for dim, size in enumerate(value.size()))
        # Strides are products of sizes: their order at the upper bounds is their order everywhere.
        strides = tuple(self.upper(stride, node, dim) for dim, stride in enumerate(value.stride()))
        dynamic = any(not isinstance(size, int) for size in value.size())
        dynamism = TensorShapeDynamism.DYNAMIC_BOUND if dynamic else TensorShapeDynamism.STATIC
        return TensorSpec(value.dtype, sizes, _dim_order(sizes, strides, node), dynamism)


def result_spec(node: Node, spec: TensorSpec, sources: Sequence[TensorSpec]) -> TensorSpec:
    """How the result of `node` lies in the program's memory, whose eager value has `spec`.

    Contiguous where eager's operator makes up an order of its own (nonzero, svd): kernels expect usual ones. An order
    that an argument (`sources`) has is passed on.
    """
    if spec.is_contiguous or spec.is_channels_last or getattr(node.target, "namespace", "") == "dim_order_ops":
        return spec
    if any(source.dim_order == spec.dim_order for source in sources):
        return spec
    return replace(spec, dim_order=tuple(range(len(spec.sizes))))


def spec_of_tensor(tensor: torch.Tensor) -> TensorSpec:
    """The spec of a weight as it will lie in the file: contiguous unless it is channels last (ExecuTorch's rule)."""
    sizes = tuple(tensor.size())
    spec = TensorSpec(tensor.dtype, sizes, _permutation(sizes, tensor.stride()) or ())
    return spec if spec.is_channels_last else replace(spec, dim_order=tuple(range(len(sizes))))


def _dim_order(sizes: Sequence[int], strides: Sequence[int], node: Node) -> tuple[int, ...]:
    if len(sizes) > MAX_RANK:
        raise LoweringError(f"a tensor of rank {len(sizes)}; a runtime takes at most {MAX_RANK}", **_where(node))
    order = _permutation(sizes, strides)
    if order is None:
        raise LoweringError(
            f"a tensor of shape {tuple(sizes)} with strides {tuple(strides)} is not a dense permutation of its dims, so"
            " it has no dim order; make it contiguous (`.contiguous()`) where it is created",
            **_where(node),
        )
    return order


def _permutation(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """Dims from outer to inner, or None if they overlap or leave gaps.

    Dims of size 1 have no stride of their own: a tensor that can be called contiguous, or else channels last, is.
    """
    identity = tuple(range(len(sizes)))
    if 0 in sizes:
        return identity
    by_stride = tuple(sorted(identity, key=lambda dim: -strides[dim]))
    for order in (identity, _channels_last(len(sizes)), by_stride) if len(sizes) in (4, 5) else (identity, by_stride):
        if _is_dense(order, sizes, strides):
            return order
    return None


def _channels_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _is_dense(order: Iterable[int], sizes: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for dim in reversed(tuple(order)):
        if sizes[dim] != 1:
            if strides[dim] != expected:
                return False
            expected *= sizes[dim]
    return True


def _shape_env(program: ExportedProgram) -> ShapeEnv | None:
    for node in program.graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is not None and mode.shape_env is not None:
            env: ShapeEnv = mode.shape_env
            return env
    return None


def _origins(program: ExportedProgram) -> dict[sympy.Symbol, Origin]:
    """Which input dimension each symbol stands for."""
    origins: dict[sympy.Symbol, Origin] = {}
    for node in program.graph.nodes:
        if node.op != "placeholder":
            break
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            origins.setdefault(value.node.expr, Origin(str(node.target), None))
        elif isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.size()):
                if isinstance(size, torch.SymInt):
                    origins.setdefault(size.node.expr, Origin(str(node.target), dim))
    return origins


def _is_open(limits: ValueRanges[Any]) -> bool:
    return limits.upper.is_finite is False or bool(limits.upper > MAX_BOUND)


def _unbounded_text(
    symbols: Sequence[sympy.Symbol], origins: Mapping[sympy.Symbol, Origin], dim: int, node: Node
) -> str:
    known = [origins[s] for s in symbols if s in origins]
    if known:
        return (
            f"{' and '.join(map(str, known))} {'has' if len(known) == 1 else 'have'} no upper bound, so memory for this"
            f" value (its dimension {dim}) cannot be planned; give one: {'; '.join(origin.remedy for origin in known)}"
        )
    line = re.match(r".*?([^/\\]+:\d+), in ", user_location(node) or "")
    outside = f', or outside of it, lower(…, bounds={{"{line[1]}": 1024}})' if line else ""
    return (
        f"dimension {dim} of this value depends on the data ({', '.join(map(str, symbols)) or 'no symbol'}) and has no"
        " upper bound, so its memory cannot be planned; state one in the model, such as torch._check(n <= 1024)"
        + outside
    )


def _where(node: Node) -> dict[str, str | None]:
    return {"node": node.name, "location": user_location(node)}
