"""ultralytics' export to ExecuTorch, ported: small networks with random weights, against eager."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import delegraph


@pytest.fixture(scope="session", autouse=True)
def _ported(ported_package: Callable[[str], Path]) -> None:
    ported_package("ultralytics")


@pytest.mark.parametrize("network", ["yolo11n", "yolo11n-seg", "yolo11n-pose", "yolo11n-cls", "yolov8n"])
def test_a_network(network: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    yolo = import_module("ultralytics").YOLO(f"{network}.yaml")
    folder = Path(yolo.export(format="executorch", imgsz=64, device="cpu"))
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        expected = yolo.model.eval()(image)
    results = delegraph.load(next(folder.glob("*.pte")))(image.numpy())
    for result, reference in zip(pytree.tree_leaves(results), pytree.tree_leaves(expected), strict=False):
        assert np.abs(result - reference.numpy()).max() < 1e-3 * np.abs(reference.numpy()).max()
