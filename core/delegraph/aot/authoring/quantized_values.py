"""A graph with quantize and dequantize calls -> the integers behind its values, what they stand for, and its weights.

    w = dequantize_per_channel(w_q, w_scales, w_zeros, 0, …)      weight(w)       the int8 of w_q, by channel
    x = dequantize_per_tensor(x_q, 0.1, 0, …)                     of(x)           0.1 * x_q; integers(x) is x_q
    y = linear(x, w, b)                                           wanted(y)       0.2 * (y_q - 3)
    y_q = quantize_per_tensor(y, 0.2, 3, …)                       of(y_q)         the same

Authors look through calls that only move elements (views, transposes …) themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring.constants import Constants
from delegraph.aot.authoring.node_values import operator_name
from delegraph.aot.authoring.quantization import Granularity, Quantization, QuantizeCall, quantize_call
from delegraph.aot.graph.schema_binding import named_arguments

__all__ = ["Quantizations", "QuantizedWeight", "StoredWeight"]


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """A weight of `shape` that `call` dequantizes: `node` holds its integers, in any shape, or `is_packed` codes of 4
    bits, two to a byte, the lower half first. The content of `node` need not be known."""

    node: Node
    shape: tuple[int, ...]
    call: QuantizeCall
    is_packed: bool = False


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """A weight of `shape` as it is `stored`: its integers, in any shape, or `packed`; and what they stand for."""

    stored: NDArray[Any]
    shape: tuple[int, ...]
    quantization: Quantization
    is_packed: bool = False

    @property
    def packed(self) -> NDArray[np.uint8] | None:
        """The codes of 4 bits as they are stored, two to a byte, the lower half first; None if each has its own."""
        return self.stored if self.is_packed else None

    @property
    def integers(self) -> NDArray[Any]:
        """The integers in the weight's shape, a byte or more each."""
        codes = np.stack([self.stored & 15, self.stored >> 4], -1) if self.is_packed else self.stored
        return codes.reshape(self.shape)

    def dequantize(self) -> NDArray[np.float32]:
        """The weight in float32."""
        return self.quantization.dequantize(self.integers)


