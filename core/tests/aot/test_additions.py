"""Stages and dialect rules of plug-ins: used where they are named, at their place, and blamed by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import export

import delegraph
from delegraph.aot import (
    EDGE,
    EdgeCompileConfig,
    Lowering,
    LoweringConfig,
    copy_program,
    exir_ops,
    to_edge,
    to_edge_transform_and_lower,
)
from delegraph.aot.pipeline import ALL
from delegraph.errors import (
    DelegraphError,
    LoweringError,
    PluginLoadError,
    PluginNotFound,
    UnknownOption,
    VerificationError,
)
from delegraph.interfaces import DialectRule, PipelineStage
from delegraph.plugins.registry import PluginRegistry

aten = exir_ops.edge.aten
X = torch.randn(2, 4)


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu() + x.sigmoid()


class TanhForRelu(PipelineStage[Lowering]):
    """Edits copies, for what flows is not changed."""

    ensured_dialect = EDGE

    def __init__(self, after: str = "", before: str = "") -> None:
        self.after, self.before = after, before

    def run(self, lowering: Lowering) -> Lowering:
        programs = {name: copy_program(program) for name, program in lowering.programs.items()}
        for program in programs.values():
            for node in program.graph.find_nodes(op="call_function", target=aten.relu.default):
                node.target = aten.tanh.default
        return lowering.with_programs(programs)


class Nothing(PipelineStage[Lowering]):
    """Has a place, and gives what it is told to."""

    def __init__(self, after: str = "", before: str = "", gives: Any = None) -> None:
        self.after, self.before, self.gives = after, before, gives

    def run(self, lowering: Lowering) -> Lowering:
        if isinstance(self.gives, Exception):
            raise self.gives
        return lowering if self.gives is None else self.gives


class No(DialectRule):
    """There is no such operator."""

    def __init__(self, operator: str, dialect: str = "edge") -> None:
        self.operator, self.dialect = operator, dialect

    def check(self, node: Any, kept: Any) -> str | None:
        if self.operator == "raises":
            raise ZeroDivisionError("division by zero")
        if self.operator == "false":
            return False  # type: ignore[return-value]
        return f"{node.target} is there" if self.operator in str(node.target) else None


@pytest.fixture
def plugins() -> PluginRegistry:
    registry = PluginRegistry.discover()
    registry.register("stages", "tanh", lambda *, after="edge", before="": TanhForRelu(after, before))
    registry.register("stages", "nothing", lambda *, after="", before="": Nothing(after, before))
    registry.register("stages", "wrong", object)
    registry.register("dialect_rules", "no", lambda *, operator="relu", dialect="edge": No(operator, dialect))
    return registry


def lowered(plugins: PluginRegistry, *stages: Any, rules: Any = (), **options: Any) -> Any:
    config = LoweringConfig(EdgeCompileConfig(dialect_rules=rules), stages=stages)
    return delegraph.lower(Net(), (X,), config=config, plugins=plugins, **options)


class Watcher:
    """Remembers the stages."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def started(self, stage: Any, methods: Any, lowering: Any, remaining: Any) -> None:
        self.told.append(stage.name)

    def done(self, stage: Any, methods: Any, lowering: Any, seconds: float) -> None:
        pass


# ---- stages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["after=edge", "before=transform", "before=passes", "after=kernels"])
def test_a_stage_changes_what_flows(place: str, plugins: PluginRegistry) -> None:
    given = f"tanh{{{place}}}" if place.startswith("after") else f"tanh{{after='',{place}}}"
    made = lowered(plugins, given)
    expected = X.tanh() + X.sigmoid()
    np.testing.assert_allclose(delegraph.load(bytes(made))(X.numpy()), expected, rtol=1e-6, atol=1e-6)  # terms near 1
    nodes = [node.target for node in made.edge.exported_program().graph.nodes]
    assert (aten.tanh.default in nodes) == (place != "before=passes")


def test_none_runs_that_was_not_named(plugins: PluginRegistry) -> None:
    np.testing.assert_allclose(delegraph.load(bytes(lowered(plugins)))(X.numpy()), X.relu() + X.sigmoid(), rtol=1e-6)


def test_each_stands_at_its_place_in_the_order_in_which_they_are_named(plugins: PluginRegistry) -> None:
    watcher = Watcher()
    names = [stage.name for stage in ALL]
    lowered(
        plugins, "nothing{after=edge}", Nothing(after="edge"), "nothing{before=plan}", "nothing{after='nothing (2)'}",
        progress=watcher,
    )  # fmt: skip
    edge, plan = names.index("edge") + 1, names.index("plan")
    added = ["nothing", "Nothing"], ["nothing (2)", "nothing (3)"]
    assert watcher.told == [*names[:edge], *added[0], *names[edge:plan], *added[1], *names[plan:]]


