"""What depends on weights alone is computed while lowering, unless that makes the file larger."""

from __future__ import annotations

import torch
from torch import nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401  # registers quantized_decomposed

from delegraph.program.schema import Program
from delegraph.runtime.runtime import Runtime


def operators(program: Program) -> set[str]:
    return {str(operator) for plan in program.execution_plan for operator in plan.operators}


def constant_bytes(program: Program) -> int:
    return sum(len(memoryview(content).cast("B")) for content in program.constants)


class Model(nn.Module):
    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))

    def forward(self, x):
        return x * self.weight.exp()


def test_weights_are_computed_now(lower_model) -> None:
    model = Model()
    program = lower_model(model, (torch.randn(64),)).executorch_program
    assert operators(program) == {"aten::mul.out"}
    assert bytes(program.constants[1]) == model.weight.exp().detach().numpy().tobytes()


def test_it_can_be_turned_off(lower_model) -> None:
    program = lower_model(Model(), (torch.randn(64),), do_const_prop=False).executorch_program
    assert operators(program) == {"aten::exp.out", "aten::mul.out"}


def test_a_linear_weight_is_transposed_once_and_stored_once(lower_model) -> None:
    program = lower_model(nn.Linear(8, 16), (torch.randn(2, 8),)).executorch_program
    assert operators(program) == {"aten::addmm.out"}
    assert constant_bytes(program) == 4 * (8 * 16 + 16)


def test_what_would_inflate_the_file_is_left(lower_model) -> None:
    class Ones(nn.Module):
        def forward(self, x):
            return x + torch.ones(64, 64).cumsum(0)

    program = lower_model(Ones(), (torch.randn(64, 64),)).executorch_program
    assert "aten::cumsum.out" in operators(program)
    assert constant_bytes(program) < 1024


def test_a_quantized_weight_stays_small_however_small_it_is(lower_model) -> None:
    class Stored(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes = nn.Buffer(torch.ones(8, 8, dtype=torch.int8))
            self.scales = nn.Buffer(torch.ones(8))

        def forward(self, x):
            dequantize = torch.ops.quantized_decomposed.dequantize_per_channel.default
            return x @ dequantize(self.codes, self.scales, None, 0, -128, 127, torch.int8)

    program = lower_model(Stored(), (torch.randn(2, 8),)).executorch_program
    assert constant_bytes(program) == 8 * 8 + 4 * 8


def test_a_weight_that_is_needed_otherwise_is_not_stored_twice(lower_model) -> None:
    class Both(Model):
        def forward(self, x):
            return x * self.weight.exp(), self.weight + x

    program = lower_model(Both(4096), (torch.randn(4096),)).executorch_program
    assert "aten::exp.out" in operators(program)
    assert constant_bytes(program) == 4 * 4096


def test_random_numbers_and_states_are_not_constant(lower_model) -> None:
    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.ones(4))

        def forward(self, x):
            result = x + self.state.exp() + torch.rand(4)
            self.state.add_(1)
            return result

    names = operators(lower_model(Changing(), (torch.randn(4),)).executorch_program)
    assert {"aten::exp.out", "aten::rand.out"} <= names


def test_several_results_of_one_call(lower_model) -> None:
    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6))

        def forward(self, x):
            a, b = self.weight.split([2, 4])
            return x + a, b.sum() + x

    assert operators(lower_model(Split(), (torch.randn(2),)).executorch_program) == {"aten::add.out"}


def test_the_same_computation_in_many_places_is_one(lower_model) -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.Linear(64, 64)

        def forward(self, x):
            for _ in range(20):
                x = self.cell(x).tanh()
            return x

    program = lower_model(Steps(), (torch.randn(2, 64),)).executorch_program
    assert operators(program) == {"aten::addmm.out", "aten::tanh.out"}
    assert constant_bytes(program) == 4 * (64 * 64 + 64)


def test_equal_computations_that_share_no_weight(lower_model) -> None:
    class Zeros(nn.Module):
        def forward(self, x):
            return x + torch.zeros(2) + torch.ones(2), x * (torch.zeros(2) + 1), x * (torch.zeros(2) + 1.0)

    module = Zeros()
    manager = lower_model(module, (torch.randn(2),))
    x = torch.randn(2)
    got = Runtime.get().load_program(manager.buffer).load_method("forward").execute([x])
    torch.testing.assert_close(tuple(got), module(x))
