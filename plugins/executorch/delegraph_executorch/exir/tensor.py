"""What memory planning and emission need to know of a tensor: its spec, its layout in a file, numbers for its sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, guard_or_false, guard_or_true
from torch.utils._sympy.value_ranges import bound_sympy

from delegraph.errors import LoweringError
from delegraph.program import DTYPES
from delegraph_executorch.exir import schema
from delegraph_executorch.exir.schema import DeviceType, ExtraTensorInfo, ScalarType, TensorShapeDynamism


def eval_expr(symint: int | torch.SymInt) -> int | None:
    """The size in the example that the model was exported with; None for one that depends on data."""
    if isinstance(symint, int):
        return symint
    node: Any = symint.node
    try:
        hint = node.hint
    except GuardOnDataDependentSymNode:
        return None
    return None if hint is None else int(hint)


def eval_upper_bound(maybe_symint: int | torch.SymInt) -> int:
    """The largest value that the size can take, or, without an upper bound, that in the example.

    Raises RuntimeError where there is neither.
    """
    if isinstance(maybe_symint, int):
        return maybe_symint
    node: Any = maybe_symint.node
    upper = bound_sympy(node.expr, node.shape_env.var_to_range).upper
    if isinstance(upper, sympy.Integer):
        return int(upper)
    if (hint := eval_expr(maybe_symint)) is not None:
        return hint
    raise RuntimeError(
        f"{node.expr} has no upper bound ({upper}) and depends on data; state one in the model:"
        f" torch._check({node.expr} <= 1024)"
    )


def eval_shape(shape: Iterable[int | torch.SymInt]) -> list[int | None]:
    """`eval_expr` of every size."""
    return [eval_expr(size) for size in shape]


def eval_shape_upper_bound(shape: Iterable[int | torch.SymInt]) -> list[int]:
    """`eval_upper_bound` of every size."""
    return [eval_upper_bound(size) for size in shape]


def collect_free_symbols(shape: Iterable[int | torch.SymInt]) -> set[sympy.Symbol]:
    """The symbols that the sizes are made of."""
    symbolic: list[Any] = [size for size in shape if isinstance(size, torch.SymInt)]
    return {symbol for size in symbolic for symbol in size.node.expr.free_symbols}


ALIGNMENT = 16
"""Bytes; every planned tensor starts at a multiple unless a memory planning pass asks for another."""

scalar_type_table: dict[torch.dtype, ScalarType] = {getattr(torch, info.name): info.code for info in DTYPES}

enum_to_scalar_map: dict[ScalarType, torch.dtype] = {code: dtype for dtype, code in scalar_type_table.items()}

_MEMORY_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1}
_LAYOUTS = {torch.strided: 0, torch.sparse_coo: 1}


class AddressSpaceOverflowException(Exception):
    """An offset that does not fit into 64 bits."""


# ---- sizes, strides, dim orders --------------------------------------------------------------------


def num_bytes_from_shape_and_dtype(shape: Iterable[Any], dtype: torch.dtype) -> int:
    """Bytes of a dense tensor."""
    nbytes: int = math.prod(shape) * dtype.itemsize
    return nbytes


def contiguous_stride_from_shape(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Strides of a contiguous tensor; a size of 0 counts as 1, as in torch."""
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(shape):
        strides.append(step)
        step = step if isinstance(size, int) and size == 0 else step * size
    return tuple(reversed(strides))


