"""Numbers that stand for tensors, and operands of several dtypes: tensors of one dtype in edge programs, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

import delegraph
from delegraph.aot import edge_program, lifted_number, number_overload, to_edge
from delegraph.aot.edge.tensor_operands import constant_of
from delegraph.aot.passes.number_operands import NumberOperands
from delegraph.program import deserialize_program, to_text

aten = torch.ops.aten

X = torch.tensor([[0.5, -1.5, 2.0], [3.0, -0.25, 1.0]])
INTS = torch.tensor([[1, -2, 3], [4, 0, 7]])
HALVES, BYTES, FLAGS = X.half(), INTS.abs().to(torch.uint8), X > 0


class Model(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def exported(function: Callable[..., Any], *args: Any, dynamic: bool = False) -> ExportedProgram:
    shapes = (tuple({0: Dim("n", min=2, max=8)} for _ in args),) if dynamic else None
    return torch.export.export(Model(function), args, dynamic_shapes=shapes)


def calls(program: ExportedProgram) -> list[str]:
    """Each call with its operands: inputs as they are called, constants as their dtype and content."""

    def shown(value: Any) -> str:
        if not isinstance(value, torch.fx.Node):
            return str(value)
        if value.name in constants:
            return f"{str(constants[value.name].dtype).removeprefix('torch.')} {constants[value.name].item()}"
        return value.name

    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    constants = {n: program.constants[t] for n, t in targets.items() if t in program.constants}
    return [
        f"{node.target}({', '.join(map(shown, node.args))})"
        for node in program.graph.nodes
        if node.op == "call_function"
    ]


TO, CAST = "dim_order_ops._to_dim_order_copy", "dim_order_ops__to_dim_order_copy_default"


@pytest.mark.parametrize(
    ("function", "args", "expected"),  # what ExecuTorch 1.4.1 gives, its casts of constants done
    [
        (lambda x: x * 2, (X,), ["aten.mul.Tensor(args_0, float32 2.0)"]),
        (lambda x: x + 1, (X,), ["aten.add.Tensor(args_0, float32 1.0)"]),
        (lambda x: 1 - x, (X,), ["aten.sub.Tensor(float32 1.0, args_0)"]),
        (lambda x: x / 2, (X,), ["aten.div.Tensor(args_0, float32 2.0)"]),
        (lambda x: x // 2, (X,), ["aten.div.Tensor_mode(args_0, float32 2.0)"]),
        (lambda x: x**2, (X,), ["aten.pow.Tensor_Scalar(args_0, 2)"]),
        (lambda x: x > 0, (X,), ["aten.gt.Scalar(args_0, 0)"]),
        (lambda x: x.clamp(0, 1), (X,), ["aten.clamp.default(args_0, 0, 1)"]),
        (lambda x: x % 2, (INTS,), ["aten.remainder.Scalar(args_0, 2)"]),
        (lambda x: x * 2, (INTS,), ["aten.mul.Tensor(args_0, int64 2)"]),
        (lambda x: x * 2, (HALVES,), ["aten.mul.Tensor(args_0, float16 2.0)"]),
        (lambda x: x + 1, (BYTES,), ["aten.add.Tensor(args_0, uint8 1)"]),
        (
            lambda x: x * 2.5,
            (INTS,),
            [
                f"{TO}.default(args_0)",
                f"aten.mul.Tensor({CAST}, float32 2.5)",
            ],
        ),
        (
            lambda x: x / 2,
            (INTS,),
            [
                f"{TO}.default(args_0)",
                f"aten.div.Tensor({CAST}, float32 2.0)",
            ],
        ),
        (
            lambda x: x * 2,
            (FLAGS,),
            [
                f"{TO}.default(args_0)",
                f"aten.mul.Tensor({CAST}, int64 2)",
            ],
        ),
        (
            lambda x, y: x + y,
            (X, INTS),
            [
                f"{TO}.default(args_1)",
                f"aten.add.Tensor(args_0, {CAST})",
            ],
        ),
        (
            torch.minimum,
            (X, INTS),
            [
                f"{TO}.default(args_1)",
                f"aten.minimum.default(args_0, {CAST})",
            ],
        ),
        (torch.maximum, (X, INTS), ["aten.maximum.default(args_0, args_1)"]),
    ],
)
def test_what_edge_programs_call(function: Callable[..., Any], args: tuple[Any, ...], expected: list[str]) -> None:
    assert calls(to_edge(exported(function, *args)).exported_program()) == expected


def test_equal_numbers_are_one_constant_and_a_cast_is_done_once() -> None:
    program = to_edge(exported(lambda x, i: (x * 2 + x / 2) * i - i, X, INTS)).exported_program()
    assert [tensor.tolist() for tensor in program.constants.values()] == [2.0]
    assert sum(str(node.target) == f"{TO}.default" for node in program.graph.nodes) == 1
    names = [spec.arg.name for spec in program.graph_signature.input_specs]
    assert names == ["_lifted_tensor_constant0", "args_0", "args_1"], "constants stand before the inputs"


def test_a_symbolic_number_is_made_a_tensor() -> None:
    program = to_edge(exported(lambda x: x * x.shape[0], X, dynamic=True)).exported_program()
    size, made, product = (node for node in program.graph.nodes if node.op == "call_function")
    assert (size.target, made.target, made.args) == (aten.sym_size.int, aten.scalar_tensor.default, (size,))
    assert (product.target, product.args[1]) == (aten.mul.Tensor, made)
    assert made.meta["val"].dtype == torch.float32


def test_a_control_flow_body_fills_a_tensor() -> None:
    program = to_edge(exported(lambda x: torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x + 1, (x,)), X))
    graph = program.exported_program().graph_module.true_graph_0.graph
    full, mul = (node for node in graph.nodes if node.op == "call_function")
    assert (full.target, mul.target) == (aten.full.default, aten.mul.Tensor)
    assert lifted_number(full) == 2 and lifted_number(mul) is None


def test_the_number_behind_a_constant() -> None:
    program = to_edge(exported(lambda x: x + 0.1, HALVES)).exported_program()
    constant, x = program.graph.find_nodes(op="placeholder")
    assert lifted_number(constant) == 0.1 and lifted_number(x) is None
    assert number_overload(aten.add.Tensor) == aten.add.Scalar
    assert number_overload(aten.maximum.default) is None


VALUES = [
    (lambda x: (1 - x * 2) / 3 + 0.1, (X,)),
    (lambda x: torch.sub(x, 2, alpha=3) - torch.rsub(x, 1, alpha=2), (X,)),
    (lambda x: x * 2.5 + x / 2 + x // 2, (INTS,)),
    (lambda x: x + 0.1 - x / 3, (HALVES,)),
    (lambda x: (x + 300) * 2, (BYTES,)),
    (lambda x: (x * 2, x + True, x * 0.5), (FLAGS,)),
    (lambda x, i: (x + i) * i / 2 - torch.minimum(x, i), (X, INTS)),
    (lambda x, i: x.T.double() * i.T, (X, INTS)),
    (lambda x: x * float("nan") + float("inf"), (X,)),
    (lambda x: torch.cond(x.sum() > 0, lambda x: 1 - x * 2.5, lambda x: x / 2, (x,)), (INTS,)),
]


@pytest.mark.parametrize("backends", [[], ["cpu"]], ids=["kernels", "cpu"])
@pytest.mark.parametrize(("function", "args"), VALUES, ids=range(len(VALUES)))
def test_programs_compute_what_the_model_does(
    function: Callable[..., Any], args: tuple[Any, ...], backends: list[str]
) -> None:
    lowered = delegraph.lower(exported(function, *args), backends=backends)
    expected = function(*args)
    got = delegraph.load(bytes(lowered))(*(arg.numpy() for arg in args))
    for have, want in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, expected)), strict=True):
        torch.testing.assert_close(torch.as_tensor(have), want, equal_nan=True, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("backends", [[], ["cpu"]], ids=["kernels", "cpu"])
def test_sizes_as_operands(backends: list[str]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * x.shape[0] - x.shape[0] / 2

    program = delegraph.load(bytes(delegraph.lower(exported(function, X, dynamic=True), backends=backends)))
    for rows in (2, 5):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(torch.as_tensor(program(x.numpy())), function(x))


def test_kernels_get_numbers_again_and_promote_dtypes_themselves() -> None:
    def function(x: torch.Tensor, i: torch.Tensor) -> Any:
        n = x.shape[0]
        branch = torch.cond(x.sum() > 0, lambda x: x * 3, lambda x: x - 4, (x,))
        return branch, torch.add(x, 2, alpha=5) * n, i * 0.5, x + i

    lowered = delegraph.lower(exported(function, X, INTS, dynamic=True))
    text = to_text(deserialize_program(bytes(lowered)))
    for name in ("mul.Scalar_out", "sub.Scalar_out", "add.Scalar_out", "add.out"):
        assert f"aten::{name}" in text
    for name in ("_to_copy", "scalar_tensor", "full", "_lifted", "mul.out"):
        assert name not in text


def test_a_constant_that_a_pass_changed_stays_one() -> None:
    program = to_edge(exported(lambda x: x * 2, X)).exported_program()
    program.constants["_lifted_tensor_constant0"] = torch.tensor(3.0)
    assert calls(NumberOperands()(program).exported_program) == ["aten.mul.Tensor(args_0, float32 3.0)"]


def test_a_backend_owns_the_constants() -> None:
    lowered = delegraph.lower(exported(lambda x: (x * 2).relu() + 2, X), backends=["cpu"])
    (delegated,) = lowered.edge.exported_program().graph.find_nodes(op="placeholder")
    assert delegated.name == "args_0", "constants went into the delegate"
    inside = lowered.edge.exported_program().graph_module.lowered_module_0.original_module
    assert set(inside.constants) == {"_lifted_tensor_constant0"}


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div", "rsub"])
def test_a_number_beside_doubles_keeps_its_digits(operation: str) -> None:
    """A float by itself has 32 bits in torch: 16777217 would be one less."""
    x = torch.tensor([1.7, 0.1], dtype=torch.float64)
    function = {"rsub": lambda x: 16777217.0 - x}.get(operation, lambda x: getattr(torch, operation)(x, 16777217.1))

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)

    program = edge_program(torch.export.export(Model(), (x,)))
    assert torch.equal(program.module()(x), function(x))
    assert torch.equal(constant_of(1e300, torch.float64), torch.tensor(1e300, dtype=torch.float64))
