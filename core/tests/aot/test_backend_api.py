"""`to_backend` in its three forms; a lowered module in a larger model, exported and lowered again."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim, ExportedProgram, export

import delegraph
from delegraph.aot import (
    BackendDetails,
    CompileSpec,
    DelegationSpec,
    LoweredBackendModule,
    MethodProgramsPartitionerSpec,
    Partitioner,
    PartitionResult,
    PreprocessResult,
    is_delegate_call,
    tag_constant_data,
    to_backend,
    to_edge,
    to_edge_transform_and_lower,
    validation_disabled,
)
from delegraph.aot.delegation.lowered_module import lowered_modules
from delegraph.errors import InvalidPartition, LoweringError, PluginConflict, PluginNotFound
from delegraph.interfaces import BackendInterface
from delegraph.plugins.registry import PluginRegistry, use_registry

X = torch.tensor([1.0, -2.0, 3.0])


class Doubler(BackendDetails):
    """Multiplies its first input by two, whatever it was given; the blob lists the operators that it was given."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        calls = [str(node.target) for node in edge_program.graph.nodes if node.op == "call_function"]
        for node in reversed(edge_program.graph.nodes):  # a backend may take its program apart
            if node.op == "call_function" and not node.users:
                edge_program.graph.erase_node(node)
        return PreprocessResult(";".join(calls).encode(), {0: (1, 2)}, None, {"calls": len(calls)})


class DoublerRuntime(BackendInterface):
    def init(self, context: Any, processed: Any, compile_specs: Any) -> None:
        return None

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        *_, out = args
        np.multiply(args[0], 2, out=out)


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


class TakesAdd(Partitioner):
    def __init__(self, backend: str = "Doubler") -> None:
        super().__init__({"backend": backend})

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        for node in exported_program.graph.nodes:
            if node.target == torch.ops.aten.add.Tensor:
                node.meta["delegation_tag"] = "t"
        tag_constant_data(exported_program)
        return PartitionResult(
            tagged_exported_program=exported_program, partition_tags={"t": DelegationSpec(self.spec["backend"], [])}
        )


@pytest.fixture(autouse=True)
def _only_doubler() -> Iterator[None]:
    registry = PluginRegistry.discover()
    registry.register("backends", "Doubler", DoublerRuntime())
    with use_registry(registry):
        yield


def edge(model: torch.nn.Module, *args: Any, **options: Any) -> ExportedProgram:
    return to_edge(export(model, args, **options)).exported_program()


def lowered_doubler(specs: list[CompileSpec] | None = None) -> LoweredBackendModule:
    return to_backend("Doubler", edge(Doubled(), X), specs or [])


# ---- a whole program -------------------------------------------------------------------------------


def test_a_backend_is_found_by_its_class_name_and_its_result_kept() -> None:
    program = edge(Doubled(), X)
    names = [node.name for node in program.graph.nodes]
    lowered = to_backend("Doubler", program, [CompileSpec("mode", b"fast")])
    assert lowered.backend_id == "Doubler"
    assert lowered.processed_bytes == b"aten.add.Tensor"
    assert lowered.compile_specs == [CompileSpec("mode", b"fast")]
    assert lowered.meta == {"debug_handle_map": {0: (1, 2)}, "_delegate_info_meta": {"calls": 1}}
    assert [node.name for node in program.graph.nodes] == names
    torch.testing.assert_close(lowered(X), X + X)


def test_what_is_known_of_a_delegate_cannot_be_set() -> None:
    with pytest.raises(AttributeError):
        lowered_doubler().backend_id = "other"  # type: ignore[misc]


def test_a_backend_that_nobody_has() -> None:
    with pytest.raises(PluginNotFound, match="no installed distribution offers 'Tripler'"):
        to_backend("Tripler", edge(Doubled(), X), [])


def twin(blob: bytes) -> type[BackendDetails]:
    class Twin(BackendDetails):
        @staticmethod
        def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
            return PreprocessResult(blob)

    return Twin


def test_a_class_that_is_defined_again_replaces_the_old_one() -> None:
    _first, _second = twin(b"first"), twin(b"second")
    assert to_backend("Twin", edge(Doubled(), X), []).processed_bytes == b"second"


def test_the_last_of_several_in_one_module_is_taken() -> None:
    _first = twin(b"first")

    class Twin(BackendDetails):
        @staticmethod
        def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
            return PreprocessResult(b"another")

    assert to_backend("Twin", edge(Doubled(), X), []).processed_bytes == b"another"
    del Twin
    gc.collect()


