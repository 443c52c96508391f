"""`dim_order_ops` where ExecuTorch defines them too: both packages work in one process, whichever is imported first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import delegraph
from delegraph.aot import EdgeCompileConfig, exir_ops, to_edge

ROOT = Path(__file__).parents[3]

SCRIPT = """
import sys
import warnings

import torch

warnings.simplefilter("ignore")
X = torch.randn(1, 2, 3, 4)
programs = []


class Model(torch.nn.Module):
    def forward(self, x):
        return (x.to(memory_format=torch.channels_last) * 2).double()


def ours():
    from delegraph.aot import exir_ops, to_edge

    programs.append(to_edge(torch.export.export(Model(), (X,))))
    for manager in programs:  # those from before the other import too
        program = manager.transform([lambda module: None]).exported_program()
        copy = next(node for node in program.graph.nodes if "_to_dim_order_copy" in str(node.target))
        assert copy.target == torch.ops.dim_order_ops._to_dim_order_copy.default
        assert copy.target is exir_ops.edge.dim_order_ops._to_dim_order_copy.default
        torch.testing.assert_close(program.module()(X), Model()(X))


def theirs():
    from executorch.exir import to_edge

    manager = to_edge(torch.export.export(Model(), (X,)))
    torch.testing.assert_close(manager.exported_program().module()(X), Model()(X))
    manager.to_executorch()


for who in sys.argv[1:]:
    {"ours": ours, "theirs": theirs}[who]()
"""


@pytest.mark.executorch
@pytest.mark.parametrize("order", [("ours", "theirs"), ("theirs", "ours")], ids="-".join)
def test_both_packages_lower_in_one_process(order: tuple[str, str]) -> None:
    python = os.environ.get("DELEGRAPH_EXECUTORCH_PYTHON", str(ROOT / ".venv-executorch" / "bin" / "python"))
    if not Path(python).exists():
        pytest.skip("ExecuTorch's environment is made by `make setup-executorch`")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "core")}
    done = subprocess.run(
        [python, "-c", SCRIPT, *order, *order],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_our_definitions_make_way_and_operators_in_graphs_stay_callable() -> None:
    script = (
        "import importlib.util, torch\n"
        "from delegraph.aot import exir_ops\n"
        "copy = exir_ops.edge.dim_order_ops._to_dim_order_copy.default\n"
        "importlib.util._find_spec('executorch.exir.passes.dim_order_ops_registry', None)\n"
        "theirs = torch.library.Library('dim_order_ops', 'DEF')\n"
        "theirs.define(str(copy._schema).partition('::')[2])\n"
        "print(copy(torch.ones(1, 2, 3, 4), dim_order=[0, 2, 3, 1]).dim_order())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "(0, 2, 3, 1)\n", done.stderr[-3000:]


def test_a_copy_into_any_dim_order() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(memory_format=torch.channels_last)

    x = torch.randn(1, 2, 3, 4)
    program = to_edge(torch.export.export(Model(), (x,))).exported_program()
    (copy,) = (node for node in program.graph.nodes if node.op == "call_function")
    assert copy.target is exir_ops.edge.dim_order_ops._to_dim_order_copy.default
    assert copy.target(x, dim_order=[3, 0, 1, 2]).dim_order() == (3, 0, 1, 2)


@pytest.mark.parametrize("backends", [[], ["cpu"]], ids=["kernels", "cpu"])
def test_without_dim_order_copies_say_their_memory_format(backends: list[str]) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.to(memory_format=torch.channels_last)
            return torch.nn.functional.hardswish(y).to(torch.float64, memory_format=torch.contiguous_format) * 2

    x = torch.randn(1, 2, 3, 4)
    exported, config = torch.export.export(Model(), (x,)), EdgeCompileConfig(_skip_dim_order=True)
    program = to_edge(exported, compile_config=config).exported_program()
    copies = [node for node in program.graph.nodes if "memory_format" in node.kwargs]
    assert [node.target for node in copies] == [torch.ops.aten._to_copy.default] * 2
    assert [node.kwargs["dtype"] for node in copies] == [torch.float32, torch.float64]
    assert [node.kwargs["memory_format"] for node in copies] == [torch.channels_last, torch.contiguous_format]
    assert not any("dim_order" in str(node.target) for node in program.graph.nodes)
    lowered = delegraph.lower(exported, backends=backends, config=config)
    got = torch.as_tensor(delegraph.load(bytes(lowered))(x.numpy()))
    torch.testing.assert_close(got, Model()(x), rtol=1e-6, atol=1e-6)


def test_no_exceptions_may_be_said_by_none() -> None:
    assert EdgeCompileConfig(_core_aten_ops_exception_list=None).allowed_ops == frozenset()
