"""`dim_order_ops`: what edge programs call for copies and empty tensors, and what of it programs have.

ExecuTorch defines these operators too: both packages work in one process, whichever is imported first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram

import delegraph
from delegraph.aot import (
    EdgeCompileConfig,
    EdgeProgramManager,
    ExportPass,
    exir_ops,
    get_dim_order,
    get_memory_format,
    to_edge,
)
from delegraph.aot.graph.bodies import all_nodes
from delegraph.errors import InvalidArgument

ROOT = Path(__file__).parents[3]
TO = exir_ops.edge.dim_order_ops._to_dim_order_copy.default

SCRIPT = """
import sys
import warnings

import torch

warnings.simplefilter("ignore")
X = torch.randn(1, 2, 3, 4)
programs = []


class Model(torch.nn.Module):
    def forward(self, x):
        ones = torch.empty(x.shape, memory_format=torch.channels_last).fill_(1)
        return (x.to(memory_format=torch.channels_last) * 2 + ones).clone().double()


def ours():
    from delegraph.aot import exir_ops, to_edge

    programs.append(to_edge(torch.export.export(Model(), (X,))))
    for manager in programs:  # those from before the other import too
        program = manager.transform([lambda module: None]).exported_program()
        for name in ("_to_dim_order_copy", "_clone_dim_order", "_empty_dim_order"):
            found = next(node for node in program.graph.nodes if name in str(node.target))
            assert found.target == getattr(torch.ops.dim_order_ops, name).default
            assert found.target is getattr(exir_ops.edge.dim_order_ops, name).default
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
def test_both_packages_lower_in_one_process(executorch_python: str, order: tuple[str, str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "core")}
    done = subprocess.run(
        [executorch_python, "-c", SCRIPT, *order, *order],
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


def edge(
    function: Callable[..., Any], *args: torch.Tensor, dynamic_shapes: Any = None, **config: Any
) -> EdgeProgramManager:
    class Model(torch.nn.Module):
        def forward(self, *args: torch.Tensor) -> Any:
            return function(*args)

    exported = torch.export.export(Model(), args, dynamic_shapes=dynamic_shapes)
    return to_edge(exported, compile_config=EdgeCompileConfig(**config))


def calls(program: ExportedProgram) -> list[str]:
    """`clone_dim_order 0 1`: the calls, with their dim orders or memory formats."""
    return [
        " ".join([node.target.__name__.split(".")[1].strip("_"), *map(str, node.kwargs.get("dim_order", ()))])
        for node in program.graph.nodes
        if node.op == "call_function"
    ]


def empty_in_channels_last(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, memory_format=torch.channels_last).fill_(2) * x


X = torch.randn(1, 2, 3, 4)
LAST = X.to(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("function", "x", "expected"),  # what ExecuTorch 1.4.1 has
    [
        (lambda x: x.to(torch.float64), X, ["to_dim_order_copy 0 1 2 3"]),
        (lambda x: x.to(torch.float64), LAST, ["to_dim_order_copy 0 2 3 1"]),
        (lambda x: x.to(memory_format=torch.channels_last), X, ["to_dim_order_copy 0 2 3 1"]),
        (lambda x: x.to(torch.float32), X, []),
        (lambda x: x.clone(), X, ["clone_dim_order 0 1 2 3"]),
        (lambda x: x.clone(), LAST, ["clone_dim_order 0 2 3 1"]),
        (lambda x: x.contiguous(), LAST, ["clone_dim_order 0 1 2 3"]),
        (lambda x: x[:, :1].clone(memory_format=torch.channels_last), X, ["slice_copy", "clone_dim_order 0 2 3 1"]),
        (lambda x: x.transpose(1, 2).contiguous(), X, ["permute_copy", "clone_dim_order 0 1 2 3"]),
        (lambda x: x.transpose(1, 2).clone(), X, ["permute_copy", "clone_dim_order 0 1 2 3"]),
        (lambda x: x.transpose(1, 2).double(), X, ["permute_copy", "to_dim_order_copy 0 1 2 3"]),
        (lambda x: torch.empty(2, 3).fill_(1), X, ["empty_dim_order 0 1", "full_like"]),
        (empty_in_channels_last, X, ["empty_dim_order 0 2 3 1", "full_like", "mul"]),
    ],
)
def test_edge_programs_name_the_dim_order_of_copies(
    function: Callable[..., Any], x: torch.Tensor, expected: list[str]
) -> None:
    program = edge(function, x).exported_program()
    assert calls(program) == expected
    torch.testing.assert_close(program.module()(x), function(x))


def test_in_bodies_of_control_flow_and_for_operands_too() -> None:
    def model(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x, i: x.clone() + i, lambda x, i: x + i, (x, i))

    program = edge(model, X, torch.ones(4, dtype=torch.int64)).exported_program()
    targets = {node.target for node in all_nodes(program.graph_module) if node.op == "call_function"}
    assert {exir_ops.edge.dim_order_ops._clone_dim_order.default, TO} <= targets
    assert not targets & {torch.ops.aten.clone.default, torch.ops.aten._to_copy.default}


def test_operators_take_any_dim_order() -> None:
    ops = torch.ops.dim_order_ops
    order = [3, 0, 1, 2]
    out = torch.empty(0)
    assert ops._to_dim_order_copy(X, dim_order=order).dim_order() == tuple(order)
    assert ops._clone_dim_order(X, dim_order=order).dim_order() == tuple(order)
    assert ops._clone_dim_order(LAST).dim_order() == (0, 2, 3, 1)
    assert ops._empty_dim_order([1, 2, 3, 4], dim_order=order, dtype=torch.int8).dim_order() == tuple(order)
    assert ops._empty_dim_order([2, 3]).stride() == (3, 1)
    assert ops._empty_dim_order.out([2, 3], out=out) is out
    assert out.shape == (2, 3)


KERNEL_PROGRAMS = [
    (lambda x: x.clone(), X, []),
    (lambda x: x.transpose(1, 2).contiguous(), X, ["aten::permute_copy.out"]),
    (lambda x: x.double(), X, ["aten::_to_copy.out"]),
    (lambda x: x.clone(memory_format=torch.channels_last), X, ["dim_order_ops::_to_dim_order_copy.out"]),
    (lambda x: torch.empty(2, 3).fill_(1), X, ["aten::empty.out", "aten::full_like.out"]),
    (empty_in_channels_last, X, ["dim_order_ops::_empty_dim_order.out", "aten::full_like.out", "aten::mul.out"]),
]


@pytest.mark.parametrize("skips", [False, True], ids=["dim orders", "memory formats"])
@pytest.mark.parametrize(("function", "x", "expected"), KERNEL_PROGRAMS)
def test_programs_have_the_copies_that_do_something(
    function: Callable[..., Any], x: torch.Tensor, expected: list[str], skips: bool
) -> None:
    manager = edge(function, x, _skip_dim_order=skips).to_executorch()
    (plan,) = manager.executorch_program.execution_plan
    assert [f"{operator.name}.{operator.overload}" for operator in plan.operators] == expected
    got, wanted = torch.as_tensor(delegraph.load(manager.buffer)(x.numpy())), function(x)
    torch.testing.assert_close(got, wanted)
    assert got.dim_order() == wanted.dim_order()


def test_an_empty_tensor_of_dynamic_shape_in_channels_last() -> None:
    batch = {0: torch.export.Dim("batch", min=1, max=4)}
    manager = edge(empty_in_channels_last, torch.randn(2, 3, 4, 5), dynamic_shapes=((batch,),))
    traced_anew = manager.transform([ExportPass()])
    assert calls(traced_anew.exported_program()) == calls(manager.exported_program())
    module = delegraph.load(traced_anew.to_executorch().buffer)
    for size in (1, 4):
        x = torch.randn(size, 3, 4, 5)
        got = torch.as_tensor(module(x.numpy()))
        torch.testing.assert_close(got, 2 * x)
        assert got.dim_order() == (0, 2, 3, 1)


def test_what_is_copied_into_channels_last_is_in_channels_last() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.empty(x.shape, memory_format=torch.channels_last).copy_(x)

    manager = edge(model, X)
    assert calls(manager.exported_program()) == ["to_dim_order_copy 0 2 3 1"]
    got = torch.as_tensor(delegraph.load(manager.to_executorch().buffer)(X.numpy()))
    torch.testing.assert_close(got, X)
    assert got.dim_order() == (0, 2, 3, 1)


def test_copies_cost_no_delegate() -> None:
    """A copy between two calls that cpu takes is taken with them, and changes nothing in the delegate."""

    class Model(torch.nn.Module):
        def __init__(self, copy: Callable[[torch.Tensor], torch.Tensor]) -> None:
            super().__init__()
            self.copy = copy

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.copy(self.copy(x.relu()) + 1).sigmoid()

    copies: list[Callable[[torch.Tensor], torch.Tensor]] = [
        *(lambda x: x, torch.clone, lambda x: x.to(memory_format=torch.channels_last)),
        lambda x: x.half().clone().float(),
    ]
    lowered = [delegraph.lower(torch.export.export(Model(copy), (X,)), backends=["cpu"]) for copy in copies]
    blobs = [[bytes(blob) for blob in of_copy.program.executorch_program.delegate_data] for of_copy in lowered]
    assert [len(of_copy) for of_copy in blobs] == [1] * 4
    assert blobs[1] == blobs[0]


def test_memory_formats_and_dim_orders() -> None:
    pairs = [
        (torch.contiguous_format, [0, 1, 2]),
        (torch.channels_last, [0, 2, 3, 1]),
        (torch.channels_last_3d, [0, 2, 3, 4, 1]),
    ]
    for memory_format, order in pairs:
        assert get_dim_order(memory_format, len(order)) == order
        assert get_memory_format(order) == memory_format
    assert get_dim_order(torch.preserve_format, 3) is get_dim_order(None, 3) is None
    assert get_memory_format(None) == torch.preserve_format
    with pytest.raises(InvalidArgument, match=r"a tensor of 3 dims cannot be in torch\.channels_last, which has 4"):
        get_dim_order(torch.channels_last, 3)
    with pytest.raises(InvalidArgument, match=r"no memory format of torch has the dim order \[1, 0\]"):
        get_memory_format([1, 0])


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
