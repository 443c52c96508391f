"""What a method takes and gives, as ExecuTorch's bindings tell it: its `repr`, and `IndexError`."""

from __future__ import annotations

from collections.abc import Callable

import delegraph.runtime
from delegraph.errors import InvalidArgument
from delegraph.program.schema import Null, Tensor, Value

__all__ = ["MethodMeta", "NoSuchTensor", "TensorInfo"]


class NoSuchTensor(InvalidArgument, IndexError):
    """There is no such input, output or attribute, or it is not a tensor."""


class TensorInfo(delegraph.runtime.TensorInfo):
    """One tensor input, output or attribute; its sizes are upper bounds where it is dynamic."""

    def __repr__(self) -> str:
        return (
            f"TensorInfo(sizes={list(self.sizes())}, dtype={self.dtype().name.capitalize()},"
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
