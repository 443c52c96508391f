"""A quantize or dequantize call -> its source, the integers and their range, and the parameters, whatever the operator.

    y = quantize_per_tensor(x, 0.05, 3, -128, 127, int8)
    quantize_call(y)                 QuantizeCall(quantizes=True, source=x, scale=0.05, zero_point=3, -128, 127, int8)

Of torch's `quantized_decomposed` operators: per tensor, with parameters that are numbers or tensors; per channel; per
token; per group. They are known by their names: torch registers them when somebody imports what quantizes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring.node_values import operator_name
from delegraph.aot.graph.schema_binding import named_arguments

__all__ = ["Granularity", "Quantization", "QuantizeCall", "quantize_call"]


class Granularity(Enum):
    """The part of a tensor that has a scale of its own."""

    TENSOR = "tensor"
    CHANNEL = "channel"
    """Each index along `axis`."""
    TOKEN = "token"
    """Each vector along the last dim; scales and zero points have a last dim of 1."""
    GROUP = "group"
    """Each `group_size` elements along the last dim of a matrix; scales are (rows, groups)."""


@dataclass(frozen=True, slots=True)
class QuantizeCall:
    """A call that quantizes `source`, or dequantizes it. `scale` and `zero_point` are numbers, or the nodes that hold
    them (a zero point of None is 0); the integers are of `dtype` and within `qmin` and `qmax`, which is None where a
    node computes it."""

    node: Node
    quantizes: bool
    source: Node
    granularity: Granularity
    scale: float | Node
    zero_point: int | Node | None
    qmin: int | None
    qmax: int | None
    dtype: torch.dtype
    axis: int | None = None
    group_size: int | None = None

    @property
    def is_dynamic(self) -> bool:
        """Whether its parameters are computed at run time, from what is quantized."""
        return isinstance(self.scale, Node) and "choose_qparams" in operator_name(_producer(self.scale))

    @property
    def choice(self) -> Node | None:
        """The `choose_qparams` call that computes its parameters at run time, if one does."""
        return _producer(self.scale) if isinstance(self.scale, Node) and self.is_dynamic else None


def quantize_call(node: object) -> QuantizeCall | None:
    """`node` as a quantize or dequantize call; None for any other."""
    if not isinstance(node, Node):
        return None
    kind = operator_name(node).removeprefix("quantized_decomposed::").partition(".")[0]
    row = _KINDS.get(kind)
    if row is None or not operator_name(node).startswith("quantized_decomposed::"):
        return None
    quantizes, granularity = row
    said = named_arguments(node)
    axis, qmin, qmax = said.get("axis"), said["quant_min"], said["quant_max"]
    return QuantizeCall(
        node,
        quantizes,
        said["input"],
        granularity,
        said["scale"] if "scale" in said else said["scales"],
        said["zero_point"] if "zero_point" in said else said["zero_points"],
        qmin if isinstance(qmin, int) else None,
        qmax if isinstance(qmax, int) else None,
        said["dtype"],
        None if axis is None else axis % len(said["input"].meta["val"].shape),
        said.get("group_size"),
    )


_KINDS: Final = {
    f"{prefix}{kind}": (quantizes, granularity)
    for prefix, quantizes in (("quantize_per_", True), ("dequantize_per_", False))
    for kind, granularity in (
        ("tensor", Granularity.TENSOR),
        ("channel", Granularity.CHANNEL),
        ("token", Granularity.TOKEN),
        ("channel_group", Granularity.GROUP),
    )
}
"""Operator's name -> whether it quantizes, and what has a scale of its own."""


def _producer(node: Node) -> Node:
    """Behind the element of a tuple, the call that gives it."""
    return node.args[0] if node.op == "call_function" and isinstance(node.args[0], Node) and _picks(node) else node


def _picks(node: Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


@dataclass(frozen=True, slots=True, eq=False)
class Quantization:
    """The reals that integers stand for: real = (integer - zero_point) * scale, qmin <= integer <= qmax.

    `scale` (float64, what torch computes with in float32) and `zero_point` (int64) have no dims, of a whole tensor; one
    along `axis`, of channels; (rows, groups) of groups of `group_size` along the last dim. Equal ones are `==`.
    """

    scale: NDArray[np.float64]
    zero_point: NDArray[np.int64]
    qmin: int
    qmax: int
    dtype: torch.dtype
    axis: int | None = None
    group_size: int | None = None
    _key: tuple[object, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        content = (self.scale.shape, self.scale.tobytes(), self.zero_point.shape, self.zero_point.tobytes())
        parameters = (self.qmin, self.qmax, self.dtype, self.axis, self.group_size)
        object.__setattr__(self, "_key", (*content, *parameters))

    @classmethod
    def per_tensor(cls, scale: float, zero_point: int, qmin: int, qmax: int, dtype: torch.dtype) -> Quantization:
        """One scale and zero point for all."""
        return cls(np.array(scale, np.float64), np.array(zero_point, np.int64), qmin, qmax, dtype)

    @property
    def granularity(self) -> Granularity:
        """The part of a tensor that has a scale of its own."""
        if self.group_size is not None:
            return Granularity.GROUP
        return Granularity.TENSOR if self.axis is None else Granularity.CHANNEL

    @property
    def is_symmetric(self) -> bool:
        """Whether 0 stands for 0."""
        return not self.zero_point.any()

    def parameters(self, shape: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Scales and zero points so that they broadcast over integers of `shape`."""
        return self._over(self.scale, shape), self._over(self.zero_point, shape)

    def quantize(self, real: NDArray[Any]) -> NDArray[Any]:
        """Integers for `real`, in NumPy's dtype of `dtype`: rounded half to even, in float32 as torch does."""
        scale, zero_point = self.parameters(real.shape)
        steps = np.round(real.astype(np.float32) * (np.float32(1) / scale.astype(np.float32)))
        limited = np.clip(steps.astype(np.float64) + zero_point, self.qmin, self.qmax)
        return limited.astype(str(self.dtype).removeprefix("torch."))

    def dequantize(self, integers: NDArray[Any]) -> NDArray[np.float32]:
        """The reals that `integers` stand for, in float32."""
        scale, zero_point = self.parameters(integers.shape)
        difference = (integers.astype(np.int64) - zero_point).astype(np.float32)
        return np.asarray(difference * scale.astype(np.float32), np.float32)

    def _over(self, parameters: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        if self.group_size is not None:
            return np.repeat(parameters, self.group_size, 1)[:, : shape[-1]].reshape(shape)
        if self.axis is None:
            return parameters
        return parameters.reshape([-1 if dim == self.axis else 1 for dim in range(len(shape))])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantization) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)
