"""What is left of ExecuTorch's own tracer (`exir/tracer.py`): torch.export traces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._decomp import core_aten_decompositions

__all__ = ["ExirDynamoConfig", "Value"]

Value = Any


@dataclass
class ExirDynamoConfig:
    """Settings of the tracer that is gone."""

    allow_rnn: bool = True
    verbose: bool = True
    assume_static_by_default: bool = False


def _default_decomposition_table(_use_old_decomp_table: bool = False) -> dict[torch._ops.OperatorBase, Any]:
    """What brings a program to core ATen: for `ExportedProgram.run_decompositions`."""
    return dict(core_aten_decompositions().items())
