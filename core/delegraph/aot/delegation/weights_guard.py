"""A user's weights, before and behind a backend's code -> an error for the first that it changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor
from torch.export import ExportedProgram

from delegraph.aot.graph.stored_tensor import storage_bytes

__all__ = ["ChangedWeight", "unchanged_weights"]

_BYTES: Final = 256
"""How many bytes of a weight are compared: all of it would take as long as storing it. The kit compares all of them."""


class ChangedWeight(Exception):
    """A weight has other bytes than before; its text is the weight's name."""


@contextmanager
def unchanged_weights(programs: Iterable[ExportedProgram]) -> Iterator[None]:
    """Raises `ChangedWeight` when the `with` block has changed a weight or constant of `programs`, by bytes spread over
    each: `weight.data.mul_(2)` raises no version counter."""
    weights = {
        tensor.untyped_storage().data_ptr(): (name, tensor)
        for program in programs
        for name, tensor in (*program.state_dict.items(), *program.constants.items())
        if type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
    }
    before = {address: _sample(tensor) for address, (_, tensor) in weights.items()}
    yield
    for address, (name, tensor) in weights.items():
        if not torch.equal(before[address], _sample(tensor)):
            raise ChangedWeight(name)


def _sample(tensor: Tensor) -> Tensor:
    """A copy of bytes of the tensor's storage. The step is odd, so that every byte of an element has its turn."""
    storage = storage_bytes(tensor)
    step = max(1, storage.numel() // _BYTES) | 1
    return storage[::step].clone()
