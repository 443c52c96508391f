"""One value of a method -> its violations: tensors' geometry and place, list items, the ranges of the file's types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from delegraph.lazy_dataclass import dataclass, field
from delegraph.program.checks import field_checks
from delegraph.program.checks.field_checks import Violations
from delegraph.program.dtypes import nbytes
from delegraph.program.schema import (
    Bool,
    BoolList,
    Double,
    DoubleList,
    ExtraTensorInfo,
    Int,
    IntList,
    Null,
    OptionalTensorList,
    ScalarType,
    String,
    Tensor,
    TensorDataLocation,
    TensorList,
)

MAX_RANK: Final = 16
"""The most dims of a tensor that ExecuTorch's runtime takes (`kTensorDimensionLimit`)."""
MAX_SIZE: Final = 2**31 - 1
MAX_NBYTES: Final = 2**63 - 1

Kinds: TypeAlias = tuple[type[object], ...]
"""The records' classes of a method's values, by index."""
Geometry: TypeAlias = tuple[ScalarType, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ValueContext:
    """The surroundings on which the violations of a value depend; sizes in bytes, by index.

    `geometries` remembers the violations of (scalar_type, sizes, dim_order), which many tensors share.
    """

    kinds: Kinds
    constant_sizes: tuple[int, ...]
    mutable_data_sizes: tuple[int, ...]
    planned_sizes: tuple[int, ...]
    geometries: dict[Geometry, tuple[str, ...]] = field(default_factory=dict)


Check: TypeAlias = Callable[[ValueContext, int, Any], Violations]


def value_violations(context: ValueContext, index: int, value: object) -> Violations:
    """The violations of the value at `index`."""
    check = _CHECKS.get(type(value))
    if check is None:
        yield f": is a {type(value).__name__}, not a record of a value"
    else:
        yield from check(context, index, value)


# ---- tensors ---------------------------------------------------------------------------------------


def _tensor(context: ValueContext, index: int, tensor: Tensor) -> Violations:
    geometry = (tensor.scalar_type, tensor.sizes, tensor.dim_order)
    violations = context.geometries.get(geometry)
    if violations is None:
        violations = context.geometries[geometry] = tuple(geometry_violations(*geometry))
    yield from violations
    if tensor.storage_offset != 0:
        yield f".storage_offset: is {tensor.storage_offset}; runtimes take 0 only"
    if tensor.extra_tensor_info is not None:
        yield from field_checks.under(".extra_tensor_info", _extra_tensor_info(tensor.extra_tensor_info))
    if not violations:
        yield from _place(context, tensor)


def geometry_violations(scalar_type: ScalarType, sizes: tuple[int, ...], dim_order: tuple[int, ...]) -> Violations:
    """The violations of a tensor's shape, layout and size in bytes, by themselves."""
    rank = len(sizes)
    if rank > MAX_RANK:
        yield f".sizes: has {rank} dims; runtimes take {MAX_RANK} at most"
        return
    wrong = tuple(field_checks.integers(sizes, (0, MAX_SIZE)))
    yield from field_checks.under(".sizes", wrong)
    if len(dim_order) != rank or sorted(dim_order) != list(range(rank)):
        yield f".dim_order: is {dim_order!r}, not a permutation of the {rank} dims"
    addressed = [size or 1 for size in sizes]  # strides count a dim of size 0 as 1
    if not wrong and nbytes(scalar_type, addressed) > MAX_NBYTES:
        yield f".sizes: is {sizes!r}, {nbytes(scalar_type, addressed)} bytes, more than 64 bits can address"


def is_external(tensor: Tensor) -> bool:
    """Whether the tensor's data are in a `.ptd`."""
    info = tensor.extra_tensor_info
    return info is not None and info.location is TensorDataLocation.EXTERNAL


def is_stored(tensor: Tensor) -> bool:
    """Whether there are bytes for the tensor, in the file or a `.ptd`: its value, or the one that it has at first."""
    return tensor.data_buffer_idx > 0 or is_external(tensor)


def _extra_tensor_info(info: ExtraTensorInfo) -> Violations:
    yield from field_checks.under(
        ".mutable_data_segments_idx", field_checks.integer(info.mutable_data_segments_idx, field_checks.UINT64)
    )
    yield from field_checks.under(".device_index", field_checks.integer(info.device_index, field_checks.INT8))
    if info.fully_qualified_name is not None:
        yield from field_checks.under(".fully_qualified_name", field_checks.text(info.fully_qualified_name))
    if info.location is TensorDataLocation.EXTERNAL and not info.fully_qualified_name:
        yield ".fully_qualified_name: is missing; it is how external data are found"


def _place(context: ValueContext, tensor: Tensor) -> Violations:
    """The tensor's bytes are within its storage: planned memory, a constant, or its initial data."""
    needed = nbytes(tensor.scalar_type, tensor.sizes)
    allocation = tensor.allocation_info
    if allocation is not None:
        yield from _allocation(context, allocation.memory_id, allocation.memory_offset, needed)
    if is_external(tensor):
        yield from field_checks.under(
            ".data_buffer_idx", field_checks.integer(tensor.data_buffer_idx, field_checks.UINT32)
        )
    elif tensor.data_buffer_idx != 0:
        what, sizes = (
            ("constants", context.constant_sizes)
            if allocation is None
            else ("mutable_data", context.mutable_data_sizes)
        )
        yield from _data(tensor.data_buffer_idx, what, sizes, needed)


def _data(index: int, what: str, sizes: tuple[int, ...], needed: int) -> Violations:
    if not (isinstance(index, int) and 0 <= index < len(sizes)):
        yield f".data_buffer_idx: is {index!r}, but there are {len(sizes)} {what}"
    elif sizes[index] < needed:
        yield f".data_buffer_idx: is {index}; {what}[{index}] has {sizes[index]} bytes, the tensor needs {needed}"


def _allocation(context: ValueContext, memory_id: int, offset: int, needed: int) -> Violations:
    count = len(context.planned_sizes)
    if not (isinstance(memory_id, int) and 0 < memory_id < count):
        yield f".allocation_info.memory_id: is {memory_id!r}; ids of planned memory are 1 to {count - 1} here"
    elif not (isinstance(offset, int) and 0 <= offset <= context.planned_sizes[memory_id] - needed):
        yield (
            f".allocation_info.memory_offset: is {offset!r}; the tensor needs {needed} bytes from there on, and "
            f"non_const_buffer_sizes[{memory_id}] is {context.planned_sizes[memory_id]}"
        )


# ---- scalars and lists -----------------------------------------------------------------------------


def _nothing(context: ValueContext, index: int, value: object) -> Violations:
    return iter(())


def _typed(*kinds: type[object]) -> Check:
    """A check of `value.value` by type."""

    def check(context: ValueContext, index: int, value: Bool | Double) -> Violations:
        if not isinstance(value.value, kinds):
            yield f": is {value!r}; it has to hold a {kinds[0].__name__}"

    return check


def _literals(*kinds: type[object]) -> Check:
    """A check of `value.items` by type."""

    def check(context: ValueContext, index: int, value: DoubleList | BoolList) -> Violations:
        for i, item in enumerate(value.items):
            if not isinstance(item, kinds):
                yield f".items[{i}]: is {item!r}, not a {kinds[0].__name__}"

    return check


def _int_list(context: ValueContext, index: int, value: IntList) -> Violations:
    yield from _boxed(context, value.items, len(context.kinds), Int)


def _tensor_list(context: ValueContext, index: int, value: TensorList) -> Violations:
    yield from _boxed(context, value.items, index, Tensor)


def _optional_tensor_list(context: ValueContext, index: int, value: OptionalTensorList) -> Violations:
    yield from _boxed(context, tuple(item if item != -1 else None for item in value.items), index, Tensor)


def _boxed(context: ValueContext, items: tuple[int | None, ...], end: int, kind: type[object]) -> Violations:
    """Items are indices below `end` of values of one kind. Values are parsed in order, lists of tensors after them."""
    for i, item in enumerate(items):
        if item is None:
            continue
        if not (isinstance(item, int) and 0 <= item < end):
            yield f".items[{i}]: is {item!r}, not the index of one of the {end} values that it may refer to"
        elif context.kinds[item] is not kind:
            yield f".items[{i}]: is {item}, a value of kind {context.kinds[item].__name__}, not {kind.__name__}"


_CHECKS: Final[dict[type[object], Check]] = {
    Null: _nothing,
    Int: lambda context, index, value: field_checks.under(
        ".value", field_checks.integer(value.value, field_checks.INT64)
    ),
    Bool: _typed(bool),
    Double: _typed(float, int),
    Tensor: _tensor,
    String: lambda context, index, value: field_checks.under(".value", field_checks.text(value.value)),
    IntList: _int_list,
    DoubleList: _literals(float, int),
    BoolList: _literals(bool),
    TensorList: _tensor_list,
    OptionalTensorList: _optional_tensor_list,
}
