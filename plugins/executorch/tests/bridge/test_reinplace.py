"""Updates in place of operators that are named: the wheel's pass, on programs here."""

from __future__ import annotations

import pytest
import torch

from delegraph.runtime import Runtime
from delegraph_executorch.exir import ExecutorchBackendConfig, to_edge
from delegraph_executorch.exir.passes.reinplace import DEFAULT_INPLACEABLE_OPS

pytestmark = pytest.mark.executorch


class Rows(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = torch.nn.Buffer(torch.zeros(2, 3))

    def forward(self, i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        self.state.index_put_((i,), x)
        return self.state + 1


def test_a_buffer_is_updated_in_place() -> None:
    inputs = torch.tensor([1]), torch.ones(1, 3)
    edge = to_edge(torch.export.export(Rows(), inputs))
    manager = edge.to_executorch(ExecutorchBackendConfig(run_reinplace_pass=True))
    names = [operator.name for operator in manager.executorch_program.execution_plan[0].operators]
    assert "aten::index_put_" in names
    assert len(DEFAULT_INPLACEABLE_OPS) == 1
    (result,) = Runtime.get().load_program(manager.buffer).load_method("forward").execute(list(inputs))
    torch.testing.assert_close(torch.as_tensor(result), torch.tensor([[1.0] * 3, [2.0] * 3]))
