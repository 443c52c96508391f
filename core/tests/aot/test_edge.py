"""The edge dialect: what the rewrite leaves in the graph, and what the verifier says of programs that are not in it."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from delegraph.aot.edge.dialects import ATEN, CORE_ATEN, EDGE, FUNCTIONAL, verify
from delegraph.aot.edge.to_edge_dialect import to_edge_dialect
from delegraph.aot.functional.functionalize import functionalize
from delegraph.aot.graph.result_dtypes import result_dtypes
from delegraph.aot.graph.view_operators import VIEW_TO_COPY
from delegraph.aot.passes import PassResult, run_passes
from delegraph.errors import LoweringError, VerificationError

aten = torch.ops.aten

INDEX = torch.tensor([0, 1])


def export(function: Any, *args: Any) -> ExportedProgram:
    class Model(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return function(*inputs)

    return torch.export.export(Model(), args)


def edge(function: Any, *args: Any) -> ExportedProgram:
    program = to_edge_dialect(functionalize(export(function, *args), {}))
    verify(program, EDGE)
    with torch.no_grad():
        torch.testing.assert_close(program.module()(*args), function(*args))
    return program


def calls(program: ExportedProgram) -> list[str]:
    return [str(node.target).removeprefix("aten.") for node in program.graph.nodes if node.op == "call_function"]


X = torch.arange(12.0).reshape(3, 4)
IMAGE = torch.arange(48.0).reshape(1, 3, 4, 4)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x.view(4, 3), ["view_copy.default"]),
        (lambda x: x.t(), ["permute_copy.default"]),
        (lambda x: x.transpose(0, -1), ["permute_copy.default"]),
        (lambda x: x[1:, 2], ["slice_copy.Tensor", "select_copy.int"]),
        (lambda x: x.unsqueeze(0).expand(2, 3, 4), ["unsqueeze_copy.default", "expand_copy.default"]),
        (lambda x: x.diagonal(), ["diagonal_copy.default"]),
        (lambda x: x + 2, ["add.Tensor"]),
        (lambda x: torch.sub(x, 2, alpha=3), ["sub.Tensor"]),
        (lambda x: x > 2, ["gt.Scalar"]),
        (lambda x: torch.div(x, 2, rounding_mode="floor"), ["div.Tensor_mode"]),
        (lambda x: 2 - x, ["sub.Tensor"]),
        (lambda x: torch.nn.functional.dropout(x, 0.5, training=False) + x, ["add.Tensor"]),
        (lambda x: x.clone() + x.to(torch.float32), ["dim_order_ops._clone_dim_order.default", "add.Tensor"]),
        (lambda x: x.reshape(3, 4) * x[:, :4].expand(3, 4), ["mul.Tensor"]),
        (lambda x: x.double(), ["dim_order_ops._to_dim_order_copy.default"]),
        (lambda x: x.int() << 2, ["dim_order_ops._to_dim_order_copy.default", "bitwise_left_shift.Tensor_Scalar"]),
        (lambda x: torch.xlogy(x, 2).sum() * 0, None),
    ],
)
def test_rewrites(function: Any, expected: list[str] | None) -> None:
    found = calls(edge(function, X))
    assert found == expected if expected else not any(name.startswith("prims") for name in found)


@pytest.mark.parametrize(("end", "quantized_again"), [(4, False), (3, True)])
def test_a_no_op_between_quantized_values_goes_with_its_quantization(end: int, quantized_again: bool) -> None:
    import torch.ao.quantization.fx._decomposed  # defines the operators

    ops, parameters = torch.ops.quantized_decomposed, (0.5, 0, -128, 127, torch.int8)

    def requantized(x: torch.Tensor) -> torch.Tensor:
        x = ops.dequantize_per_tensor(ops.quantize_per_tensor(x, *parameters), *parameters)
        x = x[:, :end]
        return ops.dequantize_per_tensor(ops.quantize_per_tensor(x, *parameters), *parameters)

    operators = [name.removeprefix("quantized_decomposed.") for name in calls(edge(requantized, X))]
    twice = ["quantize_per_tensor.default", "dequantize_per_tensor.default"]
    assert operators == ([*twice, "slice_copy.Tensor", *twice] if quantized_again else twice)


def test_a_change_of_layout_is_an_explicit_dim_order() -> None:
    program = edge(lambda x: x.to(memory_format=torch.channels_last) * 2, IMAGE)
    copy, product = (node for node in program.graph.nodes if node.op == "call_function")
    assert str(copy.target) == "dim_order_ops._to_dim_order_copy.default"
    assert copy.kwargs["dim_order"] == [0, 2, 3, 1]
    assert product.meta["val"].stride() == (48, 1, 12, 3)


def test_layouts_are_propagated_from_copies_to_their_users() -> None:
    """x.t() + 1 is transposed in memory; permute_copy(x) + 1 is not."""
    program = edge(lambda x: (x.t() + 1).relu(), X)
    assert all(node.meta["val"].is_contiguous() for node in program.graph.nodes if node.op == "call_function")


def test_equal_numbers_become_one_constant() -> None:
    program = edge(lambda x: (0.5 - x) / (0.5 - x.relu()), X)
    assert list(program.constants) == ["_lifted_tensor_constant0"]


def test_control_flow_bodies_are_rewritten_too() -> None:
    def function(p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(p.sum() > 0, lambda x: x.t().contiguous(), lambda x: x - 1, (x,))

    program = edge(function, torch.ones(1), torch.ones(3, 3))
    bodies = [m for m in program.graph_module.children() if isinstance(m, GraphModule)]
    targets = {str(node.target) for body in bodies for node in body.graph.nodes if node.op == "call_function"}
    assert "aten.permute_copy.default" in targets
    assert not targets & {"aten.t.default", "aten.permute.default"}


# ---- the verifier ----------------------------------------------------------------------------------


def test_every_fault_is_listed_with_its_rule_and_its_line() -> None:
    program = export(lambda x: x.add_(1).view(4, 3), X)
    with pytest.raises(VerificationError) as error:
        verify(program, EDGE)
    message = str(error.value)
    assert "add_: aten.add_.Tensor changes its arguments [rule: nothing is mutated]" in message
    assert "view: aten.view.default returns a view; the edge dialect has aten.view_copy.default" in message
    assert "test_edge.py:" in message


def test_each_dialect_admits_what_it_should() -> None:
    exported = export(lambda x: torch.nn.functional.silu(x.t()), X)
    functional = functionalize(export(lambda x: torch.nn.functional.silu(x.t()), X), {})
    verify(exported, ATEN)
    verify(functional, FUNCTIONAL)
    verify(functional, CORE_ATEN)
    with pytest.raises(VerificationError, match=r"silu\.default is not core ATen and has a decomposition"):
        verify(exported, CORE_ATEN)
    verify(exported, CORE_ATEN, kept=[aten.silu.default, aten.t.default])
    with pytest.raises(VerificationError, match="returns a view"):
        verify(functional, EDGE)


def test_a_call_of_a_python_function_is_named() -> None:
    program = export(lambda x: x.relu(), X)
    (call,) = program.graph.find_nodes(op="call_function", target=aten.relu.default)
    call.target = torch.relu
    with pytest.raises(VerificationError, match=r"relu: call of .*relu.*, which is not an operator \[rule: only"):
        verify(program, ATEN)


def test_a_dtype_that_no_file_can_hold_is_named() -> None:
    program = export(lambda x: x.to(torch.float8_e8m0fnu), X)
    with pytest.raises(VerificationError, match="float8_e8m0fnu"):
        verify(program, EDGE)


def test_a_value_of_another_dtype_than_the_operator_gives_is_named() -> None:
    program = edge(lambda x: torch.max(x > 0, 1)[1] * 2, X)
    (product,) = program.graph.find_nodes(op="call_function", target=aten.mul.Tensor)
    (places,) = (node for node in program.graph.nodes if node.target is operator.getitem)
    product.meta["val"] = product.meta["val"].to(torch.int32)
    places.meta["val"] = places.meta["val"].to(torch.bool)
    with pytest.raises(
        VerificationError, match=r"gives int64, but its value is said to be bool \[rule: results"
    ) as error:
        verify(program, EDGE)
    assert "aten.mul.Tensor gives int64, but its value is said to be int32" in str(error.value)
    assert "test_edge.py" in str(error.value)


def test_dtypes_are_asked_for_without_a_trace() -> None:
    """The verifier calls operators that find a size in the run: the program's symbols do not become more for it."""
    program = edge(lambda x: x.nonzero() * 2, X)
    (call,) = program.graph.find_nodes(op="call_function", target=aten.nonzero.default)
    env = call.meta["val"].fake_mode.shape_env
    before = str(env.pending_fresh_unbacked_symbols), len(env.guards)
    result_dtypes.__globals__["_known"].clear()
    verify(program, EDGE)
    assert (str(env.pending_fresh_unbacked_symbols), len(env.guards)) == before


