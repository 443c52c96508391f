"""scikit-learn's digits, and a small convolutional net that learns them in a few seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

EPOCHS = 15
BATCH = 64


@dataclass(frozen=True, slots=True)
class Digits:
    """1797 images of 8 x 8 pixels from 0 to 1, [n, 1, 8, 8] float32, and their digits, [n] int64."""

    train_images: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.int64]


def digits() -> Digits:
    """A quarter of the images, the same each time, is held out for the test."""
    data = load_digits()
    images = (data.images[:, None] / data.images.max()).astype(np.float32)
    train_x, test_x, train_y, test_y = train_test_split(
        images, data.target.astype(np.int64), test_size=0.25, random_state=0, stratify=data.target
    )
    return Digits(train_x, train_y, test_x, test_y)


class DigitNet(nn.Module):
    """`features`: two convolutions, pooled to [n, 32, 4, 4]; `classifier`: two linear layers to [n, 10] logits."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.features(images))
        return logits


def train(data: Digits, after_epoch: Callable[[], object] = lambda: None) -> DigitNet:
    """A trained net in eval mode; the same one each time on the same machine."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # a step is too small to be worth sharing
    model = DigitNet()
    images, labels = torch.from_numpy(data.train_images), torch.from_numpy(data.train_labels)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-4)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        after_epoch()
    return model.eval().requires_grad_(False)
