"""The pipeline: what is refused before a compiler runs, and what hangs on every stage, whichever API runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import Dim, ExportedProgram, export
from torch.fx import GraphModule

import delegraph
from delegraph.aot import (
    BackendDetails,
    CompileSpec,
    EdgeCompileConfig,
    ExecutorchBackendConfig,
    ExportPass,
    LoweringConfig,
    Partitioner,
    PassResult,
    PreprocessResult,
    to_edge,
    to_edge_transform_and_lower,
)
from delegraph.aot.edge.dialects import ATEN
from delegraph.aot.pipeline import ALL
from delegraph.errors import (
    LoweringError,
    MissingKernel,
    PluginNotFound,
    UnboundedDimension,
    UnknownOption,
    VerificationError,
)
from delegraph.plugins import hookimpl
from delegraph.plugins.registry import PluginRegistry
from delegraph_partitioners import OperatorsPartitioner

aten = torch.ops.aten
X = torch.randn(2, 4)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu().sigmoid()


compiled: list[str] = []


class Counts(BackendDetails):
    """Remembers that it was asked to compile."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        compiled.append("Counts")
        return PreprocessResult(b"blob")


def npu(*, operators: str = "aten::relu") -> Partitioner:
    return OperatorsPartitioner("Counts", [operators])


@pytest.fixture
def plugins() -> PluginRegistry:
    compiled.clear()
    registry = PluginRegistry.discover()
    registry.register("lowerings", "Counts", Counts)
    registry.register("partitioners", "npu", npu)
    registry.register("passes", "rename", rename)
    return registry


def rename(*, to: str = "renamed") -> Callable[[GraphModule], None]:
    def graph_pass(module: GraphModule) -> None:
        for node in module.graph.find_nodes(op="call_function", target=aten.sigmoid.default):
            node._rename(to)

    return graph_pass


# ---- settings arrive or are refused ----------------------------------------------------------------


@pytest.mark.parametrize("backend", ["npu{operators='aten::sigmoid'}", ("npu", {"operators": "aten::sigmoid"})])
def test_options_reach_a_backend_in_every_api(backend: Any, plugins: PluginRegistry) -> None:
    program = export(Net(), (X,))
    managers = [
        delegraph.lower(program, backends=[backend], plugins=plugins).edge,
        to_edge_transform_and_lower(program, partitioner=[backend], plugins=plugins),
        to_edge(program, plugins=plugins).to_backend(backend),
        to_edge(program, plugins=plugins).to_backend({"forward": [backend]}),
    ]
    for manager in managers:
        [delegate] = manager.report.methods["forward"].delegates
        assert (delegate.partitioner, delegate.operators) == ("npu", {"aten::sigmoid": 1})


@pytest.mark.parametrize(
    ("backends", "error", "message"),
    [
        (["npu{operator=relu}"], UnknownOption, "has no option 'operator'; it has operators; did you mean 'operators'"),
        ([("npu", {"speed": 3})], UnknownOption, "has no option 'speed'"),
        (["npi"], PluginNotFound, "did you mean 'npu'"),
        ("npu", LoweringError, r"backends is a list, in order of priority: write backends=\['npu'\]"),
        ({"npu": {}}, LoweringError, r'a mapping of such lists by method name: write backends=\[\("npu", \{…\}\)\]'),
        ({"forwards": ["npu"]}, LoweringError, "'forwards', but the methods are forward; did you mean 'forward'"),
        ({"forward": [3]}, LoweringError, r"backends\['forward'\] has 3"),
        ([3], LoweringError, r"backends has 3; it takes names of installed partitioners, \(name, options\) pairs and"),
    ],
)
def test_backends_that_are_refused(
    backends: Any, error: type[Exception], message: str, plugins: PluginRegistry
) -> None:
    with pytest.raises(error, match=message):
        delegraph.lower(Net(), (X,), backends=backends, plugins=plugins)


def test_arguments_that_are_refused(plugins: PluginRegistry) -> None:
    program = export(Net(), (X,))
    with pytest.raises(LoweringError, match=r"arguments are a tuple, not int; for one argument write \(x,\)"):
        delegraph.lower(Net(), 3)  # type: ignore[arg-type]
    with pytest.raises(LoweringError, match="config is dict; it takes a LoweringConfig, or an ExecutorchBackendConfig"):
        delegraph.lower(Net(), (X,), config={})  # type: ignore[arg-type]
    with pytest.raises(LoweringError, match="expected an ExportedProgram, not Net"):
        to_edge(Net())  # type: ignore[arg-type]
    for mapping in ({"forwrd": []}, {"forwrd": [rename()]}):
        with pytest.raises(LoweringError, match=r"an entry for 'forwrd'.*did you mean 'forward'"):
            to_edge(program).transform(mapping)
        with pytest.raises(LoweringError, match=r"an entry for 'forwrd'.*did you mean 'forward'"):
            to_edge_transform_and_lower(program, transform_passes=mapping)
        with pytest.raises(LoweringError, match=r"an entry for 'forwrd'.*did you mean 'forward'"):
            to_edge(program).to_executorch(ExecutorchBackendConfig(passes=mapping))
    with pytest.raises(LoweringError, match="partitioner has an entry for 'forwrd'"):
        to_edge_transform_and_lower(program, partitioner={"forwrd": npu()})
    with pytest.raises(LoweringError, match="partitioner has an entry for 'forwrd'"):
        to_edge(program).to_backend({"forwrd": npu()})
    with pytest.raises(LoweringError, match="transform_passes has 3; it takes names of installed passes"):
        delegraph.lower(program, config=LoweringConfig(transform_passes=[3]))  # type: ignore[list-item]


