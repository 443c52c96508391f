"""A program -> what is known of its values ahead of time, as NumPy arrays.

constants = Constants.of(edge_program)
constants.array(weight)    a parameter, a buffer that no run changes, a lifted constant
constants.array(cast)      the same behind casts and copies; `full` of a number
constants.number(two)      2.0: the tensor without dims that stands for the user's `x * 2.0`
constants.computed(mask)   whatever is computed from constants alone, as a tensor
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot.authoring.dtypes import as_array, numpy_dtype
from delegraph.aot.authoring.node_values import operator_name
from delegraph.aot.edge.tensor_operands import lifted_number
from delegraph.aot.graph.external_constants import external_tag
from delegraph.aot.graph.known_values import LARGEST, known_value
from delegraph.aot.graph.schema_binding import named_arguments
from delegraph.aot.graph.signature import ResolvedSignature

__all__ = ["Constants"]


@dataclass(frozen=True, slots=True)
class Constants:
    """The content of nodes that is the same in each run. `tensors` are the program's own, by placeholder; arrays are
    made when they are asked for, over the memory of contiguous tensors: do not write them."""

    tensors: Mapping[Node, torch.Tensor] = field(default_factory=dict)
    _arrays: dict[Node, NDArray[Any] | None] = field(default_factory=dict)
    _made_anew: dict[Node, Callable[[], NDArray[Any]]] = field(default_factory=dict)

    @classmethod
    def of(cls, program: ExportedProgram | ResolvedSignature) -> Constants:
        """The constants of a program, or of a partition. Weights that a `.ptd` is to hold (`external_tag`) are unknown:
        whoever runs the program may bring other ones."""
        signature = program if isinstance(program, ResolvedSignature) else ResolvedSignature.of(program)
        return cls({node: stored.tensor for node, stored in signature.constants.items() if external_tag(node) is None})

    def array(self, argument: object) -> NDArray[Any] | None:
        """The content of a node, if it is known; numbers are arrays without dims."""
        if isinstance(argument, bool | int | float | complex):
            return np.array(argument)
        if not isinstance(argument, Node):
            return None
        if argument in self._made_anew:
            return self._made_anew[argument]()
        if argument not in self._arrays:
            self._arrays[argument] = self._made(argument)
        return self._arrays[argument]

    def hold(self, node: Node, array: NDArray[Any] | Callable[[], NDArray[Any]] | None) -> None:
        """Let `node`, a body's placeholder, have this content (None: none that is known). A function makes it each time
        it is asked for: a large one need not stay in memory."""
        if callable(array):
            self._made_anew[node] = array
        else:
            self._made_anew.pop(node, None)
            self._arrays[node] = array

    def number(self, argument: object) -> complex | None:
        """`argument` if it is a number; the content of a node of one element, if it is known. For a number that the
        user wrote beside a tensor of floats: that number, which the tensor's dtype may round, or not hold."""
        if isinstance(argument, bool | int | float | complex):
            return argument
        if isinstance(argument, Node) and argument.meta["val"].dtype.is_floating_point:
            written = lifted_number(argument)
            if written is not None:
                return written
        content = self.array(argument)
        return None if content is None or content.size != 1 else content.reshape(-1)[0].item()

    def computed(self, node: Node, largest: float = LARGEST) -> torch.Tensor | None:
        """The content of a node that is computed from constants alone, by whatever operators; None also where more than
        `largest` elements (4 million) would have to be computed on the way, which takes long."""
        return known_value(node, self._constant, largest)

    def _constant(self, placeholder: Node) -> torch.Tensor | None:
        if placeholder in self.tensors:
            return self.tensors[placeholder].detach()
        array = self.array(placeholder) if placeholder in self._made_anew else self._arrays.get(placeholder)
        if array is None or array.dtype.isbuiltin != 1:  # torch takes none of ml_dtypes' from NumPy
            return None
        return torch.from_numpy(array.copy())

    def _made(self, node: Node) -> NDArray[Any] | None:
        if node in self.tensors:
            return as_array(self.tensors[node])
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return None
        number = lifted_number(node)
        if number is not None:
            return np.full((), number).astype(numpy_dtype(value.dtype))
        if not all(isinstance(size, int) for size in value.shape):
            return None
        name, arguments = operator_name(node), named_arguments(node)
        if name in _FILLS:
            filled = self.number(arguments[_FILLS[name]])
            return None if filled is None else np.full(tuple(value.shape), filled, numpy_dtype(value.dtype))
        source = self.array(arguments["self"]) if name in _COPIES | _VIEWS | _PERMUTES else None
        if source is None:
            return None
        if name in _PERMUTES:
            return source.transpose(arguments["dims"])
        return (
            source.reshape(tuple(value.shape))
            if name in _VIEWS
            else source.astype(numpy_dtype(value.dtype), copy=False)
        )


_FILLS: Final = {"aten::full": "fill_value", "aten::scalar_tensor": "s"}
"""Operators that fill a tensor with one number -> the argument that is the number."""

_COPIES: Final = frozenset(
    {
        "dim_order_ops::_to_dim_order_copy",
        "dim_order_ops::_clone_dim_order",
        "aten::_to_copy",
        "aten::to.dtype",
        "aten::clone",
    }
)
"""Operators that give their input in another dtype or layout."""

_VIEWS: Final = frozenset(
    {
        "aten::view_copy",
        "aten::view",
        "aten::reshape",
        "aten::_unsafe_view",
        "aten::unsqueeze_copy",
        "aten::squeeze_copy.dims",
    }
)
_PERMUTES: Final = frozenset({"aten::permute_copy", "aten::permute"})
