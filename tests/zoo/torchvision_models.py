"""Architectures of `torchvision`, on small images."""

from __future__ import annotations

from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
from tests.zoo.architecture import Architecture, Example

__all__ = ["ARCHITECTURES", "load_without_operators"]


@cache
def load_without_operators() -> None:
    """Let `import torchvision` pass where its compiled operators don't load.

    The wheel on PyPI is built for a torch with CUDA; beside a torch without, its library does not load, and the import
    fails at the first operator that it expects. No classification model calls one.
    """
    found = find_spec("torchvision")
    if found is None or found.origin is None:
        return
    try:
        torch.ops.load_library(Path(found.origin).with_name("_C.so"))
    except OSError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _make(model: str, size: int, options: dict[str, Any]) -> Example:
    load_without_operators()
    import torchvision

    made = torchvision.models.get_model(model, num_classes=10, **options).eval()
    return made, {"x": torch.randn(2, 3, size, size)}


def _row(model: str, size: int = 64, options: dict[str, Any] | None = None, **held_to: Any) -> Architecture:
    return Architecture(f"torchvision: {model}", partial(_make, model, size, options or {}), **held_to)


ARCHITECTURES: Final = [
    _row("resnet18"),
    _row("resnext50_32x4d"),
    _row("mobilenet_v2"),
    _row("mobilenet_v3_small"),
    _row("shufflenet_v2_x0_5"),
    _row("squeezenet1_1"),
    _row("densenet121"),
    _row("googlenet", 64, {"init_weights": False}),
    _row("inception_v3", 96, {"init_weights": False}),
    _row("vgg11", 32, delegates=2, leftovers=1),
    _row("alexnet", delegates=2, leftovers=1),
    _row("efficientnet_b0"),
    _row("regnet_y_400mf"),
    _row("swin_t", delegates=10, leftovers=18),
    _row("vit_b_16", 32, {"image_size": 32}),
]
