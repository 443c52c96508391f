"""The HTML that notebooks show of reports, programs, plans and quantized models: nothing of a file is markup in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import delegraph
from delegraph import QuantizedModel, notebook
from delegraph.aot import LayerQuantization, MethodQuantization, QuantizationReport
from delegraph.errors import InvalidArgument, LoweringError
from delegraph.program import memory_map
from delegraph.program.schema import (
    AllocationDetails,
    BackendDelegate,
    Chain,
    DelegateCall,
    ExecutionPlan,
    ExtraTensorInfo,
    KernelCall,
    Operator,
    Program,
    ScalarType,
    Tensor,
)
from delegraph.tables import Table


class Scaled(torch.nn.Module):
    """A model of one argument."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.fixture(scope="module")
def lowered() -> Any:
    return delegraph.lower(Scaled().eval(), (torch.ones(4, 3),))


def test_a_report_as_html(lowered: Any) -> None:
    shown = lowered.report._repr_html_()
    assert shown.startswith("<p>forward: 0 nodes in 0 delegates, 1 node left to kernels</p><table>")
    assert "<th>operator</th>" in shown
    assert '<td style="text-align: left">aten::mul' in shown


def test_what_a_stranger_named_is_escaped() -> None:
    html = notebook.table(Table("<b>", ("name", "size"), [("<script>", "1\x1b")], frozenset({"size"})))
    assert "<caption>&lt;b&gt;</caption>" in html
    assert (
        '<td style="text-align: left">&lt;script&gt;</td><td style="text-align: right">&#x27;1\\x1b&#x27;</td>' in html
    )


def test_programs_are_shown_alike_before_and_after_they_are_saved(lowered: Any) -> None:
    """A table of what goes in and out, one of calls, and the drawing of the memory, which is styled by itself."""
    run = delegraph.load(bytes(lowered))
    shown = lowered.program._repr_html_()
    assert [shown_object._repr_html_() for shown_object in (run, run.program)] == [shown, shown]
    of_method = run.metadata._repr_html_()
    assert of_method in shown
    assert [shown_object._repr_html_() for shown_object in (run["forward"], run["forward"].method)] == [of_method] * 2
    assert "<caption>method forward</caption>" in of_method
    assert [re.sub("<[^>]*>", " ", row).split() for row in of_method.split("<tr>")[2:4]] == [
        ["input", "0", "x", "float32", "[4,", "3]", "48"],
        ["output", "0", "float32", "[4,", "3]", "48"],
    ]
    assert "aten::mul." in of_method and '<svg xmlns="http://www.w3.org/2000/svg" class="memory-plan"' in of_method
    assert all(rule.strip().startswith((".memory-plan", "@media", "}")) for rule in _rules(of_method))
    assert lowered._repr_html_().endswith(f"<details><summary>program</summary>{shown}</details>")
    assert lowered.edge._repr_html_() == lowered.edge.report._repr_html_()


def _rules(html: str) -> list[str]:
    return html.partition("<style>\n")[2].partition("\n</style>")[0].splitlines()


EVIL = "</td></title></style><script>x</script>\x1b"


def test_names_of_a_program_reach_no_page_as_markup() -> None:
    state = Tensor(
        ScalarType.FLOAT,
        (4,),
        (0,),
        allocation_info=AllocationDetails(1, 0),
        extra_tensor_info=ExtraTensorInfo(fully_qualified_name=EVIL),
    )
    calls = (Chain((KernelCall(0, (0, 0)), DelegateCall(0, (0, 0)))),)
    delegates = (BackendDelegate(EVIL, 0, ()),)
    plan = ExecutionPlan(EVIL, (state,), (0,), (0,), calls, (Operator(EVIL, EVIL),), delegates, (0, 16))
    shown = plan._repr_html_() + Program((plan,), delegate_data=(b"",))._repr_html_()
    assert "script&gt;" in shown and "<script" not in shown and "\x1b" not in shown
    assert [part for part in re.findall("</?[a-z]+", shown) if part.strip("</") not in HTML] == []