def test_an_edge_config_may_stand_alone(plugins: PluginRegistry) -> None:
    config = EdgeCompileConfig(preserve_ops=[aten.linear.default])
    lowered = delegraph.lower(
        Net(), (X,), backends=[OperatorsPartitioner("Counts", ["aten::linear"])], config=config, plugins=plugins
    )
    assert lowered.report.methods["forward"].delegates[0].operators == {"aten::linear": 1}


# ---- passes ----------------------------------------------------------------------------------------


def test_passes_are_named_with_options(plugins: PluginRegistry) -> None:
    program = export(Net(), (X,))
    passes = ["rename{to=other}", ("rename", {"to": "third"})]
    manager = to_edge_transform_and_lower(program, transform_passes=passes, plugins=plugins)
    assert "third" in [node.name for node in manager.exported_program().graph.nodes]
    manager = to_edge(program, plugins=plugins).transform({"forward": ["rename"]})
    assert "renamed" in [node.name for node in manager.exported_program().graph.nodes]
    with pytest.raises(UnknownOption, match="'too'"):
        to_edge(program, plugins=plugins).transform(["rename{too=x}"])


def test_a_pass_is_verified_with_the_callers_own_configuration() -> None:
    config = EdgeCompileConfig(preserve_ops=[aten.linear.default])
    program = export(Net(), (X,))

    def nothing(module: GraphModule) -> None:
        """A pass that does nothing."""

    for manager in (
        to_edge(program, compile_config=config).transform([nothing]),
        to_edge_transform_and_lower(program, transform_passes=[nothing], compile_config=config),
    ):
        assert aten.linear.default in [node.target for node in manager.exported_program().graph.nodes]


def aliases(module: GraphModule) -> PassResult:
    for node in module.graph.find_nodes(op="call_function", target=aten.permute_copy.default):
        node.target = aten.permute.default
    return PassResult(module, True)


class EnsuresLittle(ExportPass):
    ensured_dialect = ATEN

    def call(self, graph_module: GraphModule) -> PassResult:
        return aliases(graph_module)


def test_what_a_pass_ensures_is_added_to_what_the_pipeline_demands() -> None:
    with pytest.raises(VerificationError, match="returns a view"):
        to_edge(export(Net(), (X,))).transform([EnsuresLittle()])


def test_without_validity_checks_nothing_is_verified() -> None:
    config = EdgeCompileConfig(_check_ir_validity=False)
    manager = to_edge(export(Net(), (X,)), compile_config=config).transform([aliases])
    assert aten.permute.default in [node.target for node in manager.exported_program().graph.nodes]


# ---- refused before the backends compile -----------------------------------------------------------


