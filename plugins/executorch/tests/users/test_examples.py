"""The calls of executorch-examples' scripts and of torchtune's recipe for devices, written small and ported."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from delegraph_executorch.port import leftovers, ported

SCRIPTS = {
    "executorch-examples: a classifier on XNNPACK, run by the bindings": """
        import torch
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
        from executorch.extension.export_util.utils import save_pte_program
        from executorch.runtime import Runtime, Verification
        torch.manual_seed(0)
        layers = torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU6(), torch.nn.Flatten(), torch.nn.Linear(288, 5)
        model = torch.nn.Sequential(*layers)
        example = (torch.randn(1, 3, 8, 8),)
        edge = to_edge_transform_and_lower(
            torch.export.export(model.eval(), example),
            partitioner=[XnnpackPartitioner()],
            compile_config=EdgeCompileConfig(_check_ir_validity=False),
        )
        save_pte_program(edge.to_executorch(), "classifier", folder)
        program = Runtime.get().load_program(f"{folder}/classifier.pte", verification=Verification.Minimal)
        (result,) = program.load_method("forward").execute(example)
        expected = model(*example)
        """,
    "executorch-examples: program and weights in two files": """
        import torch
        from executorch.exir import ExecutorchBackendConfig, to_edge
        from executorch.extension.pybindings.portable_lib import _load_for_executorch
        torch.manual_seed(0)
        model, example = torch.nn.Linear(3, 4), (torch.randn(2, 3),)
        config = ExecutorchBackendConfig(external_constants=True)
        finished = to_edge(torch.export.export(model, example)).to_executorch(config)
        finished.save(f"{folder}/linear.pte")
        finished.write_tensor_data_to_file(folder)
        files = f"{folder}/linear.pte", f"{folder}/_default_external_constant.ptd"
        (result,) = _load_for_executorch(*files).forward(example)
        expected = model(*example)
        """,
    "torchtune's recipe: adapters are trained on the device": """
        import torch
        from executorch.exir import to_edge
        from executorch.extension.training import _load_for_executorch_for_training, get_sgd_optimizer
        from torch.export.experimental import _export_forward_backward
        torch.manual_seed(0)
        class Adapted(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.base = torch.nn.Linear(8, 8).requires_grad_(False)
                self.down, self.up = torch.nn.Linear(8, 2, bias=False), torch.nn.Linear(2, 8, bias=False)
            def forward(self, x, target):
                return torch.nn.functional.mse_loss(self.base(x) + self.up(self.down(x)), target)
        model, batch = Adapted(), (torch.randn(4, 8), torch.randn(4, 8))
        joint = _export_forward_backward(torch.export.export(model, batch))
        to_edge(joint).to_executorch().save(f"{folder}/adapters.pte")
        module = _load_for_executorch_for_training(f"{folder}/adapters.pte")
        result, expected = [], []
        here = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        for step in range(3):
            result += module.forward_backward("forward", batch)[:1]
            there = there if step else get_sgd_optimizer(module.named_parameters(), 0.1, 0, 0, 0, False)
            there.step(module.named_gradients())
            expected.append(model(*batch))
            here.zero_grad()
            expected[-1].backward()
            here.step()
        result, expected = torch.stack(result), torch.stack(expected)
        assert expected[-1] < expected[0]
        """,
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script(script: str, tmp_path: Path) -> None:
    source = ported(dedent(SCRIPTS[script]))
    assert not list(leftovers(source))
    names: dict[str, Any] = {"folder": str(tmp_path), "__name__": "script"}
    exec(source, names)
    result, expected = (names[name].detach().numpy() for name in ("result", "expected"))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
