"""For every page: a stand-in for torchvision where that is not installed, of models with random weights."""

import importlib.util
import sys
from collections import OrderedDict
from types import ModuleType, SimpleNamespace

import torch


def _image_classifier(weights: object = None) -> torch.nn.Module:
    torch.manual_seed(0)
    layers = {
        "features": torch.nn.Conv2d(3, 8, 3, stride=4),
        "norm": torch.nn.BatchNorm2d(8),
        "activation": torch.nn.ReLU6(),
        "pool": torch.nn.AdaptiveAvgPool2d(1),
        "flatten": torch.nn.Flatten(),
        "classifier": torch.nn.Linear(8, 10),
    }
    return torch.nn.Sequential(OrderedDict(layers))


def _module(name: str, **names: object) -> ModuleType:
    made = ModuleType(f"torchvision{name}")
    made.__dict__.update(names)
    sys.modules[made.__name__] = made
    return made


if importlib.util.find_spec("torchvision") is None:
    _mobilenet = _module(
        ".models.mobilenetv2",
        mobilenet_v2=_image_classifier,
        MobileNet_V2_Weights=SimpleNamespace(DEFAULT="random weights"),
    )
    _transformer = _module(".models.vision_transformer", vit_b_16=_image_classifier)
    _models = _module(".models", mobilenetv2=_mobilenet, vision_transformer=_transformer)
    _module("", models=_models)
