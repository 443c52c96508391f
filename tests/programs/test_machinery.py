"""What the runs of random programs rest on: programs that are told by their seed, small ones, and a fair comparison."""

from __future__ import annotations

import pytest
import torch
from tests.kernels.oracle import tolerances
from tests.programs.grammar import random_program
from tests.programs.program import PYTHONS, SIZES, Call, Input, Program
from tests.programs.rounding import is_close
from tests.programs.running import NotExported, Subject
from tests.programs.shrinking import shrunk
from torch import Tensor

X = Input("x0", (3, 4), "float32", 7)


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_tells_the_program(seed: int) -> None:
    program = random_program(seed)
    assert program == random_program(seed)
    for size in SIZES:
        first, second = (program.module(PYTHONS)(*program.arguments(size)) for _ in range(2))
        torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)


def test_a_branch_that_is_not_taken_has_to_run_too() -> None:
    text = "cond(x0.sum() > 1e9, lambda y: self.s0(y), lambda y: y + 1, (x0,))"
    branches = Call(text, "v0", "self.s0 = nn.Linear(4, 4)")
    program = Program((Input("x0", (3, 4), "float64", 7),), (branches,), ("v0",))
    with pytest.raises(RuntimeError, match="same dtype"):
        program.module(PYTHONS)(*program.arguments(SIZES[0]))


def test_memory_that_torch_export_lays_out_otherwise_than_eager_torch_is_not_asked_for() -> None:
    calls = (
        Call("self.s0(x0.t())", "v0", "self.s0 = nn.BatchNorm1d(3)"),
        Call("v0.as_strided((2, 2), (1, 2))", "v1"),
    )
    with pytest.raises(NotExported):
        Subject(Program((Input("x0", (3, 2), "float32", 7),), calls, ("v1",)))


def test_programs_differ() -> None:
    programs = [random_program(seed) for seed in range(60)]
    texts = "\n".join(program.source() for program in programs)
    assert len({program.source() for program in programs}) == len(programs)
    assert any(program.dynamic for program in programs) and any(program.quantized for program in programs)
    assert all(
        what in texts for what in ("cond(", "] = ", ".add_(", "register_buffer", "nn.", ".expand", "torch.where")
    )


def test_a_program_is_shrunk_to_what_shows_it() -> None:
    calls = (
        Call("x0.cumsum(0)", "v0"),
        Call("v0.t()", "v1"),
        Call("v1.sin()", "v2"),
        Call("self.s3(v2.t())", "v3", "self.s3 = nn.Linear(4, 4)"),
        Call("v3.mul_(2)"),
        Call("v2 + v3.t()", "v5"),
    )

    def shows(smaller: Program) -> bool:
        smaller.module()(*smaller.arguments(SIZES[0]))
        return any("sin" in call.text for call in smaller.calls)

    smallest = shrunk(Program((X, Input("x1", (2,), "int64", 1)), calls, ("v3", "v5", "v0")), shows)
    assert smallest == Program((X,), (Call("x0.sin()", "v2"),), ("v2",))


def test_a_snippet_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    program = Program((Input("x0", (-1, 4), "float32", 7),), (Call("x0 * 2", "v0"),), ("v0",))
    exec(program.snippet(), {})
    assert capsys.readouterr().out.count("tensor(") == 2 * len(SIZES)


@pytest.mark.parametrize(
    ("actual", "expected", "disturbed", "right"),
    [
        ([1.0, 2.0], [1.0, 2.0], [[1.0, 2.0]], [True, True]),
        ([1.0, 2.1], [1.0, 2.0], [[1.0, 2.0]], [True, False]),
        ([1.0, 2.1], [1.0, 2.0], [[1.0, 2.05]], [True, True]),
        ([torch.nan, 2.0], [torch.nan, torch.nan], [[torch.nan, torch.nan]], [True, False]),
        ([torch.inf, 0.0], [1e9, torch.inf], [[torch.inf, torch.inf]], [True, False]),
    ],
)
def test_a_difference_is_measured_by_what_rounding_does(
    actual: list[float], expected: list[float], disturbed: list[list[float]], right: list[bool]
) -> None:
    tensors: list[Tensor] = [torch.tensor(values) for values in disturbed]
    assert is_close(torch.tensor(actual), torch.tensor(expected), tensors, tolerances).tolist() == right


def test_other_roundings_take_the_other_branch_where_noise_decides() -> None:
    """Of a sum that is 0 but for rounding, and of its codes, all of which lie at one end of the range."""
    calls = (
        Call("F.layer_norm(x0, x0.shape[-1:])", "v0"),
        Call("cond(v0.sum() > 0, lambda y: y + 9, lambda y: y - 9, (v0,))", "v1"),
    )
    for quantized in (False, True):
        subject = Subject(Program((X,), calls, ("v1",), quantized))
        means = {round(float(run[0][0].mean())) for run in subject.disturbed}
        assert means == {9, -9}


def test_an_element_that_is_0_only_as_its_parts_were_rounded_gets_either_side_of_0() -> None:
    """The mean of 1.25, -1.75 and -0.25 is the last of them."""
    calls = (Call("F.layer_norm(x0, x0.shape[-1:])", "v0"), Call("v0 % 3", "v1"))
    subject = Subject(Program((Input("x0", (2, 3), "float32", 5),), calls, ("v1",)))
    assert subject.expected[0][0][0, 2] == 0
    assert {round(float(run[0][0][0, 2])) for run in subject.disturbed} == {0, 3}


def test_the_normalised_difference_of_equal_numbers_is_0_or_what_rounding_left_of_it() -> None:
    """Eager torch gives -7.6e-6 for the only element of a group, 316 times the rounding of x - mean."""
    subject = Subject(Program((Input("x0", (3, 1), "float16", 621),), (Call("F.group_norm(x0, 1)", "v0"),), ("v0",)))
    eager, disturbed = subject.expected[0][0], [run[0][0] for run in subject.disturbed]
    assert is_close(torch.zeros_like(eager), eager, disturbed, tolerances).all()
    assert not is_close(eager + 0.001, eager, disturbed, tolerances).any()


def test_an_integer_is_exact_unless_it_hangs_on_rounding() -> None:
    actual, expected, other = (torch.tensor(values) for values in ([1, 3, 4], [1, 2, 5], [1, 2, 4]))
    assert is_close(actual, expected, [other], tolerances).tolist() == [True, False, True]
