"""Joint graphs: a training step is lowered, and the next step begins with the weights that an optimizer leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import ExportedProgram, export
from torch.export.experimental import _export_forward_backward
from torch.export.graph_signature import OutputKind

from delegraph.aot import ExecutorchBackendConfig, MemoryPlanningPass, PartitionResult, to_edge
from delegraph.errors import InvalidPartition
from delegraph.interfaces import DelegationSpec, Partitioner
from delegraph.runtime import Method, Runtime

LR = 0.5
X = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
LABELS = torch.tensor([0, 0, 1, 1])


class Step(nn.Module):
    """A frozen layer between two that are trained, and a loss; the prediction beside it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.frozen, self.last = nn.Linear(2, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.last(torch.tanh(self.frozen(torch.tanh(self.first(x)))))
        return nn.functional.cross_entropy(y, labels), y.detach().argmax(dim=1)


NAMES = ["first.weight", "first.bias", "last.weight", "last.bias"]


@pytest.fixture(scope="module")
def joint() -> ExportedProgram:
    return _export_forward_backward(export(Step(), (X, LABELS)))


def lowered(joint: ExportedProgram, **config: Any) -> Any:
    return to_edge(joint).to_executorch(ExecutorchBackendConfig(check_kernels=False, **config))


@pytest.fixture(scope="module")
def manager(joint: ExportedProgram) -> Any:
    return lowered(joint)


def load(manager: Any, method: str = "forward") -> Method:
    return Runtime.get().load_program(manager.buffer).load_method(method)


def trained(step: Method, rounds: int) -> list[float]:
    """The losses of `rounds` steps of gradient descent in NumPy, on the arrays that a step gives."""
    losses = []
    for _ in range(rounds):
        loss, _, *rest = step.execute([X.numpy(), LABELS.numpy()], clone_outputs=False)
        losses.append(float(loss))
        for gradient, weight in zip(rest[:4], rest[4:], strict=True):
            weight -= LR * gradient
    return losses


def eager(rounds: int) -> tuple[list[float], Step]:
    model = Step()
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=LR)
    losses = []
    for _ in range(rounds):
        optimizer.zero_grad()
        loss = model(X, LABELS)[0]
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    return losses, model


def test_training_with_numpy_follows_eager_training_step_by_step(manager: Any) -> None:
    step = load(manager)
    losses = trained(step, 30)
    expected, model = eager(30)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert losses[-1] < losses[0] / 2
    weights = dict(model.named_parameters())
    for name in NAMES:
        np.testing.assert_allclose(step.get_attribute(name), weights[name].detach(), rtol=1e-3, atol=1e-5)


def test_methods_say_where_gradients_and_weights_are(manager: Any) -> None:
    assert load(manager, "__et_training_gradients_index_forward").execute([]) == [2]
    assert load(manager, "__et_training_parameters_index_forward").execute([]) == [6]
    assert load(manager, "__et_training_fqn_forward").execute([]) == NAMES
    outputs = load(manager).execute([X.numpy(), LABELS.numpy()])
    weights = dict(Step().named_parameters())
    for name, weight in zip(NAMES, outputs[6:], strict=True):
        np.testing.assert_array_equal(weight, weights[name].detach())


def test_cloned_outputs_leave_the_model_as_it_is(manager: Any) -> None:
    step = load(manager)
    first = step.execute([X.numpy(), LABELS.numpy()])
    for array in first[2:]:
        array[...] = 7
    assert step.execute([X.numpy(), LABELS.numpy()])[0] == first[0]


def test_weights_are_outputs_of_the_emitted_program_alone(joint: ExportedProgram, manager: Any) -> None:
    kinds = [spec.kind for spec in manager.exported_program().graph_signature.output_specs]
    assert kinds.count(OutputKind.TOKEN) == 4
    assert OutputKind.TOKEN not in [spec.kind for spec in joint.graph_signature.output_specs]


@pytest.mark.parametrize(
    "planning", [MemoryPlanningPass(alloc_graph_output=False), MemoryPlanningPass(alloc_mutable_buffers=False)]
)
def test_weights_have_planned_memory_whatever_else_has(joint: ExportedProgram, planning: MemoryPlanningPass) -> None:
    np.testing.assert_allclose(trained(load(lowered(joint, memory_planning_pass=planning)), 3), eager(3)[0], rtol=1e-4)


def test_weights_begin_with_what_a_ptd_has(joint: ExportedProgram, tmp_path: Any) -> None:
    manager = lowered(joint, external_mutable_weights=True)
    assert set(manager.tensor_data["_default_external_constant"].named_data) == set(NAMES)
    manager.save(tmp_path / "step.pte")
    data_path = tmp_path / "_default_external_constant.ptd"
    program = Runtime.get().load_program(tmp_path / "step.pte", data_path=data_path)
    before = data_path.read_bytes()
    np.testing.assert_allclose(trained(program.load_method("forward"), 3), eager(3)[0], rtol=1e-4)
    assert data_path.read_bytes() == before


def test_names_say_which_ptd_has_weights_that_are_trained_too(joint: ExportedProgram) -> None:
    files = lowered(joint, external_constants={"first.*": "first", "frozen.*": "rest"}).tensor_data
    named = {tag: set(file.named_data) for tag, file in files.items()}
    assert named == {"first": {"first.weight", "first.bias"}, "rest": {"frozen.weight", "frozen.bias"}}


def test_methods_that_share_buffers_share_trained_weights(joint: ExportedProgram) -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = Step()
            for name, child in self.step.named_children():
                setattr(self, name, child)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.tanh(self.frozen(torch.tanh(self.first(x)))))

    model = Loss()
    del model.step
    programs = {"train": joint, "predict": export(model, (X,))}
    config = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True))
    program = Runtime.get().load_program(to_edge(programs).to_executorch(config).buffer)
    plans = {name: program.plan(name) for name in programs}
    places = [
        {
            value.extra_tensor_info.fully_qualified_name: value.allocation_info
            for value in plan.values
            if getattr(value, "extra_tensor_info", None) is not None
        }
        for plan in plans.values()
    ]
    assert places[0] == places[1]
    assert set(places[0]) == set(NAMES)


def test_a_partitioner_may_not_take_a_trained_weight(joint: ExportedProgram) -> None:
    class Greedy(Partitioner):
        def partition(self, exported_program: ExportedProgram) -> PartitionResult:
            for node in exported_program.graph.nodes:
                if node.name == "p_first_weight":
                    node.meta["delegation_tag"] = "mine"
            return PartitionResult(exported_program, {"mine": DelegationSpec("nobody", [])})

    with pytest.raises(InvalidPartition, match="is a weight that the program trains"):
        to_edge(joint).to_backend(Greedy())
