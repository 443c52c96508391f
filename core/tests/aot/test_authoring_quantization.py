"""Quantize and dequantize calls, read once for all backends: parameters, integers, weights as they are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401  # registers quantized_decomposed
from torch.export import export
from torch.fx import Node

from delegraph.aot import to_edge
from delegraph.aot.authoring import Constants, Granularity, Quantization, Quantizations, quantize_call
from delegraph.aot.quantize.weights.packing import dequantized_weight, pack, quantize_rows

ops = torch.ops.quantized_decomposed
X = torch.linspace(-1, 1, 12).reshape(3, 4)
PER_TENSOR = (0.05, 3, -128, 127, torch.int8)


class Model(nn.Module):
    """A function of buffers and an input."""

    def __init__(self, function: Callable[..., Any], **buffers: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def read(
    function: Callable[..., Any], x: torch.Tensor = X, **buffers: torch.Tensor
) -> tuple[list[Node], Quantizations]:
    """The calls of an edge program, and what their values stand for."""
    program = to_edge(export(Model(function, **buffers), (x,))).exported_program()
    return [n for n in program.graph.nodes if n.op == "call_function"], Quantizations(Constants.of(program))


def requantized(m: Any, x: torch.Tensor) -> torch.Tensor:
    x = ops.dequantize_per_tensor(ops.quantize_per_tensor(x, *PER_TENSOR), *PER_TENSOR)
    y = x.relu()
    return ops.dequantize_per_tensor(ops.quantize_per_tensor(y, 0.1, 0, 0, 127, torch.int8), 0.1, 0, 0, 127, torch.int8)


def test_values_on_grids() -> None:
    (q, dq, relu, q2, dq2), found = read(requantized)
    first, second = Quantization.per_tensor(*PER_TENSOR), Quantization.per_tensor(0.1, 0, 0, 127, torch.int8)
    assert found.of(q) == found.of(dq) == first != second == found.of(q2) == found.of(dq2)
    assert found.of(relu) is None
    assert found.wanted(relu) == second
    assert found.wanted(dq) is None
    assert found.integers(dq) is q
    assert found.integers(q) is None
    assert (first.is_symmetric, second.is_symmetric) == (False, True)
    assert len({found.of(q), found.of(dq), second}) == 2


def test_a_value_that_users_want_in_two_ways() -> None:
    def two(m: Any, x: torch.Tensor) -> Any:
        y = x.relu()
        return [ops.dequantize_per_tensor(ops.quantize_per_tensor(y, scale, 0, 0, 127, torch.int8), *PER_TENSOR)
                for scale in (0.1, 0.2)]  # fmt: skip

    (relu, *_), found = read(two)
    assert found.wanted(relu) is None


@pytest.mark.parametrize("zero_points", [torch.tensor([0, 1, -2]), None])
def test_weights_by_channel(zero_points: torch.Tensor | None) -> None:
    codes, scales = torch.arange(-6, 6).reshape(3, 4).to(torch.int8), torch.tensor([0.5, 0.25, 2.0])
    buffers = {"codes": codes, "scales": scales} | ({} if zero_points is None else {"zeros": zero_points})

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        zeros = None if zero_points is None else m.zeros
        return x @ ops.dequantize_per_channel(m.codes, m.scales, zeros, -2, -128, 127, torch.int8).T

    (dq, *_), found = read(function, **buffers)
    weight = found.weight(dq)
    assert weight is not None
    assert weight.quantization.granularity is Granularity.CHANNEL
    assert weight.quantization.axis == 0
    np.testing.assert_array_equal(weight.integers, codes.numpy())
    expected = ops.dequantize_per_channel(codes, scales, zero_points, 0, -128, 127, torch.int8)
    np.testing.assert_array_equal(weight.dequantize(), expected.numpy())


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [4, 8])
@pytest.mark.parametrize("with_zero_points", [False, True])
def test_weights_in_groups_as_they_are_stored(bits: int, group: int, with_zero_points: bool) -> None:
    torch.manual_seed(0)
    weight = torch.randn(3, 8)
    codes, scales = quantize_rows(weight.reshape(-1, group), bits)
    zeros = torch.randint(0, 4, scales.shape, dtype=torch.uint8) if with_zero_points else None
    stored = pack(codes.reshape(3, -1)) if bits == 4 else codes.reshape(3, 8)
    buffers = {"stored": stored, "scales": scales} | ({"zeros": zeros} if zeros is not None else {})

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        zeros = m.zeros if with_zero_points else None
        return x @ dequantized_weight(m.stored, m.scales, zeros, [3, 8], torch.float32).T

    nodes, found = read(function, torch.randn(2, 8), **buffers)
    (last,) = [node for node in nodes if found.weight(node) is not None and node.meta["val"].shape == (3, 8)
               and not quantize_call(node)] or [node for node in nodes if quantize_call(node)]  # fmt: skip
    read_back = found.weight(last)
    assert read_back is not None
    assert read_back.integers.shape == (3, 8)
    assert read_back.quantization.granularity is (Granularity.CHANNEL if group == 8 else Granularity.GROUP)
    assert read_back.quantization.scale.shape == ((3,) if group == 8 else (3, 2))
    expected = dequantized_weight(stored, scales, zeros, [3, 8], torch.float32)
    np.testing.assert_array_equal(read_back.dequantize(), expected.numpy())


def test_parameters_chosen_at_run_time() -> None:
    def dynamic(m: Any, x: torch.Tensor) -> torch.Tensor:
        scale, zero = ops.choose_qparams.tensor(x, -128, 127, 1e-6, torch.int8)
        q = ops.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
        return ops.dequantize_per_tensor.tensor(q, scale, zero, -128, 127, torch.int8)

    nodes, found = read(dynamic)
    calls = [call for node in nodes if (call := quantize_call(node))]
    assert [call.quantizes for call in calls] == [True, False]
    assert [call.is_dynamic for call in calls] == [True, True]
    assert {call.choice for call in calls} == {nodes[0]}
    assert found.of(calls[0].node) is None


def test_tokens_have_no_parameters_ahead_of_time() -> None:
    def by_token(m: Any, x: torch.Tensor) -> torch.Tensor:
        scales, zeros = ops.choose_qparams_per_token_asymmetric(x, torch.int8)
        return ops.quantize_per_token(x, scales, zeros, -128, 127, torch.int8)

    nodes, found = read(by_token)
    (call,) = [call for node in nodes if (call := quantize_call(node))]
    assert call.granularity is Granularity.TOKEN
    assert call.is_dynamic
    assert found.of(call.node) is None


def test_integers_and_back_are_torchs() -> None:
    grid = Quantization.per_tensor(*PER_TENSOR)
    integers = grid.quantize(X.numpy() * 10)
    expected = ops.quantize_per_tensor(X * 10, *PER_TENSOR)
    np.testing.assert_array_equal(integers, expected.numpy())
    assert integers.dtype == np.int8
    np.testing.assert_array_equal(grid.dequantize(integers), ops.dequantize_per_tensor(expected, *PER_TENSOR).numpy())


def test_what_is_no_quantize_call() -> None:
    assert quantize_call(None) is None
    (relu,), found = read(lambda m, x: x.relu())
    assert quantize_call(relu) is None
    assert found.weight(relu) is None


def test_constants_behind_casts_and_fills() -> None:
    def function(m: Any, x: torch.Tensor) -> Any:
        return x * m.w.double().float(), x + torch.full((3, 4), 2.5), x.T + m.w.view(2, 2).T.reshape(4, 1), x * 3.0

    nodes, found = read(function, w=torch.arange(4, dtype=torch.int32))
    by_name = {str(node.target): node for node in nodes}
    full = by_name["aten.full.default"]
    np.testing.assert_array_equal(found.constants.array(full), np.full((3, 4), 2.5, np.float32))
    casts = [node for node in nodes if "_to_dim_order_copy" in str(node.target)]
    content = found.constants.array(casts[1])
    np.testing.assert_array_equal(content, np.arange(4))
    assert content.dtype == np.float32
    moved = next(node for node in nodes if node.meta["val"].shape == (4, 1))
    np.testing.assert_array_equal(found.constants.array(moved), [[0], [2], [1], [3]])
    (number,) = [arg for node in nodes for arg in node.args if found.constants.number(arg) == 3.0]
    assert found.constants.number(number) == 3.0
    assert found.constants.array(nodes[-1]) is None
    assert found.constants.array("a") is None


def test_a_number_that_is_filled_in_by_a_mask() -> None:
    nodes, found = read(lambda m, x: torch.where(x > 0, 0.0, -1e9))
    filled = next(node for node in nodes if "where" in str(node.target))
    assert [found.constants.number(argument) for argument in filled.args] == [None, 0.0, -1e9]
