"""Handwritten digits of scikit-learn, to train on and to try; how many a model reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from sklearn.datasets import load_digits

Digits: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""Pictures, float32 of (n, 1, 8, 8) from 0 to 1, and what they show."""


def learnt_and_unseen() -> tuple[Digits, Digits]:
    """1300 to train on, and 497 to try."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    pictures = torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8)[order]
    shown = torch.tensor(labels)[order]
    return (pictures[:1300], shown[:1300]), (pictures[1300:], shown[1300:])


def read(run: Callable[[torch.Tensor], Any], data: Digits) -> float:
    """Per cent of the digits that are read as what they are."""
    pictures, shown = data
    with torch.no_grad():
        scores = run(pictures)
    return 100 * float((torch.as_tensor(np.asarray(scores)).argmax(1) == shown).float().mean())
