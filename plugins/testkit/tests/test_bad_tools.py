"""A sound tool passes; each check of tools catches what it is there for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from plugins.testkit.tests.conftest import TOOL

from delegraph_testkit.outcomes import Outcome
from delegraph_testkit.subject import Kind

Install = Callable[..., Any]
pytestmark = pytest.mark.conformance

EXECUTES = '        result = yield\n        self.counts["execute", plugin.name] += 1\n        return result\n'
COMPILES = '        result = yield\n        self.counts["preprocess", plugin.name] += 1\n        return result\n'
COUNTS_INIT = '        self.counts["init", plugin.name] += 1\n'
SWALLOWS = "        try:\n            return (yield)\n        except Exception:\n            return None\n"

TOOLS = [
    ("loads/loads_with_torch", ("self, stage)", "self, stages)"), "its signature is lowering_stage_done(stages)"),
    ("loads/loads_with_torch", (EXECUTES, "        return None\n"), "its wrapper execute() never yields"),
    (
        "loads/hooks_are_marked",
        ("    @hookimpl\n    def method_loaded", "    def method_loaded"),
        "nobody calls method_loaded: mark it",
    ),
    (
        "contract/programs_are_the_same",
        (COMPILES, "        result = yield\n        result.processed_bytes += b' '\n        return result\n"),
        "is another file where the tool is on",
    ),
    (
        "contract/errors_of_lowering_are_passed_on",
        (COMPILES, SWALLOWS.replace("return None", "raise OSError('no disk')")),
        "no disk",
    ),
    (
        "contract/lowering_is_watched_without_a_warning",
        ('self.counts["lowered", stage]', "self.stages[stage]"),
        "raised at lowering_stage_done: AttributeError",
    ),
    (
        "contract/results_are_the_same",
        (EXECUTES, "        result = yield\n        args[-1][...] = 0\n        return result\n"),
        "call 0 gives other results where the tool is on",
    ),
    ("contract/errors_are_passed_on", (EXECUTES, SWALLOWS), "raises nothing where the tool is on, and "),
    (
        "contract/loading_is_watched_without_a_warning",
        ('self.counts["loaded"]', "self.loaded"),
        "raised at method_loaded: AttributeError",
    ),
    (
        "contract/sessions_are_independent",
        (COUNTS_INIT, f"        assert not self.counts['init', plugin.name], 'a second one'\n{COUNTS_INIT}"),
        "a second one",
    ),
    (
        "contract/threads_are_independent",
        (
            EXECUTES,
            "        assert not self.counts['running'], 'two at a time'\n        self.counts['running'] = 1\n"
            "        __import__('time').sleep(1e-3)\n        result = yield\n        self.counts['running'] = 0\n"
            "        return result\n",
        ),
        "two at a time",
    ),
    (
        "models/residual",
        (EXECUTES, "        result = yield\n        args[-1][...] = 0\n        return result\n"),
        "elements are wrong",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("check", "change", "message"), TOOLS)
def test_a_fault_of_a_tool(install: Install, check: str, change: tuple[str, str], message: str) -> None:
    result = install(tool=change, entry_points=TOOL).result(check, Kind.TOOL, programs_of(check))
    assert result.outcome is Outcome.FAILED
    assert message in result.detail


@pytest.mark.parametrize("check", sorted({check for check, _, _ in TOOLS}))
def test_a_sound_tool(install: Install, check: str) -> None:
    result = install(entry_points=TOOL).result(check, Kind.TOOL, programs_of(check))
    assert result.outcome is Outcome.PASSED


def programs_of(check: str) -> tuple[str, ...] | None:
    return ("perceptron",) if check.startswith("contract/") else None


def test_a_tool_that_needs_torch_is_found_out(install: Install) -> None:
    needs = ("from delegraph", "try:\n    import torch\nexcept ImportError:\n    pass\nfrom delegraph")
    result = install(tool=needs, entry_points=TOOL).isolated("loads/loads_without_torch", kind=Kind.TOOL)
    assert result.outcome is Outcome.FAILED
    assert "torch" in result.detail


def test_its_hooks_and_its_cost_are_told(install: Install) -> None:
    calc = install(entry_points=TOOL)
    told = calc.result("loads/hooks_are_marked", Kind.TOOL).detail
    assert told == "it wraps preprocess, init, execute, and watches lowering_stage_done, method_loaded"
    assert "us without the tool and in " in calc.result("models/cost_is_told", Kind.TOOL).detail


def test_of_all_tools_the_one_that_is_proven_is_on(install: Install) -> None:
    """calc's tool breaks whatever is run: others are proven without it, in processes of their own."""
    calc = install(tool=(EXECUTES, "        yield\n        raise OSError('in the way')\n"), entry_points=TOOL)
    assert calc.isolated("contract/prepared_calls_are_the_same").outcome is Outcome.PASSED
