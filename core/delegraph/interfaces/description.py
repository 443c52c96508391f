"""The content of a blob, as its backend tells it (`BackendInterface.describe`): nodes, weights, device. No torch.

A step of a delegate has one id wherever it is spoken of: in `PreprocessResult.debug_handle_map`, from which
lowering keeps what it comes from, in a tracer's events as `delegate_debug_id`, and here. So tools find the module and
the line of a node, and its time; the backend stores neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

from delegraph.lazy_dataclass import dataclass, field
from delegraph.program.schema import Buffer

__all__ = ["DelegateDescription", "DelegateNode", "DelegateWeight", "DescribedTensor"]

Shape: TypeAlias = "tuple[int | str, ...]"
"""A dynamic dim is the text of its symbol."""


@dataclass(frozen=True, slots=True)
class DescribedTensor:
    """A value of a delegate's graph, by the engine's name. `dtype` is NumPy's name of it, "" where the blob does not
    tell; neither does it tell the `shape` if that is None."""

    name: str
    dtype: str = ""
    shape: Shape | None = None


@dataclass(frozen=True, slots=True)
class DelegateNode:
    """A step of a delegate: the engine's name for it, unique among the nodes, and the engine's operator. `inputs` are
    names of inputs, weights and other nodes' outputs; a node that names no outputs gives one of its own name.

    `debug_id` is its id in `PreprocessResult.debug_handle_map`; None where it has none there.
    """

    name: str
    operator: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[DescribedTensor, ...] = ()
    debug_id: int | str | None = None


@dataclass(frozen=True, slots=True)
class DelegateWeight:
    """A constant of a delegate, as it is stored: by the engine's name, which nodes read, in `nbytes` of the blob or,
    with a `key`, of the program's named data, where other delegates may read it as well.

    `dtype` and `shape` are those of the stored tensor, `"uint4"`, `(64, 128)`; `"blob"` and the number of bytes where
    it is in a form of the device's own. `names` are the qualified names of the user's weights that it is made of, if
    the blob tells: where it does not, tools take those that the nodes which read it come from. `data` are its bytes, a
    view where they lie; without them nobody can say what is stored twice, or what another file has changed.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    key: str | None = None
    names: tuple[str, ...] = ()
    data: Buffer | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DelegateDescription:
    """The content of a blob. `nodes` are in the order in which they run.

    `device` is what it was compiled for, "" for whichever there is; `options` are what it was compiled with, as text;
    `parts` are the bytes of the blob besides its weights, by what they are: `{"graph": 3190}`. What is left of the blob
    is headers and padding.
    """

    nodes: tuple[DelegateNode, ...]
    weights: tuple[DelegateWeight, ...] = ()
    inputs: tuple[DescribedTensor, ...] = ()
    outputs: tuple[DescribedTensor, ...] = ()
    device: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, int] = field(default_factory=dict)

    def faults(self, blob_nbytes: int, named_nbytes: Mapping[str, int]) -> list[str]:
        """Reasons why it cannot be of a blob of so many bytes, in a program with named data of these sizes."""
        nodes = Counter(node.name for node in self.nodes)
        weights = Counter(weight.name for weight in self.weights)
        faults = [f"it has several nodes {name!r}" for name, times in nodes.items() if times > 1]
        faults += [f"it has several weights {name!r}" for name, times in weights.items() if times > 1]
        own = sum(weight.nbytes for weight in self.weights if weight.key is None) + sum(self.parts.values())
        if own > blob_nbytes:
            faults.append(f"its weights and parts have {own} bytes, and the blob {blob_nbytes}")
        for weight in self.weights:
            if weight.data is not None and memoryview(weight.data).nbytes != weight.nbytes:
                faults.append(f"its weight {weight.name!r} has {weight.nbytes} bytes, and other data")
            if weight.key is not None and weight.nbytes > named_nbytes.get(weight.key, -1):
                there = f"has {named_nbytes[weight.key]}" if weight.key in named_nbytes else "is not there"
                faults.append(
                    f"its weight {weight.name!r} has {weight.nbytes} bytes, the named data {weight.key!r} {there}"
                )
        return faults
