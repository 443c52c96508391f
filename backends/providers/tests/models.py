"""Small models that several of these tests lower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def model_of(make: Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]) -> tuple[nn.Module, Any]:
    """A model of `make`, the same every time, and its arguments."""
    torch.manual_seed(0)
    model, args = make()
    return model.eval().requires_grad_(False), args


class KeywordNet(nn.Module):
    """Depthwise separable convolutions over a spectrogram of 49 by 10."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, 16, (10, 4), 2, (5, 1)), nn.BatchNorm2d(16), nn.ReLU()]
        for _ in range(2):
            layers += [nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.BatchNorm2d(16), nn.ReLU()]
            layers += [nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


class Cache(nn.Module):
    """Rows that are put at a place of a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(8, 4))

    def forward(self, place: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        self.rows.index_copy_(0, place.reshape(1), row)  # type: ignore[operator]
        return self.rows.sum(0) + self.rows.mean()  # type: ignore[operator]


class LittleLlama(nn.Module):
    """A layer of a Llama: root-mean-square norms, rotated queries and keys, a cache of keys and values, gated MLP."""

    def __init__(self, width: int = 16, heads: int = 2, longest: int = 8, words: int = 24) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.table = nn.Embedding(words, width)
        self.first, self.second = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 32, bias=False), nn.Linear(width, 32, bias=False)
        self.down, self.head = nn.Linear(32, width, bias=False), nn.Linear(width, words, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, heads, longest, self.size))
        self.register_buffer("speeds", 1 / 100 ** (torch.arange(0, self.size, 2) / self.size), persistent=False)
        self.register_buffer("places", torch.arange(longest), persistent=False)

    def rotated(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        angles = place.to(torch.float32).unsqueeze(-1) * self.speeds
        cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat([-high, low], -1) * sin

    def forward(self, tokens: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        parts = self.qkv(self.first(x)).reshape(1, 1, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        query, key, value = parts[0], parts[1], parts[2]
        self.keys.index_copy_(2, place, self.rotated(key, place))  # type: ignore[operator]
        self.values.index_copy_(2, place, value)  # type: ignore[operator]
        seen = (self.places <= place).reshape(1, 1, 1, -1)  # type: ignore[operator]
        attended = nn.functional.scaled_dot_product_attention(
            self.rotated(query, place),
            self.keys,
            self.values,
            attn_mask=seen,  # type: ignore[arg-type]
        )
        x = x + self.out(attended.transpose(1, 2).reshape(1, 1, -1))
        gated = self.second(x)
        x = x + self.down(nn.functional.silu(self.gate(gated)) * self.up(gated))
        return self.head(x)  # type: ignore[no-any-return]