def test_classes_of_one_name_in_several_modules_are_refused() -> None:
    class Elsewhere:
        class Twin(BackendDetails):
            __module__ = "elsewhere"

            @staticmethod
            def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
                return PreprocessResult(b"third")

    one = twin(b"first")
    with pytest.raises(
        PluginConflict, match=r"(?s)2 classes .* are called 'Twin': .*Elsewhere.Twin\n.*what to do: rename"
    ):
        to_backend("Twin", edge(Doubled(), X), [])
    registry = PluginRegistry()
    registry.register("lowerings", "Twin", one)
    assert to_backend("Twin", edge(Doubled(), X), [], plugins=registry).processed_bytes == b"first"
    del Elsewhere
    gc.collect()


def test_a_program_that_changes_its_input_is_refused() -> None:
    class Writes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.add_(1) * 2

    with pytest.raises(InvalidPartition, match="changes its input x, which a delegate cannot"):
        to_backend("Doubler", edge(Writes(), X), [])


def test_a_first_argument_of_another_type() -> None:
    with pytest.raises(LoweringError, match=r"takes a backend id, an ExportedProgram or .*, not Linear"):
        to_backend(torch.nn.Linear(2, 2), TakesAdd())


# ---- what a partitioner takes ----------------------------------------------------------------------


def test_what_a_partitioner_takes() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + x).sin()

    program = to_backend(edge(Model(), X), TakesAdd())
    assert [m.processed_bytes for m in lowered_modules(program.graph_module)] == [b"aten.add.Tensor"]
    torch.testing.assert_close(program.module()(X), (X + X).sin())
    [call] = [node for node in program.graph.nodes if is_delegate_call(node)]
    handles = [node.meta["debug_handle"] for node in program.graph.nodes if "debug_handle" in node.meta]
    assert handles.count(call.meta["debug_handle"]) == 1


def test_several_methods_are_compiled_at_once() -> None:
    class CountsCompilations(BackendDetails):
        calls: list[Mapping[str, int]] = []  # noqa: RUF012

        @staticmethod
        def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
            raise AssertionError("preprocess_multimethod is overridden")

        @classmethod
        def preprocess_multimethod(
            cls, edge_programs: dict[str, list[ExportedProgram]], compile_specs: dict[str, list[list[CompileSpec]]]
        ) -> dict[str, list[PreprocessResult]]:
            cls.calls.append({method: len(programs) for method, programs in edge_programs.items()})
            return {method: [PreprocessResult(b"c")] * len(programs) for method, programs in edge_programs.items()}

    programs = {name: edge(Doubled(), X) for name in ("one", "two", "three")}
    spec = MethodProgramsPartitionerSpec(
        programs, {"one": TakesAdd("CountsCompilations"), "two": TakesAdd("CountsCompilations")}
    )
    lowered = to_backend(spec)
    assert CountsCompilations.calls == [{"one": 1, "two": 1}]
    assert [len(lowered_modules(lowered[name].graph_module)) for name in programs] == [1, 1, 0]


def test_a_partitioner_for_no_method() -> None:
    spec = MethodProgramsPartitionerSpec({"one": edge(Doubled(), X)}, {"two": TakesAdd()})
    with pytest.raises(LoweringError, match="there is a partitioner for 'two'; the methods are one"):
        to_backend(spec)


