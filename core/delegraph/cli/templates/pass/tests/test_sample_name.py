"""The calls that become others, and those that stay."""

import torch

import delegraph


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).relu() + x.sigmoid()


def test_relu_becomes_clamp() -> None:
    x = torch.randn(2, 3)
    edge = delegraph.to_edge(torch.export.export(Net(), (x,))).transform(["sample_name"])
    program = edge.exported_program()
    calls = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert not any("relu" in call for call in calls)
    assert any("clamp" in call for call in calls) and any("sigmoid" in call for call in calls)
    torch.testing.assert_close(program.module()(x), Net()(x))