def test_an_operator_of_which_torch_gives_no_dtype_is_nothing_to_log(caplog: pytest.LogCaptureFixture) -> None:
    """Torch's negative padding wants sizes that are numbers, too."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.pad(x, (-1, 2))

    exported = torch.export.export(Model(), (torch.ones(4, 4),), dynamic_shapes=[{0: torch.export.Dim("n", max=8)}])
    result_dtypes.__globals__["_known"].clear()
    caplog.clear()
    verify(to_edge_dialect(functionalize(exported, {})), EDGE)
    assert "failed" not in caplog.text


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, 1:3],
        lambda x: x.diagonal(),
        lambda x: x.expand(2, *x.shape),
        lambda x: x.split(2, 1)[1],
        lambda x: x.unflatten(1, (2, -1)),
    ],
)
def test_dtypes_of_views_of_any_size_are_known(view: Any) -> None:
    """Torch's copies of views want sizes that are numbers: it logs a stack and gives none."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return view(x)

    exported = torch.export.export(Model(), (torch.ones(4, 4),), dynamic_shapes=[{0: torch.export.Dim("n", max=8)}])
    program = to_edge_dialect(functionalize(exported, {}))
    copies = [node for node in program.graph.nodes if node.target in VIEW_TO_COPY.values()]
    result_dtypes.__globals__["_known"].clear()
    assert copies
    for node in copies:
        assert set(result_dtypes(node.target, node.args, node.kwargs) or ()) == {torch.float32}


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.index_put((INDEX,), x[:2].long()),
        lambda x: x.index_copy(0, INDEX, x[:2].long()),
        lambda x: x.put(INDEX, x[0, :2].long()),
    ],
)
def test_a_value_of_another_dtype_than_the_tensor_that_it_is_written_into_is_named(write: Any) -> None:
    """torch refuses it, though only in the run."""
    program = to_edge_dialect(functionalize(export(write, X), {}))
    with pytest.raises(
        VerificationError, match=r"writes int64 into a tensor of float32; cast it to that \[rule: written"
    ):
        verify(program, EDGE)


