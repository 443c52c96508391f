"""The states of a blob -> their memory, bound to the graph: values that a delegate keeps from run to run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import numpy as np

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.lazy_dataclass import dataclass
from delegraph_cpu.blob import Blob, StateInfo
from delegraph_cpu.runtime.ort_values import array_in, numpy_dtype, ort_value

if TYPE_CHECKING:
    import onnxruntime
    from numpy.typing import NDArray

__all__ = ["HeldState", "hold_states", "initial_value"]


@dataclass(frozen=True, slots=True)
class HeldState:
    """A buffer in `memory`: the graph's input `name`, which lies there, and its output `output`, its new value.

    `value` and `new_value` share memory where the graph changes it in place. Elsewhere the new value has `scratch` of
    its own.
    """

    name: str
    output: str
    memory: NDArray[Any]
    value: onnxruntime.OrtValue
    new_value: onnxruntime.OrtValue
    scratch: NDArray[Any] | None

    def bind(self, binding: onnxruntime.IOBinding) -> None:
        """Bind the value as an input, and the new one as an output behind the others."""
        binding.bind_ortvalue_input(self.name, self.value)
        binding.bind_ortvalue_output(self.output, self.new_value)

    def take_over(self, binding: object) -> None:
        """After a run of what is bound: the new value becomes the buffer's value."""
        if self.scratch is not None:
            np.copyto(self.memory, self.scratch)


def hold_states(blob: Blob, mutable_buffer: Callable[[str, NDArray[Any]], NDArray[Any]]) -> tuple[HeldState, ...]:
    """The states of `blob`, in memory that `mutable_buffer` (of `BackendInitContext`) gives."""
    return tuple(_held(state, mutable_buffer(state.buffer, initial_value(state, blob))) for state in blob.states)


def initial_value(state: StateInfo, blob: Blob) -> NDArray[Any]:
    """The buffer's initial value; zeros take no memory."""
    if state.initial is None:
        return np.broadcast_to(np.zeros((), numpy_dtype(state.dtype)), state.shape)
    data = memoryview(blob.data)[state.initial : state.initial + state.nbytes]
    return array_in(data, state.dtype, state.shape)


def _held(state: StateInfo, memory: NDArray[Any]) -> HeldState:
    if not (memory.flags.c_contiguous and memory.flags.aligned):
        raise DelegateInvalidCompatibility(
            f"a delegate on onnxruntime keeps the buffer {state.buffer!r}, which another method has in a layout that is"
            " not contiguous; lower both methods for the same backend, or with the buffer in the contiguous format"
        )
    value = ort_value(memory)
    if state.in_place:
        return HeldState(state.name, state.output, memory, value, value, None)
    scratch = _scratch_of(memory)
    return HeldState(state.name, state.output, memory, value, ort_value(scratch), scratch)


def _scratch_of(memory: NDArray[Any]) -> NDArray[Any]:
    """Room for the new value of the state in `memory`. Methods of one load that share the state share it: they cannot
    run at the same time."""
    key = (memory.ctypes.data, memory.shape, memory.dtype.str)
    scratch = _SCRATCHES.get(key)
    if scratch is None:
        scratch = _SCRATCHES[key] = np.empty_like(memory)
    return scratch


_SCRATCHES: Final[WeakValueDictionary[tuple[int, tuple[int, ...], str], NDArray[Any]]] = WeakValueDictionary()
"""By a state's address; they live as long as a `HeldState` of it."""
