"""Mutable buffers by name -> read, set, reset, saved and restored: a model's state, which lasts from run to run.

Each method that was loaded has its own, unless its program's methods share them (`shared_state.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from delegraph.errors import InvalidArgument, InvalidExternalData, InvalidState, InvalidType, NotFound
from delegraph.program.dtypes import numpy_dtype, scalar_type
from delegraph.program.strides import dense_strides
from delegraph.runtime.data_loader import open_data_loader
from delegraph.runtime.execution.exclusive import Exclusive
from delegraph.runtime.integrity import Trust, open_content
from delegraph.runtime.values.tensors import as_array
from delegraph.runtime.values.values import Array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delegraph.interfaces import DeviceBuffer
    from delegraph.program.flat_tensor import ExternalData
    from delegraph.program.schema import Buffer

Result = TypeVar("Result")

HOST: Final = "host"
"""The owner of a buffer that kernels or delegates read and write in the host's memory."""


class NoSuchBuffer(NotFound, KeyError):
    """There is no mutable buffer of that name."""

    __str__ = Exception.__str__  # a KeyError shows its argument's repr


class StateBuffer:
    """A mutable buffer: `memory` holds `initial` at first, None: zeros.

    One that has neither planned memory nor a value in the file is not `is_set` before somebody sets it. `owner` is the
    backend on whose device the value is between runs, with `on_device` to fetch it, or `HOST`; None: nobody has asked.
    """

    __slots__ = ("_knows_initial", "initial", "is_set", "memory", "on_device", "owner")

    def __init__(
        self, memory: Array, initial: Array | None = None, *, is_set: bool = True, owner: str | None = None
    ) -> None:
        self.memory = memory
        self.initial = initial
        self.is_set = self._knows_initial = is_set
        self.owner = owner
        self.on_device: DeviceBuffer | None = None

    @property
    def array(self) -> Array:
        """Its memory, with the current value in it."""
        if self.on_device is not None:
            self.on_device.copy_to_host()
        return self.memory

    def set(self, value: Array) -> None:
        """Copy `value`, of the same shape and dtype, into it."""
        np.copyto(self.array, value)
        self.is_set = True

    def reset(self) -> None:
        """Set it to its initial content."""
        self.array[...] = 0 if self.initial is None else self.initial
        self.is_set = self._knows_initial


class Guard:
    """Whose memory some buffers are: they are not touched while it is executing."""

    __slots__ = ("_alone",)

    def __init__(self, alone: Exclusive) -> None:
        self._alone = alone

    def around(self, action: Callable[[], Result]) -> Result:
        """`action()`, while nobody executes. Raises `InvalidState` if somebody does."""
        with self._alone:
            return action()