# ---- passes ----------------------------------------------------------------------------------------


def _relu_to_tanh(module: GraphModule) -> PassResult:
    for node in module.graph.nodes:
        if node.target == aten.relu.default:
            node.target = aten.tanh.default
    return PassResult(module, True)


def test_a_users_pass_edits_a_copy() -> None:
    program = edge(lambda x: x.relu(), X)
    changed = run_passes(program, [_relu_to_tanh], EDGE)
    assert (calls(program), calls(changed)) == (["relu.default"], ["tanh.default"])


def test_a_pass_that_leaves_the_dialect_is_stopped() -> None:
    def to_view(module: GraphModule) -> None:
        for node in module.graph.nodes:
            if node.target == aten.relu.default:
                node.target, node.args = aten.view.default, (node.args[0], [12])

    with pytest.raises(VerificationError, match="returns a view"):
        run_passes(edge(lambda x: x.relu(), X), [to_view], EDGE)


def test_a_pass_that_raises_is_named() -> None:
    def clumsy(module: GraphModule) -> None:
        raise KeyError("weight")

    with pytest.raises(LoweringError, match="pass clumsy failed: KeyError: 'weight'"):
        run_passes(edge(lambda x: x.relu(), X), [clumsy], EDGE)


def test_a_pass_must_return_a_module() -> None:
    with pytest.raises(LoweringError, match="returned int; expected a PassResult"):
        run_passes(edge(lambda x: x.relu(), X), [lambda module: 3], EDGE)


def test_an_item_of_a_list_of_values_is_that_value() -> None:
    """A pass leaves such items that replaced a call of several results by several calls."""

    def split_in_two(module: GraphModule) -> None:
        (relu,) = module.graph.find_nodes(op="call_function", target=aten.relu.default)
        with module.graph.inserting_after(relu):
            item = module.graph.call_function(operator.getitem, ([relu.args[0], relu], 1))
        item.meta = dict(relu.meta)
        relu.replace_all_uses_with(item, delete_user_cb=lambda user: user is not item)

    program = run_passes(edge(lambda x: x.relu(), X), [split_in_two], EDGE)
    assert calls(program) == ["relu.default"]
    (relu,) = program.graph.find_nodes(op="call_function", target=aten.relu.default)
    assert program.graph_signature.user_outputs == (relu.name,)
