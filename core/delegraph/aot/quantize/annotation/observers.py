"""Values that flow past -> the range that loses least when it is quantized; observers as torchao calls them.

    values -> a histogram of fixed bins about zero, twice as wide when a value lies outside -> many ranges at once
           -> the error of each, bins x ranges -> the range with the smallest

torchao's `HistogramObserver` searches one range after the other, 0.6 s for a tensor; this takes milliseconds. None of
them looks at what is not finite, such as the -inf that a pool pads with: it becomes the lowest or highest integer.
Imported when somebody quantizes, for it imports torchao.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import observer as torchao
from torchao.quantization.pt2e.observer import UniformQuantizationObserverBase

from delegraph.aot.graph.bodies import graph_modules
from delegraph.aot.quantize.annotations import is_weight
from delegraph.aot.quantize.weights.computed_weights import constant_value

__all__ = [
    "OBSERVERS",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "PercentileObserver",
    "TrainedObserver",
    "TrainedPerChannelObserver",
    "leave_unseen",
    "ranges_found",
]

BINS: Final = 8192
"""Bins of a histogram. At least a quarter of them is in use (values of one sign, just above half of the limit), which
is 8 for each code of 8 bits."""

CANDIDATES: Final = 33
"""Ranges that are tried in one step of the search; odd, so that the best one so far is among them."""

LARGEST: Final = torch.finfo(torch.float32).max / 2
"""Larger values count as this: a histogram whose width doubles, and ranges from below to above zero, stay finite."""

_SYMMETRIC: Final = (torch.per_tensor_symmetric, torch.per_channel_symmetric)


class _ScaledAsOne:
    """A mixin of torchao's observers: values that are all zero get the scale of values up to 1. With the least scale,
    calls that read or give them would be rescaled by factors that no fixed-point multiplier holds."""

    def _calculate_qparams(self, lower: torch.Tensor, upper: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        upper = torch.where((lower == 0) & (upper == 0), torch.ones_like(upper), upper)
        return super()._calculate_qparams(lower, upper)  # type: ignore[misc, no-any-return]  # behind this class


class HistogramObserver(
    _ScaledAsOne,
    UniformQuantizationObserverBase,  # type: ignore[misc]  # torchao has no types
):
    """Chooses the range with the least mean square error, as measured on a histogram of all values seen.

    The arguments are those of torchao's observers. Per tensor only.
    """

    def __init__(
        self, dtype: torch.dtype = torch.int8, qscheme: torch.qscheme = torch.per_tensor_affine, **kwargs: Any
    ) -> None:
        super().__init__(dtype=dtype, qscheme=qscheme, **kwargs)
        if qscheme not in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            raise NotImplementedError(f"{type(self).__name__} is for one range of a whole tensor, not for {qscheme}")
        self.min_val = torch.nn.Buffer(torch.tensor(math.inf))
        self.max_val = torch.nn.Buffer(torch.tensor(-math.inf))
        self.limit = torch.nn.Buffer(torch.tensor(0.0))  # the histogram's bins go from -limit to limit
        self.histogram = torch.nn.Buffer(torch.zeros(BINS, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Count the finite values of `x`, which is returned."""
        values = _finite(x.detach().float())
        if not values.numel():
            return x
        lower, upper = torch.aminmax(values)
        if max(-lower, upper) > LARGEST:
            values, lower, upper = (tensor.clamp(-LARGEST, LARGEST) for tensor in (values, lower, upper))
        self.min_val.copy_(torch.minimum(self.min_val, lower))
        self.max_val.copy_(torch.maximum(self.max_val, upper))
        self._widen(float(torch.maximum(-lower, upper)))
        limit = float(self.limit)
        if limit:
            self.histogram.add_(torch.histc(values, BINS, -limit, limit))
        return x

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale and zero point, each of shape [1]."""
        lower, upper = self.best_range()
        return self._calculate_qparams(lower, upper)

    def best_range(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The smallest and the largest value that are not clamped."""
        lower, upper = self.min_val.clamp(max=0), self.max_val.clamp(min=0)
        if not self.histogram.any():
            return self.min_val, self.max_val
        centers, counts = self._used_bins()
        both = torch.linspace(0.05, 1, CANDIDATES)
        whole = torch.ones(CANDIDATES)
        for below, above in ((both, both), (both, whole), (whole, both)):  # shrink it, then each side alone
            lowers, uppers = lower * below, upper * above
            best = int(self._errors(lowers, uppers, centers, counts).argmin())
            lower, upper = lowers[best], uppers[best]
        near = torch.linspace(0.97, 1.03, CANDIDATES)  # the steps above are 3 % of the range: refine the best
        best = int(self._errors(lower * near, upper * near, centers, counts).argmin())
        return lower * near[best], upper * near[best]

    def _widen(self, largest: float) -> None:
        """Double the width until it holds `largest`: pairs of bins become one, and those that are new are empty."""
        if not largest or largest <= float(self.limit):
            return
        if not self.limit:
            self.limit.fill_(largest)
            self.histogram.zero_()
            return
        for _ in range(math.ceil(math.log2(largest / float(self.limit)))):
            inner = self.histogram.view(-1, 2).sum(1)  # twice the width: half as many bins, in the middle
            self.histogram.zero_()[BINS // 4 : -BINS // 4] = inner
            self.limit.mul_(2)

    def _used_bins(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The centers of the bins that hold values, and how many they hold.

        The smallest and the largest value stand for their bins: what an activation clamps lies there, all of it.
        """
        width = 2 * float(self.limit) / BINS
        used = self.histogram.nonzero()[:, 0]
        centers = (used.float() + 0.5) * width - float(self.limit)
        centers[0], centers[-1] = self.min_val, self.max_val
        return centers, self.histogram[used].float()

    def _errors(
        self, lowers: torch.Tensor, uppers: torch.Tensor, centers: torch.Tensor, counts: torch.Tensor
    ) -> torch.Tensor:
        """The sum of squares of what quantizing the histogram changes, for each range."""
        steps = self.quant_max - self.quant_min
        if self.qscheme in _SYMMETRIC:
            scale = torch.maximum(-lowers, uppers) / (steps / 2)
            zero = torch.zeros_like(scale)
        else:
            scale = (uppers - lowers) / steps
            zero = self.quant_min - torch.round(lowers / scale.clamp(min=float(self.eps)))
        scale = scale.clamp(min=float(self.eps))[:, None]
        codes = centers / scale
        codes.round_().clamp_(self.quant_min - zero[:, None], self.quant_max - zero[:, None])
        return torch.mv(codes.mul_(scale).sub_(centers).square_(), counts)


class PercentileObserver(HistogramObserver):
    """Chooses the range that holds `percentile` per cent of all values seen, as many left out on either side."""

    def __init__(self, percentile: float = 99.99, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.percentile = percentile

    def best_range(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The smallest and the largest value that are not clamped."""
        if not self.histogram.any():
            return self.min_val, self.max_val
        centers, counts = self._used_bins()
        share = torch.cumsum(counts.double(), 0) / counts.sum()
        outside = (100 - self.percentile) / 200
        low, high = torch.searchsorted(share, torch.tensor([outside, 1 - outside], dtype=share.dtype))
        half = float(self.limit) / BINS
        last = len(centers) - 1
        return (
            torch.maximum(centers[low] - half, self.min_val),
            torch.minimum(centers[min(int(high), last)] + half, self.max_val),
        )


class _OfFiniteValues:
    """A mixin of torchao's observers, which would take an infinite value for a range's end."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take note of the finite values of `x`, which is returned."""
        super().forward(_finite(x.detach()))  # type: ignore[misc]  # torchao's, behind this class
        return x


class MinMaxObserver(_OfFiniteValues, _ScaledAsOne, torchao.MinMaxObserver):  # type: ignore[misc]  # torchao has no types
    """torchao's, of the finite values."""


class MovingAverageMinMaxObserver(
    _OfFiniteValues,
    _ScaledAsOne,
    torchao.MovingAverageMinMaxObserver,  # type: ignore[misc]  # torchao has no types
):
    """torchao's, of the finite values."""


class _StillInEval:
    """A mixin of observers of a model that trains: in eval mode a range stays as it is, as statistics do."""

    training: bool
    min_val: torch.Tensor
    max_val: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take note of `x`, which is returned."""
        if self.training or not (self.min_val.numel() and (self.min_val <= self.max_val).all()):
            super().forward(x)  # type: ignore[misc]  # an observer's, behind this class
        return x


class TrainedObserver(_StillInEval, MovingAverageMinMaxObserver):
    """The observer of values that are rounded in training."""


class TrainedPerChannelObserver(
    _StillInEval,
    torchao.MovingAveragePerChannelMinMaxObserver,  # type: ignore[misc]  # torchao has no types
):
    """The observer of weights that are rounded in training."""


OBSERVERS: Final[Mapping[str, type[UniformQuantizationObserverBase]]] = {
    "histogram": HistogramObserver,
    "minmax": MinMaxObserver,
    "moving_average": MovingAverageMinMaxObserver,
    "percentile": PercentileObserver,
}
"""Observers by the name that a recipe gives them."""


def leave_unseen(prepared: GraphModule, entered: Container[str]) -> None:
    """Take observers that have no range out of a calibrated module, in place; what they observe stays float.

    They are those of `OBSERVERS` that have seen no finite value, for it is empty or infinite in every batch; and all of
    values in bodies that are not among the `entered` ones, by path. Weights in these are observed now.
    """
    for path, part in graph_modules(prepared):
        if path and path not in entered:
            _observe_weights(part)
        for node in list(part.graph.find_nodes(op="call_module")):
            if _range_of(part.get_submodule(str(node.target))) is False:
                _take_out(node)
        part.recompile()


def ranges_found(prepared: torch.nn.Module) -> bool:
    """Whether any observer has a range, or there is none that could."""
    ranged = [_range_of(part) for part in prepared.modules()]
    return True in ranged or False not in ranged


def _range_of(module: torch.nn.Module) -> bool | None:
    """Whether an observer of `OBSERVERS`, or the fake quantizer around one, has a range; None of other modules."""
    observer = getattr(module, "activation_post_process", module)
    if not isinstance(observer, tuple(OBSERVERS.values())):
        return None
    lower, upper = observer.min_val, observer.max_val  # type: ignore[attr-defined]  # of torchao's observers
    return bool(lower <= upper)


def _observe_weights(part: GraphModule) -> None:
    """Let the observers of weights see them, and take out those of values that are not found as the model runs."""
    for node in list(part.graph.find_nodes(op="call_module")):
        observer = part.get_submodule(str(node.target))
        if is_weight(node.args[0]):
            observer(constant_value(part, node.args[0]))
        elif not getattr(observer, "is_dynamic", False):
            _take_out(node)


def _take_out(observed: Node) -> None:
    observed.replace_all_uses_with(observed.args[0])  # type: ignore[arg-type]  # a value
    observed.graph.erase_node(observed)


def _finite(x: torch.Tensor) -> torch.Tensor:
    """The values of `x` that are finite; `x` itself where all are."""
    if not x.numel() or torch.isfinite(torch.stack(torch.aminmax(x))).all():
        return x
    return x[torch.isfinite(x)]
