"""Architectures of `timm`, the smallest of each family, on small images."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import torch
from tests.zoo.architecture import Architecture, Example
from tests.zoo.torchvision_models import load_without_operators

__all__ = ["ARCHITECTURES"]


def _make(model: str, size: int, options: dict[str, Any]) -> Example:
    load_without_operators()
    import timm

    return timm.create_model(model, num_classes=10, **options).eval(), {"x": torch.randn(2, 3, size, size)}


def _row(model: str, size: int = 64, options: dict[str, Any] | None = None, **held_to: Any) -> Architecture:
    return Architecture(f"timm: {model}", partial(_make, model, size, options or {}), **held_to)


_VIT = {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 4}

ARCHITECTURES: Final = [
    _row("mobilenetv2_050"),
    _row("mobilenetv3_small_050"),
    _row("mobilenetv4_conv_small"),
    _row("efficientnet_b0"),
    _row("efficientnet_lite0"),
    _row("mnasnet_small"),
    _row("resnet10t"),
    _row("resnetv2_50", 64, {"layers": (1, 1, 1, 1), "channels": (16, 32, 48, 64), "stem_chs": 8}),
    _row("nf_regnet_b0", delegates=2, leftovers=108),
    _row("regnetx_002"),
    _row("regnety_002"),
    _row("ghostnet_050"),
    _row("convnext_atto"),
    _row("convnextv2_atto"),
    _row("vit_tiny_patch16_224", 32, _VIT),
    _row("deit_tiny_patch16_224", 32, _VIT),
    _row(
        "swin_tiny_patch4_window7_224",
        32,
        {"img_size": 32, "embed_dim": 16, "depths": (2, 2), "num_heads": (2, 4), "window_size": 4},
    ),
    _row("mixer_s32_224", 64, {"img_size": 64}),
    _row("gmlp_ti16_224", 32, {"img_size": 32}),
    _row("mobilevit_xxs"),
    _row("edgenext_xx_small"),
    _row("levit_128s", 224),
    _row("poolformer_s12"),
    _row("repvgg_a0"),
    _row("fastvit_t8"),
    _row("hardcorenas_a"),
    _row("tinynet_e"),
    _row("lcnet_050"),
]
