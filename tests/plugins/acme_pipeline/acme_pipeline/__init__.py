"""What fits ACME's board: no tensor of more dims than its DMA has counters, no plan beyond its memory."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.utils import _pytree as pytree

from delegraph.aot import Lowering
from delegraph.errors import LoweringError
from delegraph.interfaces import DialectRule, PipelineStage

__all__ = ["acme_budget", "acme_rank"]

delegraph_api = (1, 1)


class Budget(PipelineStage[Lowering]):
    """Reads the plan, before a compiler runs."""

    after = "plan"

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def run(self, lowering: Lowering) -> Lowering:
        assert lowering.planned is not None
        for plan in lowering.planned.plans:
            planned = sum(plan.non_const_buffer_sizes)
            if planned > self.nbytes:
                raise LoweringError(f"method {plan.name!r} takes {planned} bytes, and the board has {self.nbytes}")
        return lowering


class Rank(DialectRule):
    """Holds in edge programs."""

    def __init__(self, most: int) -> None:
        self.most = most

    def check(self, node: Node, kept: Collection[OpOverload]) -> str | None:
        values = pytree.tree_leaves(node.meta.get("val"))
        rank = max((value.dim() for value in values if isinstance(value, torch.Tensor)), default=0)
        return f"a tensor of {rank} dims; the board moves up to {self.most}" if rank > self.most else None


def acme_budget(*, nbytes: int = 65536) -> Budget:
    """The factory of the stage; its keyword parameters are the options."""
    return Budget(nbytes)


def acme_rank(*, most: int = 4) -> Rank:
    """The factory of the rule."""
    return Rank(most)
