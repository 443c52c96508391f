"""Passes by name: `transform_passes` and its cousins reach the plug-ins of `delegraph.passes`."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import GraphModule

import delegraph
from delegraph.aot.config import EdgeCompileConfig, ExecutorchBackendConfig, LoweringConfig
from delegraph.aot.lower import to_edge
from delegraph.cli import main
from delegraph.errors import LoweringError, PluginNotFound, UnknownOption
from delegraph.plugins import PluginRegistry

aten = torch.ops.aten
ONE = (torch.ones(2, 2),)


class Scale:
    """Makes every multiplication one by `factor`."""

    def __init__(self, *, factor: float = 2.0) -> None:
        self.factor = factor

    def __call__(self, module: GraphModule) -> None:
        for node in module.graph.find_nodes(op="call_function", target=aten.mul.Scalar):
            node.args = (node.args[0], self.factor)


class Times3(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return aten.mul.Scalar(x, 3.0)


class Gram(nn.Module):
    """Has a product of weights that can be computed ahead of time."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Buffer(torch.ones(2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight @ self.weight


@pytest.fixture
def plugins() -> PluginRegistry:
    registry = PluginRegistry.discover()
    registry.register("passes", "scale", Scale)
    return registry


KEPT = EdgeCompileConfig(preserve_ops=(aten.mul.Scalar,))
UNCHECKED = ExecutorchBackendConfig(check_kernels=False)


@pytest.mark.parametrize(
    ("passes", "factor"),
    [
        (["scale"], 2.0),
        (["scale{factor=5.0}"], 5.0),
        ([("scale", {"factor": 7.0})], 7.0),
        ([Scale(factor=9.0)], 9.0),
        ({"forward": ["scale{factor=5.0}", "scale"]}, 2.0),
    ],
    ids=["name", "text", "pair", "object", "by method"],
)
def test_a_pass_by_name_with_its_options(passes: Any, factor: float, plugins: PluginRegistry) -> None:
    config = LoweringConfig(edge=KEPT, executorch=UNCHECKED, transform_passes=passes)
    lowered = delegraph.lower(Times3(), ONE, config=config, plugins=plugins)
    (result,) = lowered.edge.exported_program().module()(*ONE).unique()  # type: ignore[operator]
    assert result == factor


@pytest.mark.parametrize(
    ("passes", "kind", "message"),
    [
        ([("scale", {"facto": 2.0})], UnknownOption, r"pass 'scale' has no option 'facto'.*did you mean 'factor'"),
        (["constant_folding{bytes=1}"], UnknownOption, r"pass 'constant_folding' has no option.* 'bytes'"),
        (["constant_foldin"], PluginNotFound, "did you mean 'constant_folding'"),
        ("scale", LoweringError, r"transform_passes is 'scale', but it takes a list: write \['scale'\]"),
        ([3], LoweringError, r"transform_passes has 3; it takes names of installed passes, \(name, options\) pairs"),
        ({"forwad": ["scale"]}, LoweringError, "an entry for 'forwad'.*did you mean 'forward'"),
    ],
    ids=["option", "no options", "name", "string", "object", "method"],
)
def test_refused(passes: Any, kind: type[Exception], message: str, plugins: PluginRegistry) -> None:
    with pytest.raises(kind, match=message):
        delegraph.lower(Times3(), ONE, config=LoweringConfig(transform_passes=passes), plugins=plugins)


def test_constant_folding_runs_where_it_is_named() -> None:
    def products(passes: list[str]) -> int:
        exported = torch.export.export(Gram(), ONE)
        graph = to_edge(exported).transform(passes).exported_program().graph
        return len(graph.find_nodes(op="call_function", target=aten.mm.default))

    assert (products([]), products(["constant_folding"])) == (1, 0)
    config = LoweringConfig(transform_passes=["constant_folding"])
    run = delegraph.load(bytes(delegraph.lower(Gram(), ONE, config=config)))
    assert run(ONE[0].numpy()).tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_constant_folding_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "list", "--json", "--group", "passes"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["distribution"], row["state"]) for row in rows] == [
        ("constant_folding", "delegraph", "ok")
    ]


# ---- passes of other packages ----------------------------------------------------------------------


def _of_a_stranger(module: GraphModule) -> None:
    for node in module.graph.find_nodes(op="call_function", target=aten.mul.Scalar):
        node.args = (node.args[0], node.args[1] + 1.0)


class OfAStranger(Scale):
    """Derived from a stranger's class, in a package of one's own."""


def test_a_pass_of_another_package_is_adapted_by_that_packages_adapter(
    plugins: PluginRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_of_a_stranger, "__module__", "stranger.passes")
    monkeypatch.setattr(Scale, "__module__", "stranger.passes")
    plugins.register("pass_adapters", "stranger", _twice)
    edge = to_edge(torch.export.export(Times3(), ONE), compile_config=KEPT, plugins=plugins)
    assert _factors(edge.transform([_of_a_stranger])) == [5.0]
    assert _factors(edge.transform({"forward": [OfAStranger(factor=8.0)]})) == [16.0]


def _twice(one: Any) -> Any:
    """The adapter: a function runs twice, a `Scale` with twice its factor."""

    def adapted(module: GraphModule) -> None:
        if isinstance(one, Scale):
            Scale(factor=one.factor * 2)(module)
        else:
            one(module)
            one(module)

    return adapted


def _factors(edge: Any) -> list[float]:
    nodes = edge.exported_program().graph.find_nodes(op="call_function", target=aten.mul.Scalar)
    return [node.args[1] for node in nodes]
