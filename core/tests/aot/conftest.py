"""What the tests of lowering share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.emission.manager import ExecutorchProgramManager
from delegraph.aot.lower import to_edge

LowerModel = Callable[..., ExecutorchProgramManager]


@pytest.fixture
def lower_model() -> LowerModel:
    """Lower a model onto kernels alone; the installed kernel libraries are not asked unless `check_kernels` says so."""

    def lower(
        model: nn.Module | Mapping[str, nn.Module],
        args: tuple[Any, ...],
        dynamic_shapes: Any = None,
        constant_methods: Mapping[str, Any] | None = None,
        **config: Any,
    ) -> ExecutorchProgramManager:
        models = model if isinstance(model, Mapping) else {"forward": model}
        exported = {
            name: torch.export.export(one.eval(), args, dynamic_shapes=dynamic_shapes) for name, one in models.items()
        }
        options = ExecutorchBackendConfig(**{"check_kernels": False, **config})
        return to_edge(exported, constant_methods=constant_methods).to_executorch(options)

    return lower
