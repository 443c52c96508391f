"""The example plug-ins of each plug-in API go on working as they were written: nobody changes them or what they use."""

from __future__ import annotations

import hashlib
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import delegraph
from delegraph import ExecutorchBackendConfig, Lowered
from delegraph.errors import AccessFailed
from delegraph.interfaces import read_stamp
from delegraph.plugins import PLUGIN_API, Offer, PluginRegistry, use_registry
from delegraph.plugins.hookspecs import GROUPS
from delegraph.program import deserialize_program

HERE = Path(__file__).parent / "plugins"
EXAMPLES = {"api_v1": "26ad1d427b859a2259c32b75979d0d9af72d02308b73fb59ec16fb38f370e064"}
"""The folder of each version of the plug-in API, and the SHA-256 of what is in it."""

SINCE_1_0 = {"delegraph.stages", "delegraph.dialect_rules", "delegraph.pass_adapters"}
"""Groups that came with 1.1; `tests/plugins/acme_pipeline` has one of the first two."""


# ---- that they are as they were ------------------------------------------------------------------------


@pytest.mark.parametrize("folder", EXAMPLES)
def test_nobody_changes_them(folder: str) -> None:
    assert checksum(HERE / folder) == EXAMPLES[folder], (
        f"tests/plugins/{folder} was changed. Its plug-ins stand for those of strangers, who do not follow when the"
        " core changes: take that back, and change the core so that they go on working, or deprecate what they use"
        " (docs/plugin-api.md). What is new in the plug-in API is shown by a folder of the next version beside it."
    )


