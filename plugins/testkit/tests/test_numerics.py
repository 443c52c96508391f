"""The sweep: what it finds in a kernel library of which one line is another, and what an author may say about it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from plugins.testkit.tests.conftest import Install

from delegraph_testkit.claims import Claims, ClaimsError
from delegraph_testkit.numerics.__main__ import main
from delegraph_testkit.numerics.contract import breaches
from delegraph_testkit.numerics.edges import DTYPES, dangerous_values, edge_numbers, edge_values
from delegraph_testkit.numerics.report import report
from delegraph_testkit.numerics.sweep import Cell, sweep
from delegraph_testkit.numerics.undefined import defined
from delegraph_testkit.subject import Kind, Subject

SOUND = "np.multiply(self, other, out=out)"
ADD = "np.add(self, other * out.dtype.type(alpha), out=out)\n\n\n"


def swept(entry: str, dtype: str) -> Cell:
    return sweep([Subject(Kind.KERNELS, "calc")], entry, dtype)["calc"]


@pytest.mark.parametrize("dtype", ["int8", "int64", "float16", "float32", "complex64"])
def test_a_sound_kernel_is_equal(dtype: str, install: Install) -> None:
    install()
    cell = swept("mul", dtype)
    assert cell.outcome == "equal" and cell.compared > 10
    assert not list(breaches(Claims(), "mul", dtype, cell))


@pytest.mark.parametrize(
    ("dtype", "line", "kind"),
    [
        ("int32", "np.multiply(np.float32(self), other, out=out, casting='unsafe')", "integer"),
        ("float32", "np.multiply(self, other, out=out); out[np.isnan(out)] = 0", "NaN"),
        *(
            pytest.param(*case, marks=pytest.mark.models)
            for case in (
                (
                    "float32",
                    "np.multiply(self, other, out=out); np.nan_to_num(out, copy=False, nan=np.nan)",
                    "infinity",
                ),
                ("float32", "np.multiply(self, other * 1.0001, out=out)", "value"),
                ("float32", "np.multiply(self, other, out=out); out[np.abs(out) < 1e-38] = 0", "denormal"),
                ("float32", "np.multiply(self, other, out=out); out += out.dtype.type(0)", "sign of zero"),
            )
        ),
        ("int64", "raise ValueError('no')", "failed"),
    ],
)
def test_a_line_that_is_another_shows(dtype: str, line: str, kind: str, install: Install) -> None:
    install(kernels=(SOUND, line))
    cell = swept("mul", dtype)
    assert cell.outcome == "deviates" and kind in cell.deviations
    assert any(
        told.startswith(f"mul of {dtype} deviates in {kind}: ") for told in breaches(Claims(), "mul", dtype, cell)
    )


def test_what_is_not_taken_is_declined_with_a_reason(install: Install) -> None:
    install()
    cell = swept("exp", "float32")
    assert cell.outcome == "declined" and "calc has no kernel of it" in cell.declined[0]


def test_what_is_drawn_is_left_open(install: Install) -> None:
    install()
    assert swept("nn.functional.dropout", "float32").open == "drawn at random"


ONE_ZERO = {"kind": "sign of zero", "reason": "it has one zero", "operators": {"mul": ["float32"]}}


def test_a_deviation_with_a_reason_is_none_until_it_is_gone(install: Install) -> None:
    claims = Claims.from_mapping({"deviations": [ONE_ZERO]})
    assert Claims.from_mapping(claims.to_mapping()) == claims
    install(kernels=(SOUND, "np.multiply(self, other, out=out); out += out.dtype.type(0)"))
    assert not list(breaches(claims, "mul", "float32", swept("mul", "float32")))
    (told,) = breaches(claims, "mul", "float32", Cell(compared=1))
    assert told == "mul of float32 no longer deviates in sign of zero: take it out of the claims"
    elsewhere = Claims.from_mapping({"deviations": [{**ONE_ZERO, "everywhere": False}]})
    assert not list(breaches(elsewhere, "mul", "float32", Cell(compared=1)))


@pytest.mark.parametrize("kind", ["integer", "NaN", "failed"])
def test_integers_and_nan_have_no_excuse(kind: str) -> None:
    with pytest.raises(ClaimsError, match=f"no kind of deviation that may have a reason '{kind}'"):
        Claims.from_mapping({"deviations": [{**ONE_ZERO, "kind": kind}]})


def test_a_deviation_without_a_reason_is_refused() -> None:
    with pytest.raises(ClaimsError, match="a deviation in sign of zero has no reason"):
        Claims.from_mapping({"deviations": [{**ONE_ZERO, "reason": " "}]})


FINITE = Claims.from_mapping({"finite_only": "its compiler assumes that there is no NaN"})


def test_a_device_may_be_held_to_finite_numbers(install: Install) -> None:
    install(kernels=(SOUND, "np.multiply(self, other, out=out); np.nan_to_num(out, copy=False)"))
    assert {"NaN", "infinity"} <= swept("mul", "float32").deviations.keys()
    cell = sweep([Subject(Kind.KERNELS, "calc", FINITE)], "mul", "float32")["calc"]
    assert cell.outcome == "equal" and cell.compared > 10
    text = "\n".join(report({"calc": (FINITE, {("mul", "float32"): cell})}))
    assert "operands alone are compared: its compiler assumes that there is no NaN." in text


def test_a_device_may_compute_in_a_dtype_of_fewer_numbers(install: Install) -> None:
    half = "self, other = (np.asarray(x, np.float16).astype(np.float32) for x in (self, other))"
    install(kernels=(SOUND, f"{half}; np.multiply(self, other, out=out)"))
    assert "value" in sweep([Subject(Kind.KERNELS, "calc", FINITE)], "mul", "float32")["calc"].deviations
    halves = replace(FINITE, computes_in="float16")
    assert sweep([Subject(Kind.KERNELS, "calc", halves)], "mul", "float32")["calc"].outcome == "equal"
    with pytest.raises(ClaimsError, match="no dtype that a device computes in 'half'"):
        replace(FINITE, computes_in="half")


def test_a_device_of_finite_numbers_is_held_to_those(install: Install) -> None:
    install(kernels=(SOUND, "np.multiply(self, other * 1.0001, out=out)"))
    assert "value" in sweep([Subject(Kind.KERNELS, "calc", FINITE)], "mul", "float32")["calc"].deviations


@pytest.mark.parametrize("dtype", DTYPES)
def test_dangerous_values_are_among_the_edges(dtype: str) -> None:
    edges = edge_values(getattr(torch, dtype))
    assert edges.dtype == getattr(torch, dtype)
    if not edges.is_complex():
        assert {str(v) for v in dangerous_values(edges.dtype).tolist()} <= {str(v) for v in edges.tolist()}


@pytest.mark.parametrize(("dtype", "like"), [("complex64", "float32"), ("complex128", "float64")])
def test_numbers_beside_complex_tensors_are_those_beside_their_parts(dtype: str, like: str) -> None:
    numbers, reals = (edge_numbers(getattr(torch, name)) for name in (dtype, like))
    assert [repr(number) for number in numbers] == [repr(number) for number in reals]
    assert numbers[-1] == math.ulp(0.0) if like == "float64" else numbers[-1] == 2.0**-149


def test_quotients_that_torch_leaves_open_are_replaced() -> None:
    a, b = torch.tensor([5, -(2**31), 3], dtype=torch.int32), torch.tensor([0, -1, 2], dtype=torch.int32)
    assert [t.tolist() for t in defined("floor_divide", (a, b))] == [a.tolist(), [1, 1, 2]]


@pytest.mark.filterwarnings("ignore::delegraph_testkit.claims.ClaimsWarning")
def test_the_command(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(kernels=(SOUND, "np.multiply(self, other, out=out); out += out.dtype.type(0)"))
    assert main(["kernels:calc", "--only", "__rmul__", "--dtypes", "int32"]) == 0
    assert "| kernels calc | 1 | 0 | 0 | 1 |" in capsys.readouterr().out
    assert main(["kernels:calc", "--only", "__rmul__", "--dtypes", "float32"]) == 1
    assert "__rmul__ of float32 deviates in sign of zero" in capsys.readouterr().err
    assert main(["clac"]) == 2