class _Stride:
    """A stride that can be compared although it may depend on data.

    Where torch cannot decide `a < b`, a stride that divides another is the smaller one. What remains undecided raises
    `GuardOnDataDependentSymNode`.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Stride) -> bool:
        mine, yours = self.value, other.value
        if guard_or_false(mine < yours):
            return True
        if guard_or_false(yours % mine == 0) and guard_or_true(mine != yours):
            return True
        return bool(mine < yours)


def dim_order_from_stride(stride: Sequence[Any]) -> tuple[int, ...]:
    """Dims from outer to inner: by stride, the largest first, equal ones in order. RuntimeError for a stride of 0."""
    for step in stride:
        torch._check(step != 0, lambda: "a stride of 0 is not supported: expand makes one, make the tensor contiguous")
    return tuple(sorted(range(len(stride)), key=lambda dim: _Stride(stride[dim]), reverse=True))


def stride_from_dim_order(sizes: Sequence[Any], dim_order: Sequence[int]) -> list[Any]:
    """Strides of a dense tensor whose dims lie in this order, outer to inner; a size of 0 counts as 1."""
    strides: list[Any] = [1] * len(sizes)
    step: Any = 1
    for dim in reversed(dim_order):
        strides[dim] = step
        step = step if isinstance(sizes[dim], int) and sizes[dim] == 0 else sizes[dim] * step
    return strides


def calculate_aligned_num_bytes(num: int, alignment: int) -> int:
    """`num` rounded up to a multiple of `alignment`."""
    return -(-num // alignment) * alignment


def determine_tensor_dynanism(shape: Iterable[Any]) -> TensorShapeDynamism:
    """Whether sizes are numbers, symbols, or unknown until run time."""
    sizes = list(shape)
    if all(isinstance(size, int) for size in sizes):
        return TensorShapeDynamism.STATIC
    try:
        known = eval_shape(sizes)
    except GuardOnDataDependentSymNode:
        return TensorShapeDynamism.DYNAMIC_UNBOUND
    return TensorShapeDynamism.DYNAMIC_UNBOUND if None in known else TensorShapeDynamism.DYNAMIC_BOUND


# ---- the spec --------------------------------------------------------------------------------------


class TensorSpec:
    """A tensor of a graph: dtype, shape, and where memory planning put it (`node.meta["spec"]`).

    `lifetime` is the first and last node that uses it; `mem_id`, `mem_offset` and `mem_obj_id` are set by planning.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        shape: Sequence[Any],
        layout: torch.layout = torch.strided,
        is_sparse: bool = False,
        const: bool = False,
        requires_grad: bool = False,
        extra_tensor_info: ExtraTensorInfo | None = None,
    ) -> None:
        self.scalar_type = dtype
        self.const = const
        self.alignment = ALIGNMENT
        self.storage: torch.UntypedStorage | None = None
        self.shape: list[Any] = list(shape)
        self.stride: tuple[Any, ...] = contiguous_stride_from_shape(shape)
        self.dim_order: tuple[int, ...] = dim_order_from_stride(self.stride)
        self.requires_grad = requires_grad
        self.layout = layout
        self.is_sparse = is_sparse
        self.init_mem_planning_fields()
        self.shape_dynamism = determine_tensor_dynanism(self.shape)
        self.extra_tensor_info = extra_tensor_info
        self.device = DeviceType.CPU
        self.device_index = 0

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor, const: bool = False) -> TensorSpec:
        """The spec of `tensor`; of a constant, with its bytes made contiguous."""
        if const:
            tensor = tensor.contiguous()
            if tensor.nbytes != tensor.untyped_storage().nbytes():
                tensor = tensor.clone()
        spec = cls(tensor.dtype, tensor.shape, tensor.layout, tensor.is_sparse, const)
        spec.stride = tuple(tensor.stride())
        spec.dim_order = dim_order_from_stride(spec.stride)
        spec.requires_grad = tensor.requires_grad
        spec.storage = tensor.untyped_storage() if const else None
        return spec

    def init_mem_planning_fields(self) -> None:
        """Forget what planning has set."""
        self.lifetime: list[int | None] = [None, None]
        self.mem_id: int | None = None
        self.mem_obj_id: int | None = None
        self.mem_offset: int | None = None
        self.storage_base: TensorSpec | None = None
        self.storage_base_offset = 0

    @property
    def inplace_base(self) -> TensorSpec | None:
        """`storage_base`, as ExecuTorch 1.4 calls it. Raises `LoweringError` where this lies behind its beginning."""
        self._check_at_the_beginning()
        return self.storage_base

    @inplace_base.setter
    def inplace_base(self, base: TensorSpec | None) -> None:
        self._check_at_the_beginning()
        self.storage_base = base

    def _check_at_the_beginning(self) -> None:
        if self.storage_base_offset:
            raise LoweringError(
                "inplace_base is a storage_base at offset 0, for which storage_base_offset is 0; it is"
                f" {self.storage_base_offset}: read and set storage_base"
            )

    def storage_chain(self) -> list[TensorSpec]:
        """This, then the tensor in whose memory it lies (`storage_base`, at `storage_base_offset` bytes), then that
        one's, and so on. Raises `LoweringError` where that goes in a circle."""
        chain = [self]
        while (base := chain[-1].storage_base) is not None:
            if base in chain:
                raise LoweringError(
                    f"{self} lies in the memory of a tensor that lies in its own: storage_base is circular"
                )
            chain.append(base)
        return chain

    @property
    def dtype(self) -> torch.dtype:
        """The element type."""
        return self.scalar_type

    @property
    def allocated_memory(self) -> int:
        """Bytes that planning sets aside: those of the tensor, aligned."""
        return calculate_aligned_num_bytes(self.nbytes(), self.alignment)

    def realign(self, new_alignment: int) -> int:
        """Ask for another alignment; the bytes to set aside now."""
        self.alignment = new_alignment
        return self.allocated_memory

    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return num_bytes_from_shape_and_dtype(self.shape, self.dtype)

    @property
    def is_static_shape_tensor(self) -> bool:
        """Whether the shape is known now."""
        return self.shape_dynamism is TensorShapeDynamism.STATIC

    @property
    def is_dynamic_shape_tensor(self) -> bool:
        """Whether the shape is known at run time only."""
        return not self.is_static_shape_tensor

    @property
    def is_upper_bound_tensor(self) -> bool:
        """Whether the shape has an upper bound, which is what is planned."""
        return self.shape_dynamism is TensorShapeDynamism.DYNAMIC_BOUND

    @property
    def is_dynamic_unbound_tensor(self) -> bool:
        """Whether nothing is known about the shape."""
        return self.shape_dynamism is TensorShapeDynamism.DYNAMIC_UNBOUND

    def debug(self) -> str:
        """Everything about its memory, on a line."""
        return (
            f"TensorSpec(id={id(self)}, const={self.const}, scalar_type={self.scalar_type},"
            f" allocated_memory={self.allocated_memory}, mem_id={self.mem_id}, mem_offset={self.mem_offset},"
            f" lifetime={self.lifetime}, shape_dynamism={self.shape_dynamism}, shape={self.shape})"
        )

    def __repr__(self) -> str:
        return (
            f"TensorSpec(dtype={self.scalar_type}, shape={self.shape}, layout={self.layout},"
            f" is_sparse={self.is_sparse}, shape_dynamism={self.shape_dynamism}, const={self.const},"
            f" requires_grad={self.requires_grad}, device={self.device.name}:{self.device_index})"
        )


