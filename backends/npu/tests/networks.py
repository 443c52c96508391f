"""The layers of three networks, in order: what is compared with Vela, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["NETWORKS", "Layer"]


@dataclass(frozen=True)
class Layer:
    """Paddings are "same". A "linear" layer has an input of one pixel, an "average" pools all of it."""

    kind: Literal["conv", "depthwise", "linear", "add", "average"]
    height: int
    width: int
    in_channels: int
    channels: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of the output."""
        if self.kind == "average":
            return 1, 1
        return -(-self.height // self.stride), -(-self.width // self.stride)

    @property
    def macs(self) -> int:
        """Multiply-adds."""
        height, width = self.output
        each = self.kernel[0] * self.kernel[1] * (1 if self.kind == "depthwise" else self.in_channels)
        return height * width * self.channels * each if self.kind in ("conv", "depthwise", "linear") else 0


def _square(
    kind: Literal["conv", "depthwise", "add"], size: int, ins: int, outs: int, kernel: int = 1, stride: int = 1
) -> Layer:
    return Layer(kind, size, size, ins, outs, (kernel, kernel), stride)


def _mobilenet_v2() -> Iterator[Layer]:
    """Sandler et al., CVPR 2018, table 2: expansion, channels, blocks, stride."""
    yield _square("conv", 224, 3, 32, 3, 2)
    size, channels = 112, 32
    for expansion, outs, blocks, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for block in range(blocks):
            stride, inner = (first if block == 0 else 1), expansion * channels
            if expansion > 1:
                yield _square("conv", size, channels, inner)
            yield _square("depthwise", size, inner, inner, 3, stride)
            size //= stride
            yield _square("conv", size, inner, outs)
            if block:
                yield _square("add", size, outs, outs)
            channels = outs
    yield _square("conv", 7, 320, 1280)
    yield Layer("average", 7, 7, 1280, 1280, (7, 7))
    yield Layer("linear", 1, 1, 1280, 1000)


def _resnet18() -> Iterator[Layer]:
    """He et al., CVPR 2016, table 1; without the max pool."""
    yield _square("conv", 224, 3, 64, 7, 2)
    size, channels = 56, 64
    for outs in (64, 128, 256, 512):
        for _ in range(2):
            stride = 2 if outs > channels else 1
            yield _square("conv", size, channels, outs, 3, stride)
            if stride == 2:
                yield _square("conv", size, channels, outs, 1, 2)
            size, channels = size // stride, outs
            yield _square("conv", size, outs, outs, 3)
            yield _square("add", size, outs, outs)
    yield Layer("average", 7, 7, 512, 512, (7, 7))
    yield Layer("linear", 1, 1, 512, 1000)


def _keyword_spotting() -> Iterator[Layer]:
    """DS-CNN small: Zhang et al., "Hello Edge", 2017, as in MLPerf Tiny."""
    yield Layer("conv", 49, 10, 1, 64, (10, 4), 2)
    for _ in range(4):
        yield Layer("depthwise", 25, 5, 64, 64, (3, 3))
        yield Layer("conv", 25, 5, 64, 64)
    yield Layer("average", 25, 5, 64, 64, (25, 5))
    yield Layer("linear", 1, 1, 64, 12)


NETWORKS = {
    "MobileNetV2": tuple(_mobilenet_v2()),
    "ResNet-18": tuple(_resnet18()),
    "DS-CNN": tuple(_keyword_spotting()),
}