HTML = {"table", "caption", "thead", "tbody", "tr", "th", "td", "p", "details", "summary", "svg", "style"} | {
    *("text", "rect", "title", "path"),
}


def test_a_plan_with_many_tensors_is_not_drawn_in_a_page() -> None:
    values = tuple(Tensor(ScalarType.FLOAT, (4,), (0,), allocation_info=AllocationDetails(1, 16 * i)) for i in range(3))
    chain = Chain((KernelCall(0, (0, 1)), KernelCall(0, (1, 2))))
    told = memory_map(ExecutionPlan("f", values, (0,), (2,), (chain,), (Operator("aten::neg", "out"),), (), (0, 48)))
    many = replace(told, tensors=told.tensors * 1000)
    assert "<svg" in told._repr_html_() and "planned bytes" in told._repr_html_()
    assert "<p>3,000 tensors are too many to be drawn here</p>" in many._repr_html_()
    assert len(many._repr_html_()) < 1000


def test_a_quantization_report_as_html() -> None:
    layer = LayerQuantization("n", "linear", "fc", "int8", -1.0, 1.0, 12.5, 12.0, 100, 400)
    shown = QuantizationReport({"forward": MethodQuantization((layer,), 12.0, (), 100, 400)})._repr_html_()
    assert "<td" in shown and "fc" in shown


def test_a_quantized_model_as_html() -> None:
    layer = LayerQuantization("n", "linear", "<fc>", "int8", -1.0, 1.0, 12.5, 12.0, 100, 400)
    report = QuantizationReport({"forward": MethodQuantization((layer,), 12.0, (), 100, 400)})
    model = QuantizedModel({}, report)
    shown = model._repr_html_()
    assert shown.startswith(report._repr_html_()) and "<fc>" not in shown
    assert "<details><summary>signal to noise, drawn</summary><svg" in shown
    assert repr(report) == "QuantizationReport(forward: 12.0 dB in the end; constants 100 bytes, 25% of float)"


CELL = """
import delegraph, torch
def mine():
    delegraph.load(bytes(delegraph.lower(torch.nn.Tanh(), (torch.ones(2),))))(torch.ones(3))
mine()
"""


BRANCHING = """
import delegraph, torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x
delegraph.lower(Model(), torch.ones(2))
"""


def test_a_traceback_has_the_cell_s_own_frames_alone() -> None:
    with pytest.raises(InvalidArgument) as caught:
        exec(compile(CELL, "cell", "exec"), {})
    lines = caught.value._render_traceback_()
    ours = [line for line in lines if str(Path(delegraph.__file__).parent) in line]
    assert (lines[0], ours) == ("Traceback (most recent call last):", [])
    assert lines[-3:-1] == ['  File "cell", line 5, in <module>', '  File "cell", line 4, in mine']
    assert lines[-1].startswith("delegraph.errors.InvalidArgument: method 'forward', input: expected float32[2]")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An IPython shell, which is gone afterwards: while it is there, other tests are in a notebook."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)  # of another environment, which IPython would warn of
    module = pytest.importorskip("IPython.core.interactiveshell", reason="needs ipython, of requirements-dev.txt")
    yield module.InteractiveShell.instance()
    module.InteractiveShell.clear_instance()


def test_ipython_asks_for_it(shell: Any) -> None:
    shown: list[str] = []
    shell._showtraceback = lambda kind, value, lines: shown.extend(lines)
    shell.run_cell(CELL)
    text = "\n".join(shown)
    assert "in mine" in text and "expected float32[2], got shape [3]" in text
    assert "delegraph/runtime" not in text and "During handling" not in text
    shown.clear()
    shell.run_cell(BRANCHING)
    assert re.search(r"\n  at: <ipython-input-.*>:4, in forward: return x if x.sum\(\) > 0 else -x", "\n".join(shown))


def test_an_exception_that_nobody_raised() -> None:
    assert LoweringError("why", node="add")._render_traceback_() == [
        "delegraph.errors.LoweringError: why\n  node: add",
    ]