def check_spec(tensor: torch.Tensor, spec: TensorSpec) -> None:
    """Raise `LoweringError` unless `tensor` is what `spec` says."""
    for name in ("is_sparse", "shape", "dtype"):
        wanted, found = getattr(spec, name), getattr(tensor, name)
        same = list(found) == list(wanted) if name == "shape" else found == wanted
        if not same:
            raise LoweringError(f"the tensor's {name} is {found}; its spec says {wanted}")


# ---- the program's records -------------------------------------------------------------------------


def scalar_type_enum(dtype: torch.dtype) -> ScalarType:
    """The code of a dtype."""
    return scalar_type_table[dtype]


def get_scalar_type(enum: ScalarType) -> torch.dtype:
    """The dtype of a code."""
    return enum_to_scalar_map[enum]


def memory_format_enum(memory_format: torch.memory_format) -> int:
    """The code of a memory format."""
    return _MEMORY_FORMATS[memory_format]


def layout_enum(layout: torch.layout) -> int:
    """The code of a layout."""
    return _LAYOUTS[layout]


def make_allocation_info(mem_id: int, mem_offset: int) -> schema.AllocationDetails:
    """The record of a place. Raises ValueError below 0, `AddressSpaceOverflowException` from 2^64 on."""
    if mem_offset < 0:
        raise ValueError(f"mem_offset {mem_offset} is negative")
    high, low = divmod(mem_offset, 2**32)
    if high >= 2**32:
        raise AddressSpaceOverflowException(f"mem_offset {mem_offset} does not fit in 64 bits")
    return schema.AllocationDetails(mem_id, low, high)


def make_tensor_value(
    data_buffer_idx: int, allocation_info: schema.AllocationDetails | None, spec: TensorSpec
) -> schema.Tensor:
    """The record of the tensor that `spec` describes."""
    extra = spec.extra_tensor_info
    if spec.device != DeviceType.CPU:
        extra = extra or ExtraTensorInfo()
        extra.device_type, extra.device_index = spec.device, spec.device_index
    return schema.Tensor(
        scalar_type=scalar_type_enum(spec.scalar_type),
        storage_offset=0,
        sizes=list(spec.shape),
        dim_order=list(spec.dim_order),
        requires_grad=spec.requires_grad,
        layout=layout_enum(spec.layout),
        data_buffer_idx=data_buffer_idx,
        allocation_info=allocation_info,
        shape_dynamism=spec.shape_dynamism,
        extra_tensor_info=extra,
    )


@dataclass
class TensorLayout:
    """Element type, sizes, and dims from outer to inner."""

    scalar_type: ScalarType
    sizes: list[int]
    dim_order: list[int]

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor) -> TensorLayout:
        """The layout of a dense tensor. Raises ValueError for another."""
        formats = (torch.contiguous_format, torch.channels_last)
        if not any(tensor.is_contiguous(memory_format=one) for one in formats):
            raise ValueError("the tensor is neither contiguous nor channels last; call .contiguous() first")
        return cls(scalar_type_enum(tensor.dtype), list(tensor.shape), list(dim_order_from_stride(tensor.stride())))
