"""The limits of what an IR may say: the last that is admitted, and the first that is not."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from delegraph.errors import DelegateInvalidCompatibility
from delegraph_openvino.ir.attributes import is_value
from delegraph_openvino.ir.operations import ARITIES
from delegraph_openvino.ir.reading import read_ir


def parts(bodies: int) -> str:
    """What is in a net or in a body: an If, in whose body is one, and so on, so many in all."""
    if not bodies:
        return "<layers /><edges /><rt_info />"
    inner = f"{parts(bodies - 1)}</then_body><then_port_map /><else_body>{parts(0)}</else_body><else_port_map />"
    return f"""<layers>
<layer id="0" name="c" type="Parameter" version="opset1"><data shape="" element_type="boolean" />
<output><port id="0" precision="BOOL" /></output></layer>
<layer id="1" name="i" type="If" version="opset8"><input><port id="0" precision="BOOL" /></input>
<output><port id="1" precision="BOOL" /></output><then_body>{inner}</layer></layers>
<edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0" /></edges><rt_info />"""


def read(content: str) -> None:
    read_ir(f'<?xml version="1.0"?><net name="n" version="11">{content}</net>'.encode(), 0)


@pytest.mark.parametrize(("bodies", "admitted"), [(15, True), (16, False)])
def test_bodies_in_bodies(bodies: int, admitted: bool) -> None:
    refused: Any = pytest.raises(DelegateInvalidCompatibility, match="its bodies nest too deep")
    with nullcontext() if admitted else refused:
        read(parts(bodies))


@pytest.mark.parametrize(("number", "told"), [("9" * 9, "leads back, or nowhere"), ("9" * 10, "and not a number")])
def test_numbers(number: str, told: str) -> None:
    with pytest.raises(DelegateInvalidCompatibility, match=told):
        read(parts(1).replace('to-layer="1"', f'to-layer="{number}"'))


@pytest.mark.parametrize(
    ("name", "kind", "least", "most"),
    [
        ("kernel", "ints", 1, 2**31 - 1),
        ("levels", "int", 2, 2**31 - 1),
        ("batch_dims", "int", 0, 2**31 - 1),
        ("pads_begin", "ints", -(2**31) + 1, 2**31 - 1),
        ("axis", "int", -64, 64),
        ("axes", "ints", -64, 64),
        ("begin_mask", "ints", 0, 1),
        ("seed", "int", -9_999_999_999, 9_999_999_999),  # of no range: ten digits
    ],
)
def test_attributes(name: str, kind: str, least: int, most: int) -> None:
    allowed = [is_value(name, kind, str(number)) for number in (least - 1, least, most, most + 1)]
    assert allowed == [False, True, True, False]


@pytest.mark.parametrize(("digits", "admitted"), [(19, True), (20, False)])
def test_sizes_of_a_shape(digits: int, admitted: bool) -> None:
    number = "1" * digits
    assert [is_value("shape", "shape", text) for text in (number, f"1..{number}", f"..{number}")] == [admitted] * 3


def test_as_many_inputs_and_outputs_as_there_are() -> None:
    assert ARITIES["If"] == ((1, 2**12), (1, 2**12))