def test_its_programs_are_dumped(plugins: PluginRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGRAPH_DUMP", "tanh")
    monkeypatch.setenv("DELEGRAPH_DUMP_DIR", str(tmp_path))
    lowered(plugins, "tanh")
    before, after = ((tmp_path / f"tanh.forward.{when}.txt").read_text() for when in ("before", "after"))
    assert "aten.relu.default" in before and "aten.tanh.default" in after and "aten.relu.default" not in after
    with pytest.raises(LoweringError, match="DELEGRAPH_DUMP names no stage 'tanh'"):
        lowered(plugins)


def test_a_bar_has_it(plugins: PluginRegistry, capsys: pytest.CaptureFixture[str]) -> None:
    lowered(plugins, "nothing{after=assemble}", progress=True)
    assert "nothing" in capsys.readouterr().err


class ForgetsValues(TanhForRelu):
    """As somebody who made a node and did not say what it gives."""

    def run(self, lowering: Lowering) -> Lowering:
        done = super().run(lowering)
        for program in done.programs.values():
            del next(iter(program.graph.find_nodes(op="call_function", target=aten.tanh.default))).meta["val"]
        return done


def test_what_it_leaves_has_to_be_in_its_dialect(plugins: PluginRegistry) -> None:
    with pytest.raises(VerificationError, match=r"relu_default: has no meta.* \[rule: every value is known\]"):
        lowered(plugins, ForgetsValues(after="kernels"))


@pytest.mark.parametrize(
    ("stage", "kind", "message"),
    [
        ("tahn", PluginNotFound, "did you mean 'tanh'"),
        ("tanh{place=edge}", UnknownOption, "stage 'tanh' has no option 'place'; it has after, before"),
        ("wrong", PluginLoadError, r"it has no run\(lowering\); derive from delegraph.interfaces.PipelineStage"),
        (3, LoweringError, "stages has 3; it takes names of installed stages"),
        ("nothing", LoweringError, "stage nothing of in-process: its place is after='', before=''; it says one of"),
        ("nothing{after=edge,before=edge}", LoweringError, "its place is after='edge', before='edge'"),
        ("nothing{after=egde}", LoweringError, "a stage among settings, .*did you mean 'edge'"),
        (Nothing(after="plan", gives=ValueError("no")), LoweringError, "stage Nothing failed: ValueError: no"),
        (Nothing(after="plan", gives=3), LoweringError, "stage Nothing returned int; a stage returns a Lowering"),
    ],
)
def test_stages_that_are_refused(stage: Any, kind: type[DelegraphError], message: str, plugins: PluginRegistry) -> None:
    with pytest.raises(kind, match=message):
        lowered(plugins, stage)


def test_a_stage_of_the_core_keeps_its_name(plugins: PluginRegistry) -> None:
    plugins.register("stages", "edge", lambda: Nothing(after="edge"))
    with pytest.raises(LoweringError, match="stage edge of in-process: there is a stage of this name already"):
        lowered(plugins, "edge")


# ---- rules -------------------------------------------------------------------------------------------------------


def test_a_rule_names_the_node_the_line_and_its_plugin(plugins: PluginRegistry) -> None:
    with pytest.raises(VerificationError) as caught:
        lowered(plugins, rules=["no{operator=sigmoid}"])
    told = str(caught.value)
    assert "not in the edge dialect" in told and "sigmoid_default: aten.sigmoid.default is there" in told
    assert "[rule: dialect rule no of in-process]" in told and "test_additions.py" in told


def test_a_rule_holds_in_its_dialect_and_those_behind_it(plugins: PluginRegistry) -> None:
    lowered(plugins, rules=["no{operator=aten.tanh}"])
    for dialect, said in (("ATen", "ATen"), ("functional ATen", "functional ATen"), ("core ATen", "edge")):
        rule = ("no", {"operator": "aten.relu", "dialect": dialect})
        with pytest.raises(VerificationError, match=f"not in the {said} dialect"):
            lowered(plugins, rules=[rule])


def test_every_api_asks_it(plugins: PluginRegistry) -> None:
    program, config = export(Net(), (X,)), EdgeCompileConfig(dialect_rules=[No("aten.tanh")])
    for manager in (
        to_edge(program, compile_config=config, plugins=plugins),
        to_edge_transform_and_lower(program, compile_config=config, plugins=plugins),
    ):
        with pytest.raises(VerificationError, match="dialect rule No"):
            manager.transform([relu_is_tanh])
        manager.transform([relu_is_tanh], EdgeCompileConfig())
    with pytest.raises(VerificationError, match="dialect rule No"):
        to_edge(program, plugins=plugins).transform([relu_is_tanh], config)
    unchecked = replace(config, _check_ir_validity=False)
    to_edge(program, compile_config=unchecked, plugins=plugins).transform([relu_is_tanh])


def relu_is_tanh(module: torch.fx.GraphModule) -> None:
    for node in module.graph.find_nodes(op="call_function", target=aten.relu.default):
        node.target = aten.tanh.default


@pytest.mark.parametrize(
    ("rule", "kind", "message"),
    [
        ("non", PluginNotFound, "did you mean 'no'"),
        ("no{dialect=egde}", LoweringError, "dialect rule no of in-process: there is no dialect 'egde'; the dialects"),
        (No("raises"), LoweringError, "dialect rule No, at x, failed: ZeroDivisionError: division by zero"),
        (No("false"), LoweringError, "dialect rule No returned False; a rule returns None, or what is wrong"),
        (3, LoweringError, "dialect_rules has 3; it takes names of installed dialect_rules"),
    ],
)
def test_rules_that_are_refused(rule: Any, kind: type[DelegraphError], message: str, plugins: PluginRegistry) -> None:
    with pytest.raises(kind, match=message):
        lowered(plugins, rules=[rule])
