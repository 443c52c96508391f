"""A sound pass passes; each check of passes catches what it is there for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delegraph_testkit.outcomes import Outcome
from delegraph_testkit.subject import Kind

Install = Callable[..., Any]
pytestmark = pytest.mark.conformance

META = "            clamp.meta.update(node.meta)\n"
CALLS = "        for node in calls:\n"
MADE = "    return ReluIsClamp(least)\n"

PASSES = [
    ("loads/loads_with_torch", (MADE, "    return ReluIsClamp()\n"), "its factory raised TypeError"),
    ("loads/a_pass_is_made", (MADE, "    ReluIsClamp(least)\n"), "its factory made None, which cannot be called"),
    ("loads/unknown_options_are_refused", ("least: float = 0.0", "least: float = 0.0, **o"), "is taken without a word"),
    ("contract/numbers_are_kept", ("least: float = 0.0", "least: float = 0.5"), "elements are wrong"),
    (
        "contract/values_are_described",
        (META, f"{META}            clamp.meta['val'] = node.meta['val'][:1]\n"),
        "gives torch.float32 (3, 8), and its meta['val'] says torch.float32 (1, 8)",
    ),
    ("contract/values_are_described", (META, ""), "cannot be lowered: VerificationError"),
    (
        "contract/origins_are_kept",
        (META, "            clamp.meta['val'] = node.meta['val']\n"),
        "has no debug handle and no stack trace of the program before",
    ),
    (
        "contract/the_model_is_left_alone",
        (CALLS, f"        for w in exported_program.state_dict.values():\n            w.data.mul_(0.5)\n{CALLS}"),
        "the pass changed the program that it got a copy of",
    ),
    (
        "contract/transforming_is_repeatable",
        ("self.least))\n", "-__import__('random').random()))\n"),
        "is two different programs",
    ),
    ("contract/changes_are_told", ("bool(calls)", "False"), "the pass says modified=False, and has changed the graph"),
    (
        "contract/running_it_again_ends",
        (CALLS, f"        if not calls:\n            raise ValueError('no relu here')\n{CALLS}"),
        "no relu here",
    ),
    ("models/residual", ("least: float = 0.0", "least: float = 0.5"), "elements are wrong"),
]


@pytest.mark.parametrize(("check", "change", "message"), PASSES)
def test_a_fault_of_a_pass(install: Install, check: str, change: tuple[str, str], message: str) -> None:
    result = install(**{"pass": change}).result(check, Kind.PASS, programs_of(check))
    assert result.outcome is Outcome.FAILED
    assert message in result.detail


@pytest.mark.parametrize("check", sorted({check for check, _, _ in PASSES}))
def test_a_sound_pass(install: Install, check: str) -> None:
    result = install().result(check, Kind.PASS, programs_of(check))
    assert (result.outcome, result.detail) == (Outcome.PASSED, "")


def programs_of(check: str) -> tuple[str, ...] | None:
    """The models that show it: one of weights, and one of two dims."""
    if check == "contract/the_model_is_left_alone":
        return ("perceptron",)
    return ("arithmetic",) if check.startswith("contract/") else None


def test_a_pass_that_never_ends_is_told(install: Install) -> None:
    lowers = (
        f"        for node in graph.find_nodes(op='call_function', target=aten.clamp.default):\n"
        f"            node.args = (node.args[0], node.args[1] - 1)\n{CALLS}"
    )
    result = install(**{"pass": (CALLS, lowers)}).result("contract/running_it_again_ends", Kind.PASS, ("arithmetic",))
    assert result.outcome is Outcome.DECLINED
    assert "it still changes what it has made after 8 runs" in result.detail


def test_a_pass_that_changes_nothing_of_what_is_tried(install: Install) -> None:
    """It names a model of its own in its claims."""
    nothing = install(**{"pass": ("aten.relu", "aten.erf")})
    result = nothing.result("contract/numbers_are_kept", Kind.PASS, ("arithmetic", "perceptron"))
    assert result.outcome is Outcome.FAILED
    assert "it takes nothing of the kit's programs" in result.detail
    assert nothing.result("models/residual", Kind.PASS).outcome is Outcome.DECLINED
