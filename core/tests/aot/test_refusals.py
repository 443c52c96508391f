"""Backends that refuse late what their partitioners took: lowering cuts again, and the report says why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

import pytest
import torch
from torch.export import ExportedProgram, export
from torch.fx import Node

from delegraph.aot import EdgeProgramManager, ExecutorchBackendConfig, to_backend, to_edge, to_edge_transform_and_lower
from delegraph.aot.delegation.compose import Seen
from delegraph.aot.delegation.lowered_module import is_delegate_call
from delegraph.aot.delegation.partition import TAG, tag_constant_data, tag_mutated_buffer
from delegraph.aot.graph.bodies import all_nodes, graph_modules
from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.lower import lower
from delegraph.errors import LoweringError, MissingKernel, PreprocessError, UnsupportedOperator
from delegraph.interfaces import (
    BackendDetails,
    CompileSpec,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    PreprocessResult,
)
from delegraph.plugins import PluginWarning
from delegraph.plugins.registry import PluginRegistry

Refuse = Callable[[ExportedProgram], None]


class Runs(Partitioner):
    """Takes runs of neighbours that call one of `operators` (None: any of ATen's), each run with a tag of its own."""

    def __init__(self, backend: str, operators: Sequence[str] | None = None) -> None:
        self.backend, self.operators = backend, operators

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags: dict[str, DelegationSpec] = {}
        for path, module in graph_modules(exported_program.graph_module):
            tag = ""
            for node in module.graph.nodes:
                if node.op != "call_function" or not self._takes(node):
                    tag = ""
                    continue
                tag = tag or f"{path}{len(tags)}"
                node.meta[TAG] = tag
                tags[tag] = DelegationSpec(self.backend)
        tag_constant_data(exported_program)
        tag_mutated_buffer(exported_program)
        return PartitionResult(exported_program, tags)

    def _takes(self, node: Node) -> bool:
        name = operator_name(node).partition(".")[0]
        return name.startswith("aten::") if self.operators is None else name.removeprefix("aten::") in self.operators


def backend(name: str, refuse: Refuse = lambda program: None) -> type[BackendDetails]:
    """A backend that compiles partitions into the names of their operators, unless `refuse` raises."""

    class Backend(BackendDetails):
        compiled: ClassVar[list[str]] = []

        @staticmethod
        def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
            refuse(edge_program)
            calls = [operator_name(node) for node in edge_program.graph.nodes if node.op == "call_function"]
            Backend.compiled.append(" ".join(calls))
            return PreprocessResult(Backend.compiled[-1].encode())

    Backend.__name__ = name
    return Backend


def refusing(operator: str, error: type[LoweringError] = UnsupportedOperator, named: bool = True) -> Refuse:
    """Raises `error` for a partition with a call of `operator`, which it names or not."""

    def refuse(program: ExportedProgram) -> None:
        for node in all_nodes(program.graph_module):
            if node.op == "call_function" and operator_name(node).startswith(f"aten::{operator}"):
                raise error(f"no room for {operator}\nsecond line", node=node.name if named else None)

    return refuse


def registry(*backends: type[BackendDetails]) -> PluginRegistry:
    plugins = PluginRegistry()
    for each in backends:
        plugins.register("lowerings", each.__name__, each)
    return plugins


def lowered(
    model: torch.nn.Module | Mapping[str, torch.nn.Module],
    args: tuple[Any, ...],
    partitioners: Sequence[Partitioner],
    *backends: type[BackendDetails],
) -> EdgeProgramManager:
    models = model if isinstance(model, Mapping) else {"forward": model}
    programs = {name: export(each.eval(), args) for name, each in models.items()}
    return to_edge_transform_and_lower(programs, partitioner=list(partitioners), plugins=registry(*backends))


def delegates(manager: EdgeProgramManager, method: str = "forward") -> list[tuple[str, tuple[str, ...]]]:
    return [(entry.backend, tuple(entry.operators)) for entry in manager.report.methods[method].delegates]


def reasons(manager: EdgeProgramManager, method: str = "forward") -> dict[str, dict[str, str]]:
    return {entry.operator: dict(entry.reasons) for entry in manager.report.methods[method].leftovers}


def asked(manager: EdgeProgramManager) -> Collection[Mapping[str, Sequence[Seen]]]:
    return manager.report.methods["forward"].asked.values()


def assert_same(manager: EdgeProgramManager, model: torch.nn.Module, *args: torch.Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(manager.exported_program().module()(*args), model(*args))


class Chain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu().exp().tanh().exp().sigmoid()


X = torch.randn(2, 4)
LATE = "took it, and Late refused to compile it: no room for tanh"


@pytest.mark.parametrize("error", [UnsupportedOperator, PreprocessError])
def test_a_refused_node_is_left_and_the_report_says_why(error: type[LoweringError]) -> None:
    manager = lowered(Chain(), (X,), [Runs("Late")], backend("Late", refusing("tanh", error)))
    assert delegates(manager) == [
        ("Late", ("aten::relu", "aten::exp")),
        ("Late", ("aten::exp", "aten::sigmoid")),
    ]
    assert reasons(manager) == {"aten::tanh": {"Runs": LATE}}
    told = f"aten_tanh_default of method 'forward': Runs {LATE}"
    assert (manager.report.refusals, manager.report.to_json()["refusals"]) == ((told,), [told])
    assert str(manager.report).endswith(f"\n\nTaken, and then refused:\n\n  {told}")
    assert_same(manager, Chain(), X)


def test_the_next_backend_is_asked_for_what_was_refused() -> None:
    late = backend("Late", refusing("tanh"))
    manager = lowered(Chain(), (X,), [Runs("Late"), Runs("Next")], late, backend("Next"))
    assert sorted(delegates(manager)) == [
        ("Late", ("aten::exp", "aten::sigmoid")),
        ("Late", ("aten::relu", "aten::exp")),
        ("Next", ("aten::tanh",)),
    ]
    [tanh] = [call for call in asked(manager) if call["Runs"][0].reason == LATE]
    assert tanh["Runs (2)"][0].tag is not None
    assert_same(manager, Chain(), X)


def test_each_of_two_backends_refuses_something() -> None:
    first, second = backend("First", refusing("tanh")), backend("Second", refusing("tanh"))
    manager = lowered(Chain(), (X,), [Runs("First", ["relu", "exp", "tanh"]), Runs("Second")], first, second)
    assert reasons(manager) == {
        "aten::tanh": {
            "Runs": "took it, and First refused to compile it: no room for tanh",
            "Runs (2)": "took it, and Second refused to compile it: no room for tanh",
        }
    }
    assert_same(manager, Chain(), X)


def test_where_an_error_names_no_node_it_is_found_by_trying() -> None:
    manager = lowered(Chain(), (X,), [Runs("Late")], backend("Late", refusing("tanh", named=False)))
    assert [operators for _, operators in delegates(manager)] == [
        ("aten::relu", "aten::exp"),
        ("aten::exp", "aten::sigmoid"),
    ]
    told = f"{LATE} (which names no call: this one was found by trying)"
    assert reasons(manager) == {"aten::tanh": {"Runs": told}}
    assert_same(manager, Chain(), X)


def of_at_least(calls: int, error: Exception) -> Refuse:
    """Raises an error that names nothing for a partition of eight calls, and `error` for one of fewer than `calls`."""

    def refuse(program: ExportedProgram) -> None:
        count = len(program.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default))
        if count < calls:
            raise error
        if count >= 8:
            raise PreprocessError("no room\nfor this")

    return refuse


class Relus(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            x = x.relu()
        return x.tanh()


@pytest.mark.parametrize(("calls", "error"), [(8, PreprocessError("few")), (8, ValueError("few")), (0, ValueError())])
def test_a_partition_that_is_refused_again_and_again_goes_to_the_next_backend(calls: int, error: Exception) -> None:
    late = backend("Late", of_at_least(calls, error))
    with pytest.warns(PluginWarning) as heard:
        manager = lowered(Relus(), (X,), [Runs("Late", ["relu"]), Runs("Next")], late, backend("Next"))
    told = [str(each.message) for each in heard]
    assert told[0].startswith("Late refuses to compile a whole partition, tag '"), told
    assert "of method 'forward' (aten_relu_default" in told[0]
    assert " more), which the partitioner Runs took: no room\nfor this\n" in told[0]
    assert "\n  what happens now: the backends behind it and kernels compute these calls\n  what to do: tell" in told[0]
    assert told[0].endswith("node=…, leaves that node alone; a partitioner that declines it leaves no error at all")
    assert "Next" in {entry.backend for entry in manager.report.methods["forward"].delegates}
    left = {seen.reason.partition(":")[0] for call in asked(manager) for seen in call["Runs"]}
    assert "took it, and Late refused to compile its partition" in left
    assert_same(manager, Relus(), X)


def test_the_third_refusal_of_an_operator_leaves_all_its_calls() -> None:
    class Deep(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(20):
                x = x.relu().tanh()
            return x

    late = backend("Late", refusing("tanh"))
    manager = lowered(Deep(), (X,), [Runs("Late")], late)
    assert delegates(manager) == [("Late", ("aten::relu",))] * 20
    told = [entry.reasons["Runs"] for entry in manager.report.methods["forward"].leftovers]
    assert told[:2] == [LATE] * 2 and set(told[2:]) == {
        "took it, and Late refused to compile 3 calls of it, the last because: no room for tanh"
    }
    assert_same(manager, Deep(), X)


def test_what_is_not_refused_is_compiled_once() -> None:
    late = backend("Late")
    manager = lowered(Chain(), (X,), [Runs("Late", ["relu", "tanh", "sigmoid"])], late)
    assert late.compiled == ["aten::relu", "aten::tanh", "aten::sigmoid"]  # type: ignore[attr-defined]
    assert len(delegates(manager)) == 3


# ---- partitioners ----------------------------------------------------------------------------------


def test_a_partitioner_that_looks_at_no_operator_loses_the_partition() -> None:
    class ByName(Partitioner):
        def partition(self, exported_program: ExportedProgram) -> PartitionResult:
            calls = [node for node in exported_program.graph.nodes if node.op == "call_function"]
            for node in calls:
                node.meta[TAG] = "first" if node in calls[:3] else "second"
            return PartitionResult(exported_program, {tag: DelegationSpec("Late") for tag in ("first", "second")})

    manager = lowered(Chain(), (X,), [ByName()], backend("Late", refusing("tanh")))
    assert delegates(manager) == [("Late", ("aten::exp", "aten::sigmoid"))]
    assert reasons(manager) == {
        "aten::relu": {"ByName": f"took it with another call: {LATE}"},
        "aten::exp": {"ByName": f"took it with another call: {LATE}"},
        "aten::tanh": {"ByName": LATE},
    }
    assert_same(manager, Chain(), X)


class Counter(torch.nn.Module):
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(x)
        return self.count.tanh()


class Everything(Runs):
    """Takes calls whatever their operator is."""

    def _takes(self, node: Node) -> bool:
        return True


@pytest.mark.parametrize("partitioner", [Runs("Late"), Everything("Late")])
@pytest.mark.parametrize("refused", ["tanh", "add"])
def test_state_goes_back_to_the_program_with_a_refused_reader(partitioner: Partitioner, refused: str) -> None:
    x = torch.ones(4)
    manager = lowered(Counter(), (x,), [partitioner], backend("Late", refusing(refused)))
    [left] = [why for operator, why in reasons(manager).items() if operator.startswith(f"aten::{refused}")]
    assert left == {type(partitioner).__name__: f"took it, and Late refused to compile it: no room for {refused}"}
    run = manager.exported_program().module()
    torch.testing.assert_close([run(x) for _ in range(3)], [torch.full((4,), float(n)).tanh() for n in (1, 2, 3)])


class Branch(torch.nn.Module):
    def forward(self, p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        y = torch.cond(p, lambda x: x.relu().tanh(), lambda x: x.sigmoid(), (x,))
        return y.exp()  # type: ignore[no-any-return]


@pytest.mark.parametrize("partitioner", [Runs("Late"), Everything("Late")])
def test_a_refused_node_in_a_body_of_control_flow(partitioner: Partitioner) -> None:
    manager = lowered(Branch(), (torch.tensor(True), X), [partitioner], backend("Late", refusing("tanh")))
    assert reasons(manager)["aten::tanh"] == {type(partitioner).__name__: LATE}
    for p in (True, False):
        assert_same(manager, Branch(), torch.tensor(p), X)


def test_a_refused_call_that_gives_several_results_goes_with_its_elements() -> None:
    class Sorts(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            values, order = x.relu().sort()
            return values.tanh(), order * 2

    def refuse(program: ExportedProgram) -> None:
        for node in program.graph.nodes:
            if node.op == "call_function" and operator_name(node) == "getitem":
                raise UnsupportedOperator("no orders", node=node.name)

    manager = lowered(Sorts(), (X,), [Runs("Late")], backend("Late", refuse))
    assert list(reasons(manager)) == ["aten::sort"]
    assert_same(manager, Sorts(), X)


def test_an_operator_that_was_kept_whole_is_decomposed_if_it_is_refused() -> None:
    class Whole(Runs):
        def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[Any], None]:
            return [torch.ops.aten.linear.default], None

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    manager = lowered(model, (X,), [Whole("Late")], backend("Late", refusing("linear")))
    assert delegates(manager) == [("Late", ("aten::relu",))]
    told = "as aten::linear: took it, and Late refused to compile it: no room for linear"
    assert reasons(manager)["aten::addmm"] == {"Whole": told}
    assert_same(manager, model, X)


# ---- methods and forms of lowering -----------------------------------------------------------------


class Together(BackendDetails):
    """Compiles all partitions at once. Refuses `tanh` wherever it is, and two partitions with `sigmoid`."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        raise AssertionError("it has preprocess_multimethod")

    @classmethod
    def preprocess_multimethod(
        cls,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        calls = [
            node for own in edge_programs.values() for program in own for node in program.graph.nodes
        ]  # fmt: skip
        sigmoids = [node for node in calls if operator_name(node) == "aten::sigmoid"]
        for node in calls:
            if operator_name(node) == "aten::tanh":
                raise UnsupportedOperator("no tanh", node=node.name)
        if len(sigmoids) > 1:
            raise PreprocessError("one sigmoid is enough", node=sigmoids[-1].name)
        return {method: [PreprocessResult(b"blob") for _ in own] for method, own in edge_programs.items()}


class Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp().relu()


def test_only_the_method_that_was_refused_is_cut_again() -> None:
    late = {"a": torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()), "b": Plain()}
    manager = lowered(late, (X,), [Runs("Together")], Together)
    assert delegates(manager, "a") == [("Together", ("aten::relu",))]
    assert delegates(manager, "b") == [("Together", ("aten::exp", "aten::relu"))]
    assert reasons(manager, "a") == {"aten::tanh": {"Runs": "took it, and Together refused to compile it: no tanh"}}


def test_what_is_refused_of_all_partitions_together_is_left_in_all() -> None:
    models = {name: torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Sigmoid()) for name in ("a", "b")}
    manager = lowered(models, (X,), [Runs("Together")], Together)
    told = "took it, and Together refused to compile it: one sigmoid is enough"
    assert [reasons(manager, name) for name in models] == [{"aten::sigmoid": {"Runs": told}}] * 2


def test_one_program_and_a_partitioner_by_themselves() -> None:
    program = to_edge(export(Chain(), (X,))).exported_program()
    plugins = registry(backend("Late", refusing("tanh")))
    done = to_backend(program, Runs("Late"), plugins=plugins)
    assert sum(map(is_delegate_call, done.graph.nodes)) == 2
    torch.testing.assert_close(done.module()(X), Chain()(X))
    with pytest.raises(UnsupportedOperator, match="no room for tanh"):  # here the caller says what is compiled
        to_backend("Late", program, [], plugins=plugins)


def test_a_program_that_is_lowered_in_two_steps() -> None:
    plugins = registry(backend("Late", refusing("tanh")), backend("Next"))
    edge = to_edge(export(Chain(), (X,)), plugins=plugins).to_backend([Runs("Late")]).to_backend([Runs("Next")])
    assert sorted(entry for entry, _ in delegates(edge)) == ["Late", "Late", "Next"]
    assert_same(edge, Chain(), X)


def test_kernels_that_lack_what_was_refused_are_told_with_the_reason() -> None:
    plugins = PluginRegistry.discover()
    plugins.register("lowerings", "Late", backend("Late", refusing("tanh")))
    config = ExecutorchBackendConfig(kernels=[])
    with pytest.raises(MissingKernel, match="1 operator without a kernel") as caught:
        lower(Chain(), (X,), backends=[Runs("Late")], plugins=plugins, config=config)
    assert caught.value.__notes__ == [f"aten_tanh_default of method 'forward': Runs {LATE}"]
