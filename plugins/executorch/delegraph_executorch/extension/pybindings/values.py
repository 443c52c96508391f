"""What ExecuTorch's bindings are given, give back and tell <-> what `delegraph.runtime` does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import delegraph.runtime
from delegraph.errors import InvalidArgument, InvalidType, RuntimeFault, restated
from delegraph.program import ScalarType
from delegraph.program.schema import Null, Tensor, Value
from delegraph.runtime import to_torch

NUMBERS: Final[dict[type[RuntimeFault], int]] = {InvalidType: InvalidArgument.code}
"""Where ExecuTorch has another number than the fault's `code`: an input of a wrong dtype is an invalid argument."""


@contextmanager
def failing_to(action: str) -> Iterator[None]:
    """Within: `RuntimeFault`s say "Failed to <action>, error: 0x12" before what they say by themselves.

    Numbers are ExecuTorch's (`runtime/core/error.h`): the faults' `code`, but for `NUMBERS`.
    """
    try:
        yield
    except RuntimeFault as fault:
        number = NUMBERS.get(type(fault), fault.code)
        raise restated(fault, f"Failed to {action}, error: {number:#x}\n{fault}") from fault.__cause__


def flat_inputs(inputs: Any) -> Sequence[Any]:
    """A sequence of inputs; a single tensor or array is the only one."""
    return inputs if isinstance(inputs, list | tuple) or not hasattr(inputs, "shape") else (inputs,)


def torch_outputs(outputs: list[Any], inputs: Sequence[Any]) -> list[Any]:
    """Outputs as torch tensors, which ExecuTorch always gives; as arrays where the caller works without torch.

    That is where an input is a NumPy array, or nobody has imported torch into this process.
    """
    torch = sys.modules.get("torch")
    is_numpy = any(hasattr(value, "__array_interface__") and not _is_torch(value) for value in inputs)
    return outputs if torch is None or is_numpy else to_torch(outputs)


def _is_torch(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


_DTYPE_NAMES = {
    ScalarType.COMPLEX32: "ComplexHalf",
    ScalarType.COMPLEX64: "ComplexFloat",
    ScalarType.COMPLEX128: "ComplexDouble",
    ScalarType.QINT8: "QInt8",
    ScalarType.QUINT8: "QUInt8",
    ScalarType.QINT32: "QInt32",
    ScalarType.BFLOAT16: "BFloat16",
    ScalarType.FLOAT8E5M2: "Float8_e5m2",
    ScalarType.FLOAT8E4M3FN: "Float8_e4m3fn",
    ScalarType.FLOAT8E5M2FNUZ: "Float8_e5m2fnuz",
    ScalarType.FLOAT8E4M3FNUZ: "Float8_e4m3fnuz",
    ScalarType.UINT16: "UInt16",
    ScalarType.UINT32: "UInt32",
    ScalarType.UINT64: "UInt64",
}
"""PyTorch's names (c10/core/ScalarType.h) that are not the code's name with a capital letter."""


class NoSuchTensor(InvalidArgument, IndexError):
    """There is no such input, output or attribute, or it is not a tensor."""


class TensorInfo(delegraph.runtime.TensorInfo):
    """One tensor input, output or attribute; its sizes are upper bounds where it is dynamic."""

    def __repr__(self) -> str:
        dtype = _DTYPE_NAMES.get(self.dtype(), self.dtype().name.capitalize())
        return (
            f"TensorInfo(sizes={list(self.sizes())}, dtype={dtype},"
            f" is_memory_planned={self.is_memory_planned()}, nbytes={self.nbytes()})"
        )


class MethodMeta(delegraph.runtime.MethodMeta):
    """Inputs, outputs and attributes of a method. What is out of range, or not a tensor, is an `IndexError`."""

    def input_tensor_meta(self, index: int) -> TensorInfo:
        """A tensor input. Raises `NoSuchTensor`."""
        return self._checked(super().input_tensor_meta, index)

    def output_tensor_meta(self, index: int) -> TensorInfo:
        """A tensor output. Raises `NoSuchTensor`."""
        return self._checked(super().output_tensor_meta, index)

    def attribute_tensor_meta(self, index: int) -> TensorInfo:
        """A named buffer. Raises `NoSuchTensor`."""
        return self._checked(super().attribute_tensor_meta, index)

    def __repr__(self) -> str:
        inputs = [_text(self.input_value(index)) for index in range(self.num_inputs())]
        outputs = [_text(self.output_value(index)) for index in range(self.num_outputs())]
        return (
            f"MethodMeta(name={self.name()!r}, num_inputs={len(inputs)}, input_tensor_meta={inputs},"
            f" num_outputs={len(outputs)}, output_tensor_meta={outputs})"
        )

    def _checked(self, find: Callable[[int], delegraph.runtime.TensorInfo], index: int) -> TensorInfo:
        try:
            return TensorInfo(find(index).record)
        except InvalidArgument as error:
            raise NoSuchTensor(str(error)) from error


def _text(value: Value) -> str:
    """A value that is not a tensor is its kind's name, as outputs are in ExecuTorch; there such an input raises."""
    if isinstance(value, Tensor):
        return repr(TensorInfo(value))
    return "None" if isinstance(value, Null) else type(value).__name__
