"""Functional program -> nothing, or an error: a buffer that is changed shows no memory of another one that is read.

    self.register_buffer("window", torch.zeros(2, 4))
    self.register_buffer("newest", self.window[1])     # a view: what is written to one is there in the other

In a program each buffer is a value of its own, so that a run would change one of them alone.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram

from delegraph.aot.graph.signature import ResolvedSignature
from delegraph.aot.graph.source_location import user_location
from delegraph.errors import LoweringError

__all__ = ["check_states_apart"]


def check_states_apart(program: ExportedProgram) -> None:
    """Raises `LoweringError` for a buffer whose changes another buffer, parameter or constant would show."""
    signature = ResolvedSignature.of(program)
    by_node = {**signature.constants, **signature.states}
    for written in signature.write_backs:
        state = signature.states.get(written.target)
        if state is None:
            continue
        for node, stored in by_node.items():
            if node is not written.target and node.users and _share_memory(state.tensor, stored.tensor):
                raise LoweringError(
                    f"the model changes its buffer {state.name!r}, and {stored.name!r} shows the same memory; in a"
                    " program each has its own, so that a change of one would not be seen in the other\n"
                    f"  what to do: make the view in forward, as self.{state.name}[…], and register one of them alone",
                    node=written.source.name,
                    location=user_location(written.source),
                )


def _share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether some element of one is an element of the other."""
    if not all(tensor.layout is torch.strided and tensor.device.type == "cpu" for tensor in (a, b)):
        return False
    if isinstance(a, FakeTensor) or isinstance(b, FakeTensor):
        return False
    same = a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    return same and bool(np.shares_memory(_as_bytes(a), _as_bytes(b)))


def _as_bytes(tensor: torch.Tensor) -> NDArray[np.uint8]:
    """The memory that `tensor` shows, with a dim more: the bytes of an element."""
    size = tensor.element_size()
    strides = (*(stride * size for stride in tensor.stride()), 1)
    place = tensor.storage_offset() * size
    shown = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage(), place, (*tensor.shape, size), strides)
    array: NDArray[np.uint8] = shown.numpy()
    return array