@dataclass(frozen=True, slots=True)
class Quantizations:
    """The quantization of a program's values, as its `quantized_decomposed` calls say."""

    constants: Constants

    def of(self, value: object) -> Quantization | None:
        """The quantization of the integers behind `value` (the result of a dequantize call), or of `value`'s own (that
        of a quantize call), if its parameters are known ahead of time. They are not where they are chosen at run time;
        see `QuantizeCall.is_dynamic`."""
        call = quantize_call(value)
        return None if call is None else self.of_call(call)

    def of_call(self, call: QuantizeCall) -> Quantization | None:
        """As `of`."""
        if call.granularity is Granularity.TOKEN or call.qmin is None or call.qmax is None:
            return None
        scale = self.constants.array(call.scale)
        zero_point = np.zeros(()) if call.zero_point is None else self.constants.array(call.zero_point)
        if scale is None or zero_point is None or not _are_whole(zero_point):
            return None
        shape = () if call.granularity is Granularity.TENSOR else scale.shape
        if scale.size != prod(shape):
            return None
        zeros = np.broadcast_to(zero_point if zero_point.size > 1 else zero_point.reshape(()), shape)
        return Quantization(
            scale.astype(np.float64).reshape(shape),
            zeros.astype(np.int64),
            call.qmin,
            call.qmax,
            call.dtype,
            call.axis,
            call.group_size,
        )

    def integers(self, value: object) -> Node | None:
        """The node of the integers that `value`, a dequantize call, reads."""
        call = quantize_call(value)
        return None if call is None or call.quantizes else call.source

    def wanted(self, value: Node) -> Quantization | None:
        """The quantization that all users of `value` apply to it; None if one does not, or in another way."""
        choices = {self._by(user) for user in value.users}
        return choices.pop() if len(choices) == 1 else None

    def weight(self, value: object) -> QuantizedWeight | None:
        """The integers of a weight that is known ahead of time: dequantized per tensor, by channel or in groups, with 4
        bits packed two to a byte or not, as `quantize` stores them (docs/quantization.md)."""
        stored = self.stored(value)
        if stored is None:
            return None
        content, quantization = self.constants.array(stored.node), self.of_call(stored.call)
        if content is None or quantization is None or (stored.is_packed and content.dtype != np.uint8):
            return None
        if stored.shape != tuple(stored.call.source.meta["val"].shape):
            quantization = _in_groups(quantization, *stored.shape)
        return QuantizedWeight(content, stored.shape, quantization, stored.is_packed)

    def stored(self, value: object) -> StoredWeight | None:
        """The calls behind a weight as `weight` takes it, whether or not its content is known."""
        call = quantize_call(value)
        if call is not None and not call.quantizes:
            return self._of_call(call, tuple(call.source.meta["val"].shape))
        call = quantize_call(_source_of(value, _VIEWS))
        if call is None or call.quantizes or call.axis != 0 or not isinstance(value, Node):
            return None
        shape, stored = tuple(value.meta["val"].shape), tuple(call.source.meta["val"].shape)
        if len(shape) != 2 or len(stored) != 2 or shape[1] % stored[1] or stored[0] * stored[1] != prod(shape):
            return None
        return self._of_call(call, shape)

    def _of_call(self, call: QuantizeCall, shape: tuple[int, ...]) -> StoredWeight:
        packed = None if self.constants.array(call.source) is not None else self._packed(call.source)
        return StoredWeight(packed or call.source, shape, call, packed is not None)

    def _by(self, user: Node) -> Quantization | None:
        call = quantize_call(user)
        return self.of_call(call) if call is not None and call.quantizes else None

    def _packed(self, source: Node) -> Node | None:
        """The bytes behind view(stack(bytes & 15, bytes // 16)): codes of 4 bits, the lower half first."""
        joined = _source_of(source, _VIEWS)
        if joined is None or operator_name(joined) not in ("aten::cat", "aten::stack"):
            return None
        halves = [_source_of(half, _UNSQUEEZES) or half for half in named_arguments(joined)["tensors"]]
        if len(halves) != 2 or [operator_name(half) for half in halves] != list(_HALVES):
            return None
        low, high = (named_arguments(half) for half in halves)
        same = high["self"] is low["self"] and high["rounding_mode"] == "floor"
        if not same or low["other"] != 15 or self.constants.number(high["other"]) != 16:
            return None
        return low["self"] if isinstance(low["self"], Node) else None


def _in_groups(of: Quantization, rows: int, inner: int) -> Quantization:
    """A scale for each group of a row, one behind the other -> (rows, groups) of them, or (rows,)."""
    scale, zero_point = of.scale.reshape(rows, -1), of.zero_point.reshape(rows, -1)
    if scale.shape[1] == 1:
        return replace(of, scale=scale[:, 0], zero_point=zero_point[:, 0])
    return replace(of, scale=scale, zero_point=zero_point, axis=None, group_size=inner // scale.shape[1])


def _are_whole(zero_point: NDArray[Any]) -> bool:
    return bool((np.round(zero_point) == zero_point).all())


def _source_of(value: object, names: frozenset[str]) -> Node | None:
    """The first argument of the call `value`, if it is of one of the operators `names`."""
    source = value.args[0] if isinstance(value, Node) and operator_name(value) in names else None
    return source if isinstance(source, Node) else None


_VIEWS: Final = frozenset({"aten::view_copy", "aten::view", "aten::reshape", "aten::_unsafe_view"})
_UNSQUEEZES: Final = frozenset({"aten::unsqueeze_copy", "aten::unsqueeze"})
_HALVES: Final = ("aten::bitwise_and.Scalar", "aten::div.Tensor_mode")
