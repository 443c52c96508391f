"""ExecuTorch's own passes, on our programs: they do what they do on its own."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import ExportedProgram
from torch.testing import assert_close

import delegraph
from delegraph.errors import LoweringError
from delegraph_executorch.exir import EdgeCompileConfig, EdgeProgramManager, to_edge
from delegraph_executorch.exir.backend.backend_api import to_backend
from delegraph_executorch.exir.dialects._ops import ops as exir_ops
from delegraph_executorch.exir.pass_base import ExportPass
from delegraph_executorch.exir.pass_manager import ExportedProgramPassManager, PassManager
from delegraph_executorch.exir.program._program import _transform

from .passes import ACTING, FAMILIES, edge, effect, passes

pytestmark = [pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]

VIEWS = exir_ops.edge.aten.view_copy.default
FUSES = "backends.transforms.fuse_view_copy:FuseViewCopyTransform"


class Views(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.weight).view(2, 8).view(4, 4).view(16)


def views() -> EdgeProgramManager:
    return to_edge(torch.export.export(Views(), (torch.randn(16),)))


def the(path: str) -> Any:
    """The name that the wheel has there, under ours."""
    module, _, name = path.partition(":")
    return getattr(import_module(f"delegraph_executorch.{module}"), name)


def count(program: ExportedProgram | torch.fx.GraphModule, target: Any = VIEWS) -> int:
    return len(program.graph.find_nodes(op="call_function", target=target))


# ---- as there --------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ACTING.read_text("utf-8").splitlines())
def test_a_pass_does_what_it_does_there(line: str) -> None:
    module, name, model = line.split()
    if find_spec(module) is None:
        pytest.skip(f"the installed wheel has no {module}")
    kind = getattr(import_module(f"delegraph_{module}"), name)
    there = effect(kind, model, "executorch")
    assert effect(kind, model, "delegraph_executorch") == there
    assert there or not version("executorch").startswith("1.4."), "the list is of 1.4"


@pytest.mark.parametrize("family", FAMILIES)
def test_passes_of_a_family_can_be_imported(family: str) -> None:
    """And what cannot be is what cannot be there: modules that need a vendor's tools, or more of Python's packages."""
    entries = list(passes(FAMILIES[family]))
    assert any(isinstance(entry, type) for entry in entries)
    problems = [entry for entry in entries if isinstance(entry, str)]
    assert not [problem for problem in problems if "delegraph" in problem]


# ---- wherever a pass is taken ----------------------------------------------------------------------


def test_transform_takes_one_by_method_in_a_list_and_in_managers() -> None:
    fuses = the(FUSES)
    for given in ([fuses()], {"forward": [fuses()]}, PassManager([fuses()]), ExportedProgramPassManager([fuses()])):
        manager = views()
        assert count(manager.exported_program()) == 3
        assert count(manager.transform(given).exported_program()) == 1
        assert count(manager.exported_program()) == 3


def test_what_it_leaves_is_a_program_of_ours_that_runs() -> None:
    x = torch.randn(16)
    program = views().transform([the(FUSES)()]).to_executorch()
    assert_close(torch.from_numpy(delegraph.load(program.buffer)(x.numpy())), x + 1)


def test_free_functions_and_calls_by_hand_take_it_too() -> None:
    fuses, program = the(FUSES), views().exported_program()
    assert count(_transform(program, fuses())) == 1
    for call in (fuses(), fuses().call):
        assert count(call(views().exported_program().graph_module).graph_module) == 1


def test_a_manager_of_xnnpacks_passes_takes_our_program() -> None:
    manager = the("backends.xnnpack._passes:XNNPACKPassManager")
    fuses = the("backends.xnnpack._passes.fuse_activation_pass:FuseActivationPass")
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    program = to_edge(torch.export.export(model, (torch.randn(1, 3, 8, 8),))).exported_program()
    assert count(program, exir_ops.edge.aten.relu.default) == 1
    assert count(manager(program, [fuses]).transform(), exir_ops.edge.aten.relu.default) == 0


def test_a_class_derived_from_one_sees_its_own_dialect() -> None:
    from executorch.exir.dialects._ops import ops
    from executorch.exir.pass_base import ExportPass as TheirPass

    class Doubles(TheirPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            if op is ops.edge.aten.add.Tensor:
                args = (super().call_operator(op, args, kwargs, meta), args[1])
            return super().call_operator(op, args, kwargs, meta)

    program = views().transform([Doubles()]).exported_program()
    assert count(program, exir_ops.edge.aten.add.Tensor) == 2
    assert_close(program.module()(torch.zeros(16)), torch.full((16,), 2.0))


def test_a_pass_made_with_a_program_changes_the_one_that_is_transformed() -> None:
    create = the("backends.transforms.utils:create_constant_placeholder")

    class AddsTen(ExportPass):
        def __init__(self, program: ExportedProgram) -> None:
            super().__init__()
            self.program = program

        def call(self, graph_module: torch.fx.GraphModule) -> Any:
            (add,) = graph_module.graph.find_nodes(op="call_function", target=exir_ops.edge.aten.add.Tensor)
            with graph_module.graph.inserting_before(next(iter(graph_module.graph.nodes))):
                kind = torch.export.graph_signature.InputKind.PARAMETER
                ten = create(self.program, graph_module.graph, "ten", kind, torch.full((16,), 10.0))
            add.args = (add.args[0], ten)
            return super().call(graph_module)

    manager = views()
    program = manager.transform([AddsTen(manager.exported_program())]).exported_program()
    assert_close(program.module()(torch.zeros(16)), torch.full((16,), 10.0))
    assert "ten" not in manager.exported_program().state_dict


def test_a_number_of_a_tensor_keeps_the_bounds_that_the_program_knows() -> None:
    class Narrowed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.table = nn.Linear(4, 4), nn.Parameter(torch.randn(32, 4))

        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            start = at.item()
            torch._check(start >= 0)
            torch._check(start + x.shape[0] <= 32)
            return self.linear(x) + self.table.narrow(0, start, x.shape[0])

    model, args = Narrowed(), (torch.randn(3, 4), torch.tensor(5))
    rows = {0: torch.export.Dim("rows", min=1, max=8)}
    exported = torch.export.export(model, args, dynamic_shapes=(rows, None))
    edge = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False))  # `linear` is not core
    result = edge.transform([the("backends.xnnpack._passes.convert_to_linear:ConvertToLinearPass")()])
    run = delegraph.load(bytes(result.to_executorch().buffer))
    for count, start in ((3, 5), (8, 24)):
        x, at = torch.randn(count, 4), torch.tensor(start)
        assert_close(run(x, at), model(x, at))


def test_what_only_its_later_stages_know_is_refused() -> None:
    from executorch.exir import memory
    from executorch.exir.dialects._ops import ops
    from executorch.exir.pass_base import ExportPass as TheirPass

    class Elides(TheirPass):
        def call(self, graph_module: torch.fx.GraphModule) -> Any:
            for node in graph_module.graph.find_nodes(op="call_function", target=ops.edge.aten.view_copy.default):
                node.target = memory.view
            return super().call(graph_module)

    with pytest.raises(LoweringError, match=r"pass Elides left a call of executorch\.exir\.memory\.view in the graph"):
        views().transform([Elides()])


CORE_ALONE = """
import torch
from executorch.backends.transforms.fuse_view_copy import FuseViewCopyTransform
from delegraph.aot import exir_ops, to_edge