class Unbounded(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu().sigmoid()


class NoKernel(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.delegraph_test.nobody_has_it(x.relu())  # type: ignore[no-any-return]


def _operators() -> None:
    library = torch.library.Library("delegraph_test", "FRAGMENT")
    library.define("nobody_has_it(Tensor x) -> Tensor")
    library.impl("nobody_has_it", torch.clone, "CompositeExplicitAutograd")
    _operators.library = library  # type: ignore[attr-defined]  # operators live as long as their library


_operators()

BATCH: Any = ({0: Dim("batch")},)


@pytest.mark.parametrize(
    ("model", "options", "error"),
    [
        (Unbounded(), {"dynamic_shapes": BATCH}, UnboundedDimension),
        (NoKernel(), {}, MissingKernel),
        (Net(), {"config": ExecutorchBackendConfig(memory_planner="gready")}, PluginNotFound),
        (Net(), {"config": ExecutorchBackendConfig(kernels=["portabel"])}, PluginNotFound),
        (Net(), {"config": LoweringConfig(transform_passes=["renam"])}, PluginNotFound),
        (Net(), {"config": LoweringConfig(constant_methods={"forward": 1})}, LoweringError),
    ],
)
def test_what_can_be_refused_is_refused_before_a_backend_compiles(
    model: torch.nn.Module, options: Mapping[str, Any], error: type[Exception], plugins: PluginRegistry
) -> None:
    with pytest.raises(error):
        delegraph.lower(model, (X,), backends=["npu"], plugins=plugins, **options)
    assert compiled == []


def test_a_backend_that_is_not_installed_is_found_missing_before_another_compiles(plugins: PluginRegistry) -> None:
    gone = OperatorsPartitioner("Gone", ["aten::sigmoid"])
    with pytest.raises(PluginNotFound, match="partitioner OperatorsPartitioner asked for the backend 'Gone'"):
        delegraph.lower(Net(), (X,), backends=["npu", gone], plugins=plugins)
    assert compiled == []


def test_a_partition_is_compiled_once_however_often_more_is_delegated(plugins: PluginRegistry) -> None:
    first = to_edge(export(Net(), (X,)), plugins=plugins).to_backend("npu")
    assert compiled == ["Counts"]
    both = first.to_backend("npu{operators='aten::sigmoid'}")
    assert compiled == ["Counts", "Counts"]
    entries = both.report.methods["forward"].delegates
    assert [(entry.partitioner, entry.operators) for entry in entries] == [
        ("npu", {"aten::relu": 1}),
        ("npu (2)", {"aten::sigmoid": 1}),
    ]
    both.to_executorch()
    assert compiled == ["Counts", "Counts"]


# ---- what hangs on the stages ----------------------------------------------------------------------


class Watches:
    def __init__(self) -> None:
        self.stages: list[tuple[str, str]] = []
        self.reports: list[Any] = []

    @hookimpl
    def lowering_stage_done(self, stage: str, method: str, seconds: float) -> None:
        assert seconds >= 0
        self.stages.append((stage, method))

    @hookimpl
    def partition_done(self, report: Any) -> None:
        self.reports.append(report)


WHOLE_WAY = [
    "functional",
    "edge",
    "partition",
    "kernels",
    "compile",
    "settings",
    "passes",
    "prepare",
    "emit",
    "plan",
    "fallback",
]


def test_tools_see_executorchs_api_and_ours(plugins: PluginRegistry) -> None:
    tool = Watches()
    plugins.register("plugins", "watches", tool)
    program = export(Net(), (X,))
    to_edge(program, plugins=plugins).to_backend("npu").to_executorch()
    assert [stage for stage, _ in tool.stages] == [*WHOLE_WAY, "assemble"]
    assert ("edge", "forward") in tool.stages
    [report] = tool.reports
    assert report.methods["forward"].delegates[0].backend == "Counts"
    tool.stages.clear()
    delegraph.lower({"a": program, "b": program}, backends=["npu"], plugins=plugins)
    assert [stage for stage, method in tool.stages if method != "b"] == [stage.name for stage in ALL]
    assert ("edge", "b") in tool.stages


def test_a_watcher_is_told_of_each_stage(plugins: PluginRegistry) -> None:
    told: list[str] = []

    class Watcher:
        def started(self, stage: Any, methods: Any, lowering: Any, remaining: Any) -> None:
            told.append(f"{stage.name} of {len(remaining)}")

        def done(self, stage: Any, methods: Any, lowering: Any, seconds: float) -> None:
            told.append(stage.name)

    delegraph.lower(Net(), (X,), plugins=plugins, progress=Watcher())
    assert told[0] == f"{ALL[0].name} of " + told[0].rpartition(" ")[2]
    assert told[1::2] == [stage.name for stage in ALL]


def test_a_progress_bar_is_drawn_on_standard_error(capsys: pytest.CaptureFixture[str], plugins: PluginRegistry) -> None:
    delegraph.lower(Net(), (X,), plugins=plugins, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "assemble" in err


def test_stages_write_their_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plugins: PluginRegistry) -> None:
    monkeypatch.setenv("DELEGRAPH_DUMP", "edge, assemble")
    monkeypatch.setenv("DELEGRAPH_DUMP_DIR", str(tmp_path / "dump"))
    delegraph.lower(Net(), (X,), plugins=plugins)
    names = sorted(path.name for path in (tmp_path / "dump").iterdir())
    assert names == [
        "assemble.forward.after.txt",
        "assemble.forward.before.txt",
        "assemble.program.after.txt",
        "edge.forward.after.txt",
        "edge.forward.before.txt",
    ]
    before, after = ((tmp_path / "dump" / f"edge.forward.{when}.txt").read_text() for when in ("before", "after"))
    assert "aten.permute.default" in before or "aten.t.default" in before
    assert "aten.permute_copy.default" in after
    assert "aten::addmm.out" in (tmp_path / "dump" / "assemble.program.after.txt").read_text()


def test_a_stage_that_does_not_exist_is_not_dumped_in_silence(
    monkeypatch: pytest.MonkeyPatch, plugins: PluginRegistry
) -> None:
    monkeypatch.setenv("DELEGRAPH_DUMP", "egde")
    with pytest.raises(LoweringError, match="DELEGRAPH_DUMP names no stage 'egde'; did you mean 'edge'"):
        delegraph.lower(Net(), (X,), plugins=plugins)


def test_the_report_of_a_manager_runs_no_partitioner(plugins: PluginRegistry) -> None:
    def bad() -> Partitioner:
        raise AssertionError("asked")

    plugins.register("partitioners", "bad", bad)
    assert to_edge(export(Net(), (X,)), plugins=plugins).report.suggestions == ()
