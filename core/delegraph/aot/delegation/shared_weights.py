"""All partitions of a backend -> the weights that several of them have, each under a key, to be stored once.

    class MyBackend(BackendDetails):
        @classmethod
        def preprocess_multimethod(cls, edge_programs, compile_specs):
            shared = SharedWeights("MyBackend", edge_programs)
            return {
                method: [
                    PreprocessResult(compiled(program, shared.keys(program)), data_store_output=shared.store(program))
                    for program in programs
                ]
                for method, programs in edge_programs.items()
            }

The compiled blob refers to a shared weight by its key; `init` finds its bytes in `context.named_data[key]`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch.export import ExportedProgram

from delegraph.aot.delegation.lowered_module import has_fallback
from delegraph.aot.delegation.named_data_store import NamedDataStore
from delegraph.aot.graph.external_constants import external_tag
from delegraph.aot.graph.signature import ResolvedSignature
from delegraph.aot.graph.stored_tensor import tensor_bytes
from delegraph.interfaces.lowering import NamedDataStoreOutput

__all__ = ["SharedWeights"]


class SharedWeights:
    """Keys and bytes of the weights that more than one partition has, or a partition and its fall-back.

    A weight is known by its dtype, shape and content, so copies of one are shared as well. `owner`, the backend's id,
    begins the keys, `alignment` is that of the bytes in the file, and weights of less than `minimum_nbytes` stay with
    their partitions.
    """

    def __init__(
        self,
        owner: str,
        edge_programs: Mapping[str, Sequence[ExportedProgram]],
        *,
        alignment: int = 16,
        minimum_nbytes: int = 1,
    ) -> None:
        self._owner = owner
        self._alignment = alignment
        self._minimum_nbytes = minimum_nbytes
        self._known: dict[tuple[object, ...], str] = {}
        everything = [program for programs in edge_programs.values() for program in programs]
        self._keys = {id(program): self._keys_of(program) for program in everything}
        owners = Counter(key for keys in self._keys.values() for key in set(keys.values()))
        for program in everything:
            if has_fallback(program):
                owners.update(set(self._keys[id(program)].values()))
        self._shared = {key for key, count in owners.items() if count > 1}

    def keys(self, program: ExportedProgram) -> dict[str, str]:
        """Placeholder's name -> key, for the weights of the partition `program` that it shares with another one."""
        return {name: key for name, key in self._keys[id(program)].items() if key in self._shared}

    def store(self, program: ExportedProgram) -> NamedDataStoreOutput:
        """The `PreprocessResult.data_store_output` for the partition `program`: its shared weights, C-contiguous."""
        store, weights = NamedDataStore(), _weights(program)
        for name, key in self.keys(program).items():
            store.add_named_data(key, tensor_bytes(weights[name], range(weights[name].dim())), self._alignment)
        return store.get_named_data_store_output()

    def _keys_of(self, program: ExportedProgram) -> dict[str, str]:
        return {
            name: self._key(tensor)
            for name, tensor in _weights(program).items()
            if tensor.nbytes >= self._minimum_nbytes
        }

    def _key(self, tensor: torch.Tensor) -> str:
        """The key of `tensor`, by a hash of its content; a tensor that several methods hold is hashed once."""
        place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if place not in self._known:
            digest = hashlib.sha256(repr((tensor.dtype, tuple(tensor.shape))).encode())
            digest.update(tensor_bytes(tensor, range(tensor.dim())))
            self._known[place] = f"{self._owner}/{digest.hexdigest()}"
        return self._known[place]


def _weights(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The tensors that no run changes and no `.ptd` is to hold, by placeholder; a state is its partition's own."""
    constants = ResolvedSignature.of(program).constants
    return {node.name: stored.tensor for node, stored in constants.items() if external_tag(node) is None}