def test_a_partitioner_may_change_the_graph_where_that_is_allowed() -> None:
    class Swaps(TakesAdd):
        def partition(self, exported_program: ExportedProgram) -> PartitionResult:
            for node in exported_program.graph.nodes:
                if node.target == torch.ops.aten.mul.Tensor:
                    node.target = torch.ops.aten.add.Tensor
            return super().partition(exported_program)

    class Product(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * x

    program = edge(Product(), X)
    with pytest.raises(InvalidPartition, match="it changed the graph"):
        to_backend(program, Swaps())
    with validation_disabled():
        taken = to_backend(program, Swaps())
    torch.testing.assert_close(taken.module()(X), X + X)


# ---- a lowered module in a larger model ------------------------------------------------------------


def run(program: Any, *args: torch.Tensor) -> list[np.ndarray[Any, Any]]:
    result = delegraph.load(bytes(program.buffer))(*args)
    return [np.asarray(value) for value in (result if isinstance(result, (tuple, list)) else [result])]


class Outer(torch.nn.Module):
    def __init__(self, lowered: LoweredBackendModule) -> None:
        super().__init__()
        self.lowered = lowered

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lowered(self.lowered(x.sin())) - x


@pytest.mark.parametrize("strict", [True, False])
def test_a_lowered_module_in_a_larger_one(strict: bool) -> None:
    outer = Outer(lowered_doubler([CompileSpec("mode", b"fast")]))
    expected = 4 * X.sin() - X
    torch.testing.assert_close(outer(X), expected)
    exported = export(outer, (X,), strict=strict)
    assert "torch.ops.higher_order.executorch_call_delegate" in exported.graph_module.code
    torch.testing.assert_close(exported.module()(X), expected)
    manager = to_edge(exported)
    torch.testing.assert_close(manager.exported_program().module()(X), expected)
    program = manager.to_executorch()
    [delegate] = program.executorch_program.execution_plan[0].delegates
    assert delegate.id == "Doubler"
    assert [spec.key for spec in delegate.compile_specs] == ["mode", "delegraph.stamp"]
    assert [info["delegate_info_meta"] for info in program.delegate_map["forward"].values()] == [{"calls": 1}] * 2
    np.testing.assert_allclose(run(program, X)[0], expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("strict", [True, False])
def test_its_call_takes_and_gives_what_its_own_program_does(strict: bool) -> None:
    class Structured(torch.nn.Module):
        def forward(self, given: Mapping[str, Any]) -> tuple[Any, ...]:
            a, b = given["pair"]
            return (a + b, a - b), given["c"].cos()

    given = {"c": X, "pair": [X, X + 1]}
    lowered = to_backend("Doubler", edge(Structured(), given, strict=strict), [])

    class Calls(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lowered = lowered

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            (plus, minus), c = self.lowered({"c": x, "pair": [x, x + 1]})
            return minus * c + plus

    expected = -X.cos() + X + X + 1
    torch.testing.assert_close(Calls()(X), expected)
    program = to_edge(export(Calls(), (X,), strict=strict)).exported_program()
    [call] = [node for node in program.graph.nodes if is_delegate_call(node)]
    assert len(call.args) == 4
    assert len(call.meta["val"]) == 3
    torch.testing.assert_close(program.module()(X), expected)


def test_keyword_arguments_of_its_program_are_refused() -> None:
    class Named(torch.nn.Module):
        def forward(self, *, x: torch.Tensor) -> torch.Tensor:
            return x + x

    lowered = to_backend("Doubler", to_edge(export(Named(), (), {"x": X})).exported_program(), [])
    with pytest.raises(LoweringError, match="takes keyword arguments, x; a delegate call has none"):
        lowered(X)


@pytest.mark.parametrize("strict", [True, False])
def test_with_dynamic_shapes_and_weights(strict: bool) -> None:
    batch = Dim("batch", max=8)
    x = torch.randn(3, 4)
    linear = torch.nn.Linear(4, 2)
    lowered = to_backend("Doubler", edge(linear, x, dynamic_shapes=({0: batch},), strict=strict), [])
    assert list(lowered.parameters()) == []

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lowered = lowered

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lowered(x * 2).relu()

    program = to_edge(export(Model(), (x,), dynamic_shapes=({0: batch},), strict=strict)).exported_program()
    other = torch.randn(5, 4)
    with torch.no_grad():
        torch.testing.assert_close(program.module()(other), linear(other * 2).relu())
    assert not program.state_dict


def test_more_is_delegated_around_it_and_the_report_lists_both() -> None:
    class Around(Outer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lowered(x) + x

    manager = to_edge_transform_and_lower(export(Around(lowered_doubler()), (X,)), partitioner=TakesAdd())
    torch.testing.assert_close(manager.exported_program().module()(X), 3 * X)
    report = manager.report.methods["forward"]
    assert [(entry.backend, entry.partitioner) for entry in report.delegates] == [
        ("Doubler", "TakesAdd"),
        ("Doubler", "in the model"),
    ]


def test_a_state_that_a_delegate_keeps_runs_on_in_eager_mode() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(x)
            return self.count * 2

    model = Counter()
    lowered = to_backend("Doubler", edge(model, X), [])
    torch.testing.assert_close(lowered(X), 2 * X)
    torch.testing.assert_close(lowered(X), 4 * X)
    assert model.count.tolist() == [0, 0, 0]
    assert export(Outer(lowered), (X,), strict=True)  # tracing runs it under fake tensors
    torch.testing.assert_close(lowered(X), 6 * X)


def test_a_copy_is_a_delegate_of_its_own() -> None:
    lowered = lowered_doubler([CompileSpec("mode", b"fast")])
    other = copy.deepcopy(lowered)
    other.compile_specs.clear()
    other.meta["mine"] = 1
    assert [spec.key for spec in lowered.compile_specs] == ["mode"]
    assert "mine" not in lowered.meta
    torch.testing.assert_close(other(X), lowered(X))


def test_it_is_a_program_by_itself() -> None:
    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [x + x + 0 * self.weight]

    lowered = to_backend("Doubler", edge(Sum(), X), [CompileSpec("mode", b"fast")])
    program = lowered.program()
    [plan] = program.execution_plan
    assert len(plan.chains[0].instructions) == 1
    assert plan.delegates[0].id == "Doubler"
    [result] = delegraph.load(lowered.buffer())(X)
    np.testing.assert_allclose(np.asarray(result), 2 * X.numpy())


def test_a_program_that_returns_a_number_is_refused() -> None:
    class Size(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x + x, 3

    with pytest.raises(InvalidPartition, match="which is not a tensor: a backend fills tensors"):
        to_backend("Doubler", edge(Size(), X), [])
