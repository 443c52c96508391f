"""A model's name and a batch size -> the model, its example inputs, and batches to calibrate with: the same everywhere.

The six of `benchmarks/models.py`, and four more shapes that people run: random weights, of order one inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch

from benchmarks import models
from benchmarks.models import Example, outputs

__all__ = ["CALIBRATION_BATCHES", "MODELS", "Narrow", "calibration", "make"]

CALIBRATION_BATCHES: Final = 4


class _FirstResult(torch.nn.Module):
    """A model of transformers that takes one tensor, and gives the first of its results."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return outputs(self.model(x, return_dict=False))[0]


class _Logits(_FirstResult):
    """Of a decoder. The mask says that no sequence is packed: to find out takes operators that no exporter knows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return outputs(self.model(x, attention_mask=torch.ones_like(x), use_cache=False, return_dict=False))[0]


def swin() -> Example:
    """Swin Transformer, the tiny one's depths and half its width: 224 x 224, windows of 7, 1000 classes."""
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(embed_dim=48, depths=[2, 2, 6, 2], num_heads=[3, 6, 12, 24], num_labels=1000)
    return _FirstResult(SwinForImageClassification(config)).eval(), (torch.randn(1, 3, 224, 224),)


def whisper_encoder() -> Example:
    """The encoder of Whisper tiny: 80 mel bands of 30 s, 1500 positions, 4 layers of 384."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
    return _FirstResult(WhisperEncoder(config)).eval(), (torch.randn(1, 80, 3000),)


def llama() -> Example:
    """A decoder-only model in Llama's shape, 5 million weights: the logits of 64 tokens at once, without a cache."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=4096, hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=256, bos_token_id=0, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return _Logits(LlamaForCausalLM(config)).eval(), (torch.randint(0, config.vocab_size, (1, 64)),)


class _Twice(torch.nn.Sequential):
    """Two convolutions, each with batch norm and ReLU."""

    def __init__(self, taken: int, given: int) -> None:
        layers: list[torch.nn.Module] = []
        for channels in (taken, given):
            conv = torch.nn.Conv2d(channels, given, 3, padding=1, bias=False)
            layers += [conv, torch.nn.BatchNorm2d(given), torch.nn.ReLU()]
        super().__init__(*layers)


class _UNet(torch.nn.Module):
    """Four times down and up again, with the skips (Ronneberger et al., 2015), a quarter as wide."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64, 128, 256)) -> None:
        super().__init__()
        self.down = torch.nn.ModuleList(map(_Twice, (3, *widths[:-1]), widths))
        self.pool = torch.nn.MaxPool2d(2)
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = torch.nn.ModuleList(torch.nn.ConvTranspose2d(low, high, 2, stride=2) for low, high in pairs)
        self.join = torch.nn.ModuleList(_Twice(2 * high, high) for _, high in pairs)
        self.head = torch.nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for level, down in enumerate(self.down):
            x = down(x if level == 0 else self.pool(x))
            skips.append(x)
        for up, join, skip in zip(self.up, self.join, skips[-2::-1], strict=True):
            x = join(torch.cat([skip, up(x)], dim=1))
        segments: torch.Tensor = self.head(x)
        return segments


def unet() -> Example:
    """A U-Net of 1.9 million weights, 128 x 128, 2 classes a pixel."""
    return models.settled(_UNet(), 3, 128, 128), (torch.randn(1, 3, 128, 128),)


MODELS: Final[dict[str, Callable[[], Example]]] = models.MODELS | {
    factory.__name__: factory for factory in (swin, unet, whisper_encoder, llama)
}


def make(name: str, batch: int = 1) -> Example:
    """The model and its example inputs, `batch` samples of them, the same for every call."""
    torch.manual_seed(0)
    model, args = MODELS[name]()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model, tuple(torch.cat([x, *(_like(x) for _ in range(batch - 1))]) for x in args)


def calibration(args: tuple[torch.Tensor, ...]) -> list[tuple[torch.Tensor, ...]]:
    """Batches of the kind of `args`, which are the first."""
    torch.manual_seed(1)
    return [args, *(tuple(map(_like, args)) for _ in range(CALIBRATION_BATCHES - 1))]


def _like(example: torch.Tensor) -> torch.Tensor:
    """Another input of that kind: tokens and masks are taken in another order."""
    if example.dtype.is_floating_point:
        return torch.randn_like(example)
    return example.flatten()[torch.randperm(example.numel())].reshape(example.shape)


class Narrow(torch.nn.Module):
    """The model in bfloat16, which takes and gives float32: peers that choose that precision themselves do as well."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model.bfloat16()

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        narrow = [x.bfloat16() if x.dtype.is_floating_point else x for x in args]
        return outputs(self.model(*narrow))[0].float()
