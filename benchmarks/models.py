"""The six models that tests and benchmarks share: real architectures, mostly from `transformers`, with random weights.

Fresh batch norm statistics make deep random nets vanish or explode, so such a model sees a few batches in training mode
first: its outputs are then of order one, and a tolerance means something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

Example = tuple[torch.nn.Module, tuple[torch.Tensor, ...]]


def settled(model: torch.nn.Module, *shape: int) -> torch.nn.Module:
    """`model` behind a few batches of `shape` in training mode."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.Conv2d):
                torch.nn.init.kaiming_normal_(module.weight, mode="fan_out")
        model.train()
        for _ in range(10):
            model(torch.randn(4, *shape))
    return model.eval()


def mobilenet_v2() -> Example:
    """MobileNetV2 1.0, 224 x 224, 1000 classes."""
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    model = MobileNetV2ForImageClassification(MobileNetV2Config(num_labels=1000))
    return settled(model, 3, 224, 224), (torch.randn(1, 3, 224, 224),)


def resnet18() -> Example:
    """ResNet-18, 224 x 224, 1000 classes."""
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=64,
        hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
        layer_type="basic",
        num_labels=1000,
    )
    return settled(ResNetForImageClassification(config), 3, 224, 224), (torch.randn(1, 3, 224, 224),)


def vit_tiny() -> Example:
    """ViT-Ti/16, 224 x 224, 1000 classes."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768, num_labels=1000
    )
    return ViTForImageClassification(config).eval(), (torch.randn(1, 3, 224, 224),)


class _Encoder(torch.nn.Module):
    """BERT with its arguments by name: torch's ONNX export passes None for the others by position otherwise."""

    def __init__(self, bert: torch.nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        result = self.bert(input_ids=tokens, attention_mask=mask)
        return result.last_hidden_state, result.pooler_output


def minilm() -> Example:
    """BERT in MiniLM-L6's shape (6 layers, 384 wide, 12 heads), 128 tokens, attention mask given."""
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    tokens = torch.randint(0, config.vocab_size, (1, 128))
    return _Encoder(BertModel(config)).eval(), (tokens, torch.ones(1, 128, dtype=torch.int64))


class _Tagger(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(64, 128, num_layers=2, batch_first=True)
        self.head = torch.nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.lstm(x)
        tags: torch.Tensor = self.head(hidden)
        return tags


def lstm() -> Example:
    """A tagger: two LSTM layers of 128 over 20 steps of 64 features."""
    return _Tagger().eval(), (torch.randn(1, 20, 64),)


def mlp() -> Example:
    """784-512-256-10."""
    layers = [torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(256, 10)).eval(), (torch.randn(1, 784),)


MODELS: Final[dict[str, Callable[[], Example]]] = {
    factory.__name__: factory for factory in (mobilenet_v2, resnet18, vit_tiny, minilm, lstm, mlp)
}


def make(name: str) -> Example:
    """The model and its example inputs, the same for every call."""
    torch.manual_seed(0)
    model, args = MODELS[name]()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model, args


def outputs(result: Any) -> list[torch.Tensor]:
    """The tensors of a model's result, in order."""
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
