"""What the page speaks of: a graph with additions, passes that replace operators, names that it takes as imported."""

from dataclasses import dataclass, field  # noqa: F401
from typing import Dict, List, Type  # noqa: F401, UP035

import torch
from torch.export import export
from torch.fx import Node  # noqa: F401
from torch.fx.passes.infra.pass_base import PassBase, PassResult
from torch.fx.passes.operator_support import OperatorSupport
from torch.fx.passes.utils.source_matcher_utils import get_source_partitions  # noqa: F401

from delegraph_executorch.exir import to_edge
from delegraph_executorch.exir.pass_base import ExportPass  # noqa: F401


class _Additions(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.mul.Tensor(torch.ops.aten.add.Tensor(x, y), y)


_exported = export(_Additions(), (torch.ones(2), torch.ones(2)))
traced_module = _exported.module()
graph_module = to_edge(_exported).exported_program().graph_module
op_support = OperatorSupport()
large_inputs, pattern_inputs = (torch.ones(3, 3),), (torch.ones(5, 5),)


class _Replace(PassBase):
    def __init__(self, old: object, new: object) -> None:
        super().__init__()
        self.old, self.new = old, new

    def call(self, module: torch.fx.GraphModule) -> PassResult:
        for node in module.graph.nodes:
            if node.target is self.old:
                node.target = self.new
        return PassResult(module, True)


replace_add_with_div, replace_div_with_mul = _Replace(torch.add, torch.div), _Replace(torch.div, torch.mul)
