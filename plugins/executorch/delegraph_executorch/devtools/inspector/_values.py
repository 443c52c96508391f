"""A value in an ETDump, with its debug buffer -> a tensor or a number; and whether two such values are the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import torch

from delegraph_executorch.devtools.etdump.schema_flatcc import (
    DebugEvent,
    Event,
    ProfileEvent,
    ScalarType,
    Tensor,
    Value,
)
from delegraph_executorch.exir.tensor import enum_to_scalar_map

__all__ = [
    "InferenceOutput",
    "ProgramOutput",
    "find_populated_event",
    "inflate_runtime_output",
    "is_debug_output",
    "is_inference_output_equal",
    "verify_debug_data_equivalence",
]

InferenceOutput: TypeAlias = Any
"""A tensor, a list of tensors, a number or None."""
ProgramOutput: TypeAlias = list[InferenceOutput]

_DTYPES: Final = {code: dtype for code, dtype in enum_to_scalar_map.items() if not code.name.startswith(("Q", "BITS"))}
_DTYPES[ScalarType.BITS16] = torch.uint16


def inflate_runtime_output(value: Value, output_buffer: bytes | None) -> InferenceOutput:
    """What `value` holds. Tensors are read from the debug buffer; without one they are zeros of their shape.

    Raises `ValueError` where it does not hold what it says, and for a tensor that ends behind the buffer.
    """
    field = _FIELDS.get(value.val)
    if field is None:
        return None
    held = getattr(value, field)
    if held is None:
        raise ValueError(f"a value of type {value.val} has no {field}; the ETDump is damaged")
    if isinstance(held, Tensor):
        return _tensor(held, output_buffer)
    if field == "tensor_list":
        return [_tensor(tensor, output_buffer) for tensor in held.tensors]
    return getattr(held, held.__slots__[0])


_FIELDS: Final = {
    "Int": "int_value",
    "Bool": "bool_value",
    "Float": "float_value",
    "Double": "double_value",
    "Tensor": "tensor",
    "TensorList": "tensor_list",
}


def _tensor(tensor: Tensor, buffer: bytes | None) -> torch.Tensor:
    if tensor.offset is None:
        raise ValueError("a tensor has no offset; the ETDump is damaged")
    dtype, sizes = _DTYPES.get(tensor.scalar_type), list(tensor.sizes)
    if dtype is None:
        raise ValueError(f"torch has no dtype for {tensor.scalar_type.name}")
    count = math.prod(sizes)
    if buffer is None or not count:
        return torch.zeros(sizes, dtype=dtype)
    data = bytearray(buffer[tensor.offset : tensor.offset + count * dtype.itemsize])
    if len(data) < count * dtype.itemsize:
        raise ValueError(
            f"a tensor lies at byte {tensor.offset} of a debug buffer of {len(buffer)} bytes; does it belong to this"
            " ETDump?"
        )
    return torch.frombuffer(data, dtype=dtype).view(sizes)


def is_inference_output_equal(output1: InferenceOutput, output2: InferenceOutput) -> bool:
    """Whether two values are the same, tensors bit by bit."""
    if isinstance(output1, torch.Tensor) and isinstance(output2, torch.Tensor):
        return torch.equal(output1, output2)
    if isinstance(output1, list) and isinstance(output2, list):
        return len(output1) == len(output2) and all(map(is_inference_output_equal, output1, output2))
    return type(output1) is type(output2) and bool(output1 == output2)


def verify_debug_data_equivalence(existing_data: Sequence[Any], new_data: Sequence[Any]) -> None:
    """Nothing, or an `AssertionError` if two runs gave other outputs."""
    assert len(existing_data) == len(new_data), (
        f"one run gave {len(existing_data)} outputs, another {len(new_data)}; give each input a bundled input index"
    )
    for position, (one, other) in enumerate(zip(existing_data, new_data, strict=True)):
        assert is_inference_output_equal(one, other), (
            f"output {position} differs between runs of one input: {one}, {other}"
        )


def is_debug_output(value: Value) -> bool:
    """Whether this is an output of the program."""
    return value.output is not None and value.output.bool_val


def find_populated_event(event: Event) -> ProfileEvent | DebugEvent:
    """The times or the value that `event` is about. Raises `ValueError` if it is neither."""
    found = event.profile_event or event.debug_event
    if found is None:
        raise ValueError("Unable to find populated event: it has neither times nor a value")
    return found