class Views(torch.nn.Module):
    def forward(self, x):
        return x.view(2, 8).view(4, 4).view(16) + 1

program = to_edge(torch.export.export(Views(), (torch.randn(16),))).transform([FuseViewCopyTransform()])
(view,) = program.exported_program().graph.find_nodes(op="call_function", target=exir_ops.edge.aten.view_copy.default)
"""


def test_the_core_finds_the_adapter_by_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CORE_ALONE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


LATE = """
import torch
import executorch.exir
from executorch.backends.transforms.fuse_view_copy import FuseViewCopyTransform  # before ours: by hand all the same
from delegraph_executorch.exir import to_edge

class Views(torch.nn.Module):
    def forward(self, x):
        return x.view(2, 8).view(4, 4).view(16) + 1

for to_either in (to_edge, executorch.exir.to_edge):
    module = to_either(torch.export.export(Views(), (torch.randn(16),))).exported_program().graph_module
    graph = FuseViewCopyTransform()(module).graph_module.graph
    assert len([node for node in graph.nodes if "view_copy" in str(node.target)]) < 3
"""


def test_the_wheel_may_be_imported_first() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", LATE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ---- partitioners ----------------------------------------------------------------------------------


def test_the_free_to_backend_takes_its_partitioner() -> None:
    partitioner = the("backends.xnnpack.partition.xnnpack_partitioner:XnnpackFloatingPointPartitioner")
    program = edge("int8", "delegraph_executorch").exported_program()
    assert count(to_backend(program, partitioner()), exir_ops.edge.aten.convolution.default) == 1
    float_model = to_edge(torch.export.export(nn.Linear(4, 4).eval(), (torch.randn(2, 4),))).exported_program()
    lowered = to_backend(float_model, partitioner())
    assert [node.name for node in lowered.graph.nodes if node.op == "get_attr"] == ["lowered_module_0"]