class State(Mapping[str, "NDArray[Any]"]):
    """Mutable buffers by fully qualified name: `state["cache.k"]` is a view of its memory, to read or to write.

    Of a buffer that a backend leaves on its device it is a copy as of now, which the next run begins with: ask again
    after that run. Whatever changes or copies them raises `InvalidState` while a method that has them is executing in
    another thread.
    """

    __slots__ = ("buffers", "guards")

    def __init__(self, buffers: Mapping[str, StateBuffer], guards: Iterable[Exclusive]) -> None:
        self.buffers = buffers
        self.guards = tuple(dict.fromkeys(guards))

    def __getitem__(self, name: str) -> NDArray[Any]:
        buffer = self._buffer(name)
        buffer.is_set = True  # whoever asks for an array to be set sets it
        return buffer.memory if buffer.on_device is None else self._alone(lambda: buffer.array)

    def __setitem__(self, name: str, value: object) -> None:
        """Set a buffer to `value`, an array or a tensor of its shape and dtype.

        Raises `NotFound`, `InvalidType` or `InvalidArgument`.
        """
        buffer = self._buffer(name)
        array = _fitting(name, buffer, value)
        self._alone(lambda: buffer.set(array))

    def __iter__(self) -> Iterator[str]:
        return iter(self.buffers)

    def __len__(self) -> int:
        return len(self.buffers)

    def reset(self) -> None:
        """Set all of them to their contents at load."""

        def reset_all() -> None:
            for buffer in self.buffers.values():
                buffer.reset()

        self._alone(reset_all)

    def copy(self) -> dict[str, NDArray[Any]]:
        """The current contents, for `restore`: arrays of the caller's own."""
        return self._alone(lambda: {name: buffer.array.copy() for name, buffer in self.buffers.items()})

    def restore(self, saved: Mapping[str, object]) -> None:
        """Set all of them to the contents of `saved`: a `copy`, or another session's state. All of them, or none.

        Raises `InvalidArgument` if its names are others, or a shape, and `InvalidType` if a dtype is.
        """
        # Another session's state is copied while that session stands still, before this one is touched.
        if isinstance(saved, State):
            saved = saved.copy()
        self._check_names(saved)
        # All are checked before the first is set: a state that does not fit changes nothing.
        arrays = [(buffer, _fitting(name, buffer, saved[name])) for name, buffer in self.buffers.items()]

        def set_all() -> None:
            for buffer, array in arrays:
                buffer.set(array)

        self._alone(set_all)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write their current contents to a `.ptd`, each under its name: whole or not at all. Raises `OSError`."""
        from delegraph.program.files.atomic_file import write_atomically
        from delegraph.program.files.seal import sealed
        from delegraph.program.flat_tensor import FlatTensor, flat_tensor_pieces

        entries = {name: _written(array) for name, array in self.copy().items()}
        write_atomically(path, sealed(flat_tensor_pieces(FlatTensor(MappingProxyType(entries)))))

    def load(self, path: str | os.PathLike[str] | Buffer) -> None:
        """Restore a file that `save` wrote. Raises `InvalidExternalData` for a file that is none or damaged, and as
        `restore`."""
        from delegraph.program.flat_tensor import deserialize_flat_tensor

        content = open_content(open_data_loader(path), Trust("full"), InvalidExternalData)
        named = deserialize_flat_tensor(content).named_data
        self.restore({name: _read(name, entry) for name, entry in named.items()})

    def __repr__(self) -> str:
        buffers = (f"{name}: {tensor_text(buffer.memory)}" for name, buffer in self.buffers.items())
        return f"State({', '.join(buffers)})"

    def _buffer(self, name: str) -> StateBuffer:
        buffer = self.buffers.get(name)
        if buffer is None:
            known = ", ".join(sorted(self.buffers))
            raise NoSuchBuffer(f"there is no mutable buffer {name!r}; {f'there is {known}' if known else _NONE}")
        return buffer

    def _check_names(self, saved: Mapping[str, object]) -> None:
        missing, unknown = sorted(self.keys() - saved.keys()), sorted(saved.keys() - self.keys())
        if missing or unknown:
            faults = [f"{' and '.join(names)} {what}" for names, what in ((missing, "missing"), (unknown, "unknown"))]
            raise InvalidArgument(
                f"this is the state of another program: {', '.join(f for f in faults if f[0] != ' ')};"
                " restore what a state of this program's own gave or saved"
            )

    def _alone(self, action: Callable[[], Result]) -> Result:
        if not self.buffers:
            raise NoSuchBuffer(f"there is no state: {_NONE}")
        # One inside the other: it happens while none of the methods runs, or not at all.
        for alone in self.guards:
            action = partial(Guard(alone).around, action)
        return action()


_NONE = "the model changes no buffer, or it was lowered without emit_mutable_buffer_names (ExecuTorch's default)"


def joined_state(states: Mapping[str, State]) -> State:
    """The buffers of several loaded methods, by name, and by `method/name` where methods each have their own."""
    owners: dict[str, dict[int, tuple[str, StateBuffer]]] = {}
    for method_name, state in states.items():
        for name, buffer in state.buffers.items():
            owners.setdefault(name, {}).setdefault(id(buffer), (method_name, buffer))
    # Methods that share a buffer have one object, by which it is counted once.
    joined = {
        name if len(owning) == 1 else f"{method_name}/{name}": buffer
        for name, owning in owners.items()
        for method_name, buffer in owning.values()
    }
    return State(joined, [alone for state in states.values() for alone in state.guards])


def require_set(state: State, method: str) -> None:
    """Raise `InvalidState` if there is a buffer that the caller has to set before `method` runs, and has not."""
    unset = sorted(name for name, buffer in state.buffers.items() if not buffer.is_set)
    if not unset:
        return
    raise InvalidState(
        f"method {method!r}: nothing says what {', '.join(map(repr, unset))} holds at first:"
        " the program was lowered with alloc_mutable_buffers=False, which leaves that to the caller\n"
        f"  what to do: set it before the first execution, method.get_attribute({unset[0]!r})[:] = …, or lower"
        " with alloc_mutable_buffers=True, which keeps the model's value in the file"
    )


# ---- values ----------------------------------------------------------------------------------------


def _fitting(name: str, buffer: StateBuffer, value: object) -> Array:
    array, current = as_array(value), buffer.memory
    unlike = f"{name!r} is {tensor_text(current)}, got {tensor_text(array)}"
    if array.dtype != current.dtype:
        raise InvalidType(f"{unlike}; pass value.astype('{current.dtype}')")
    if array.shape != current.shape:
        raise InvalidArgument(unlike)
    return array


def tensor_text(array: Array) -> str:
    """`float32[1, 2]`."""
    return f"{array.dtype}[{', '.join(map(str, array.shape))}]"


def _written(array: Array) -> ExternalData:
    from delegraph.program.flat_tensor import ExternalData, TensorLayout

    layout = TensorLayout(scalar_type(str(array.dtype)), array.shape, tuple(range(array.ndim)))
    return ExternalData(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, layout)


def _read(name: str, entry: ExternalData) -> Array:
    layout = entry.tensor_layout
    if layout is None:
        raise InvalidExternalData(f"{name!r} is a blob, not a tensor; load what State.save wrote")
    dtype = numpy_dtype(layout.scalar_type)
    strides = dense_strides(layout.sizes, dtype.itemsize, layout.dim_order)
    array: Array = np.ndarray(layout.sizes, dtype, entry.data, 0, strides)
    return array