def checksum(folder: Path) -> str:
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix in (".py", ".toml", ".md"))
    digest = hashlib.sha256()
    for path in sorted(files, key=lambda path: path.relative_to(folder).as_posix()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def test_each_version_has_examples() -> None:
    major, _ = PLUGIN_API
    assert list(EXAMPLES) == [f"api_v{version}" for version in range(1, major + 1)]


# ---- that they work ------------------------------------------------------------------------------------


class Model(nn.Module):
    """Something for each: ApiV1 takes `+`, `*` and `tanh`, ApiV1Bare `neg`, `twice` has a kernel, `relu` is clamped."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from api_v1_examples.operators import twice

        result: torch.Tensor = twice(-torch.tanh(x + x) * x).relu()
        return result


@dataclass(frozen=True)
class Used:
    """The registry with the examples, and what came of lowering `Model` with all of them."""

    registry: PluginRegistry
    lowered: Lowered
    model: nn.Module
    x: torch.Tensor


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Used]:
    """The examples of version 1, found as installed ones are: by metadata on `sys.path`, as pip would write it."""
    site, source = tmp_path_factory.mktemp("site"), HERE / "api_v1"
    project = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))["project"]
    metadata = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n\n"
    )
    sections = (
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    )
    (metadata / "entry_points.txt").write_text("\n".join(sections))
    paths, modules = [str(site), str(source)], set(sys.modules)
    sys.path[:0] = paths
    try:
        registry = PluginRegistry.discover()
        with use_registry(registry):
            model, x = Model().eval(), torch.randn(3, 4)
            config = ExecutorchBackendConfig(memory_planner="api_v1", passes=["api_v1_clamp"])
            lowered = delegraph.lower(
                model, (x,), backends=["api_v1{scale=1.0}", "api_v1_bare{tag=mine}"], config=config
            )
            yield Used(registry, lowered, model, x)
    finally:
        for path in paths:
            sys.path.remove(path)
        for name in set(sys.modules) - modules:
            if name.startswith("api_v1_"):
                del sys.modules[name]


def own(used: Used, group: str | None = None) -> list[Offer]:
    return [offer for offer in used.registry.offers(group) if offer.distribution == "api-v1-examples"]


def test_there_is_one_of_each_kind_and_all_load(used: Used) -> None:
    """A warning of deprecation would be an error here: what is deprecated makes a filter of its own necessary."""
    assert {offer.group for offer in own(used)} == set(GROUPS) - SINCE_1_0
    for offer in own(used):
        assert used.registry.load(offer.group, offer.name) is not None


def test_a_model_is_lowered_with_all_of_them(used: Used) -> None:
    report = used.lowered.report.methods["forward"]
    assert [delegate.backend for delegate in report.delegates].count("ApiV1") == 3
    assert [delegate.backend for delegate in report.delegates].count("ApiV1Bare") == 1
    assert {left.operator for left in report.leftovers} >= {"api_v1::twice"}
    (plan,) = deserialize_program(bytes(used.lowered)).execution_plan
    operators = {f"{operator.name}.{operator.overload}" for operator in plan.operators}
    assert "aten::clamp.out" in operators and "aten::relu.out" not in operators
    stamps = {delegate.id: read_stamp(delegate.compile_specs) for delegate in plan.delegates}
    assert stamps["ApiV1"].distribution == "api-v1-examples" and stamps["ApiV1"].blob_version == 3
    # the planner gives each tensor a place of its own, which is more than any other takes
    assert sum(plan.non_const_buffer_sizes) >= 16 * 6


@pytest.mark.parametrize("check", [False, True])
def test_it_runs(used: Used, check: bool) -> None:
    options = {"ApiV1": {"times": 1}}
    run = delegraph.load(bytes(used.lowered), check=check, backend_options=options, platform="api_v1")
    for _ in range(2):
        np.testing.assert_allclose(run(used.x.numpy()), used.model(used.x), rtol=1e-5, atol=1e-6)
    assert run["forward"].method.kernels["api_v1::twice.out"] == "api_v1"
    backend = used.registry.load("backends", "ApiV1")
    alive = backend.alive
    run["forward"].method.close()
    assert backend.alive == alive - 3


def test_options_of_both_halves(used: Used) -> None:
    class Sum(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x

    program = bytes(delegraph.lower(Sum(), (used.x,), backends=["api_v1{scale=3.0}"]))
    run = delegraph.load(program, backend_options={"ApiV1": {"times": 2}})
    np.testing.assert_allclose(run(used.x.numpy()), 12 * used.x, rtol=1e-6)


def test_a_foreign_partitioner_is_adapted(used: Used) -> None:
    from api_v1_foreign import Foreign

    lowered = delegraph.lower(nn.Tanh(), (used.x,), backends=[Foreign(scale=2.0)])
    np.testing.assert_allclose(delegraph.load(bytes(lowered))(used.x.numpy()), 2 * used.x.tanh(), rtol=1e-5)


def test_a_model_is_quantized(used: Used) -> None:
    pytest.importorskip("torchao", reason="quantizing needs torchao")
    model, x = nn.Linear(4, 2).eval(), torch.randn(8, 4)
    quantized = delegraph.quantize(model, [(x,)], quantizers=["api_v1{recipe=int8_per_tensor}"])
    assert any("quantize_per_tensor" in str(node.target) for node in quantized.program.graph.nodes)
    torch.testing.assert_close(quantized.program.module()(x), model(x), rtol=0.1, atol=0.1)


def test_a_program_is_read_by_the_data_loader(used: Used, tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(bytes(byte ^ 255 for byte in bytes(used.lowered)))
    run = delegraph.load(f"apiv1://{tmp_path / 'm.pte'}")
    np.testing.assert_allclose(run(used.x.numpy()), used.model(used.x), rtol=1e-5, atol=1e-6)
    with pytest.raises(AccessFailed, match="No such file"):
        delegraph.load(f"apiv1://{tmp_path / 'other.pte'}")


def test_the_kit_proves(used: Used, capsys: pytest.CaptureFixture[str]) -> None:
    assert used.registry.load("conformance_kits", "zz_api_v1")("npu", ["--level", "models"]) == 0
    assert capsys.readouterr().out == "npu: proven, with --level models\n"


def test_the_tool_has_seen_it_all(used: Used) -> None:
    seen: list[Any] = import_module("api_v1_examples.tool").SEEN
    del seen[:]
    delegraph.load(bytes(delegraph.lower(nn.Tanh(), (used.x,), backends=["api_v1"])))(used.x.numpy())
    assert [told for told in seen if told[0] != "stage"] == [
        ("partition", "LoweringReport", True),
        ("preprocess", "ApiV1", True),
        ("program", ["forward"], True),
        ("method", "Method", True),
        ("execute", "ApiV1", 2),
    ]
    assert {stage for kind, stage, _ in (told for told in seen if told[0] == "stage")} >= {"export", "edge"}
