"""Cutting partitions out and compiling them: the lowered program computes what the model computes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from core.tests.aot.delegating import to_backend
from torch.export import Dim, ExportedProgram, export
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node

from delegraph.aot.delegation.compose import Delegated, compile_partitions, delegate
from delegraph.aot.delegation.delegate_mapping import DelegateMappingBuilder
from delegraph.aot.delegation.lowered_module import LoweredBackendModule, is_delegate_call, lowered_modules
from delegraph.aot.delegation.partition import TAG, tag_constant_data, tag_mutated_buffer
from delegraph.aot.graph.bodies import graph_modules
from delegraph.errors import PluginNotFound, PreprocessError
from delegraph.interfaces import (
    BackendDetails,
    BlobStamp,
    CompileSpec,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    PreprocessResult,
)
from delegraph.interfaces.stamp import read_stamp
from delegraph.plugins.registry import PluginRegistry

X = torch.randn(2, 4)


class Names(BackendDetails):
    """Its blob lists the partition's calls and its compile specs."""

    blob_version = 7

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        calls = [node.name for node in edge_program.graph.nodes if node.op == "call_function"]
        specs = {spec.key: spec.value.decode() for spec in compile_specs}
        return PreprocessResult(json.dumps([calls, specs]).encode(), {0: [1, 2]})


class Takes(Partitioner):
    """Tags the nodes that `tag` gives a tag."""

    def __init__(self, tag: Callable[[Node], str | None], backend: str = "Names", constants: bool = True) -> None:
        self.tag = tag
        self.backend = backend
        self.constants = constants

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags = {}
        for _, module in graph_modules(exported_program.graph_module):
            for node in module.graph.nodes:
                if node.op == "call_function" and not is_delegate_call(node) and (tag := self.tag(node)):
                    node.meta[TAG] = tag
                    tags[tag] = DelegationSpec(self.backend, [CompileSpec("mode", b"fast")])
        if self.constants:
            tag_constant_data(exported_program)
            tag_mutated_buffer(exported_program)
        return PartitionResult(exported_program, tags, {"left": "because"})


def by_name(tags: Mapping[str, str], **options: Any) -> Takes:
    return Takes(lambda node: tags.get(node.name), **options)


EVERYTHING = Takes(lambda node: "all")


def registry(*backends: type[BackendDetails]) -> PluginRegistry:
    result = PluginRegistry()
    for backend in backends:
        result.register("lowerings", backend.__name__, backend)
    return result


def functional(model: torch.nn.Module, *args: Any, **options: Any) -> ExportedProgram:
    return export(model, args, **options).run_decompositions()


def lower(model: torch.nn.Module, args: Sequence[Any], *partitioners: Partitioner, **options: Any) -> Delegated:
    return to_backend({"forward": functional(model, *args, **options)}, partitioners, registry(Names))


def modules(delegated: Delegated, method: str = "forward") -> list[LoweredBackendModule]:
    return [delegate.lowered_module for delegate in delegated.partitions[method]]


def calls(program: ExportedProgram) -> list[str]:
    return [node.name for node in program.graph.nodes if node.op == "call_function"]


def assert_same(delegated: Delegated, model: torch.nn.Module, *args: Any) -> None:
    with torch.no_grad():
        torch.testing.assert_close(delegated.programs["forward"].module()(*args), model(*args))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.norm(self.conv(x)).relu().sigmoid().mean((2, 3))
        return self.linear(y), y


IMAGE = torch.randn(2, 3, 6, 6)


def test_a_delegate_takes_its_weights_along() -> None:
    model = Net().eval()
    taken = {"convolution": "a", "_native_batch_norm_legit_no_training": "a", "relu": "a", "addmm": "b", "permute": "b"}
    delegated = lower(model, (IMAGE,), by_name(taken))
    program = delegated.programs["forward"]
    assert calls(program) == [
        "executorch_call_delegate",
        "getitem_1",
        "sigmoid",
        "mean",
        "executorch_call_delegate_1",
        "getitem_2",
    ]
    assert set(program.state_dict) == {"norm.num_batches_tracked"}
    first, second = modules(delegated)
    assert set(first.original_module.state_dict) == {
        *("conv.weight", "conv.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var")
    }
    assert first.original_module.state_dict["conv.weight"].data_ptr() == model.conv.weight.data_ptr()
    assert [spec.arg.name for spec in second.original_module.graph_signature.input_specs][-1] == "mean"
    assert_same(delegated, model, IMAGE)


def test_the_given_program_is_not_changed() -> None:
    program = functional(Net().eval(), IMAGE)
    before = (str(program), set(program.state_dict))
    to_backend({"forward": program}, [EVERYTHING], registry(Names))
    assert (str(program), set(program.state_dict)) == before
    assert not any(TAG in node.meta for node in program.graph.nodes)


def test_a_whole_model_in_one_delegate() -> None:
    model = Net().eval()
    delegated = lower(model, (IMAGE,), EVERYTHING)
    assert calls(delegated.programs["forward"]) == ["executorch_call_delegate", "getitem_1", "getitem_2"]
    assert_same(delegated, model, IMAGE)


def test_a_partition_is_a_program_that_runs_by_itself() -> None:
    model = Net().eval()
    [lowered] = modules(lower(model, (IMAGE,), EVERYTHING))
    mean, linear = lowered.original_module.module()(IMAGE)  # outputs in graph order
    torch.testing.assert_close((linear, mean), model(IMAGE))


def test_calls_are_put_in_order_around_a_delegate() -> None:
    class Interleaved(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            a = x.relu()
            b = a.sigmoid()  # stands before the delegate's last node, and reads the delegate
            return b, x.tanh()

    delegated = lower(Interleaved(), (X,), by_name({"relu": "t", "tanh": "t"}))
    assert calls(delegated.programs["forward"]) == ["executorch_call_delegate", "getitem", "getitem_1", "sigmoid"]
    assert_same(delegated, Interleaved(), X)


def test_partitioners_in_order_of_priority() -> None:
    model = Net().eval()
    first = by_name({"relu": "t", "sigmoid": "t"})
    delegated = lower(model, (IMAGE,), first, Takes(lambda node: "t" if node.name == "mean" else None))
    assert [(d.partitioner, d.nodes) for d in delegated.partitions["forward"]] == [
        ("Takes", ("relu", "sigmoid")),
        ("Takes (2)", ("mean",)),
    ]
    assert_same(delegated, model, IMAGE)


def test_a_tagged_delegate_call_becomes_a_delegate_in_a_delegate() -> None:
    class Greedy(Partitioner):
        def partition(self, exported_program: ExportedProgram) -> PartitionResult:
            for node in exported_program.graph.nodes:
                if node.op == "call_function":
                    node.meta[TAG] = "mine"
            tag_constant_data(exported_program)
            return PartitionResult(exported_program, {"mine": DelegationSpec("Outer")})

    class Outer(BackendDetails):
        """Its blob is those of the delegates in it."""

        @staticmethod
        def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
            return PreprocessResult(b"|".join(m.processed_bytes for m in lowered_modules(edge_program.graph_module)))

    model = Net().eval()
    programs = {"forward": functional(model, IMAGE)}
    delegated = to_backend(programs, [by_name({"relu": "t"}), Greedy()], registry(Names, Outer))
    inner, outer = modules(delegated)
    assert json.loads(inner.processed_bytes) == [["relu"], {"mode": "fast"}]
    assert (outer.backend_id, outer.processed_bytes) == ("Outer", inner.processed_bytes)
    assert lowered_modules(delegated.programs["forward"].graph_module) == [outer]
    assert_same(delegated, model, IMAGE)


def test_compiling_leaves_what_was_cut_as_it_was() -> None:
    cut = delegate({"forward": functional(Net().eval(), IMAGE)}, {"names": by_name({"relu": "t", "mean": "u"})})
    compiled = compile_partitions(cut, registry(Names))
    done = cut.with_blobs(compiled)
    assert not any(module.is_compiled or module.processed_bytes for module in modules(cut))
    assert modules(done) == list(compiled.values()) and all(module.processed_bytes for module in modules(done))
    for delegated in (cut, done):
        assert lowered_modules(delegated.programs["forward"].graph_module) == modules(delegated)


# ---- constants and state ---------------------------------------------------------------------------


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((x + self.weight).relu() * self.weight).sigmoid() - self.weight


def test_a_shared_constant_goes_to_every_delegate_and_stays_where_it_is_read() -> None:
    model = Tied()
    delegated = lower(model, (X,), by_name({"add": "a", "mul": "b"}))
    assert [set(m.original_module.state_dict) for m in modules(delegated)] == [{"weight"}, {"weight"}]
    assert set(delegated.programs["forward"].state_dict) == {"weight"}
    assert_same(delegated, model, X)


def test_no_copy_keeps_a_shared_constant_outside() -> None:
    class NoCopy(Takes):
        def partition(self, exported_program: ExportedProgram) -> PartitionResult:
            for node in exported_program.graph.find_nodes(op="placeholder"):
                node.meta["no_copy"] = True
            return super().partition(exported_program)

    model = Tied()
    delegated = lower(model, (X,), NoCopy(lambda node: {"add": "a", "mul": "b"}.get(node.name)))
    assert [dict(m.original_module.state_dict) for m in modules(delegated)] == [{}, {}]
    assert_same(delegated, model, X)


def test_untagged_constants_are_inputs() -> None:
    model = Tied()
    delegated = lower(model, (X,), by_name({"add": "a"}, constants=False))
    [lowered] = modules(delegated)
    assert [spec.kind for spec in lowered.original_module.graph_signature.input_specs] == [InputKind.USER_INPUT] * 2
    assert_same(delegated, model, X)


class Counter(torch.nn.Module):
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(x)
        return self.count * 2


def test_a_delegate_keeps_the_state_that_it_alone_changes() -> None:
    delegated = lower(Counter(), (torch.ones(4),), EVERYTHING)
    program = delegated.programs["forward"]
    assert [spec.kind for spec in program.graph_signature.input_specs] == [InputKind.USER_INPUT]
    assert [spec.kind for spec in program.graph_signature.output_specs] == [OutputKind.USER_OUTPUT]
    assert not program.state_dict
    [lowered] = modules(delegated)
    assert lowered.original_module.graph_signature.buffers_to_mutate == {"add": "count"}
    run = program.module()
    assert [run(torch.ones(4))[0].item() for _ in range(3)] == [2, 4, 6]
    assert lowered.original_module.state_dict["count"].sum() == 0  # the initial value stays what it was


def test_state_read_elsewhere_stays_with_the_program() -> None:
    class Before(Counter):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            before = self.count * 2
            self.count.add_(x)
            return before

    delegated = lower(Before(), (torch.ones(4),), by_name({"add": "t"}))
    program = delegated.programs["forward"]
    assert [spec.kind for spec in program.graph_signature.output_specs] == [
        OutputKind.BUFFER_MUTATION,
        OutputKind.USER_OUTPUT,
    ]
    run = program.module()
    assert [run(torch.ones(4))[0].item() for _ in range(3)] == [0, 2, 4]


# ---- shapes, control flow, methods -----------------------------------------------------------------


def test_symbolic_sizes_cross_the_border() -> None:
    class Flat(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu().view(x.shape[0] * 2, -1).sigmoid()

    options = {"dynamic_shapes": ({0: Dim("n", min=2, max=8)},)}
    delegated = lower(Flat(), (X,), Takes(lambda n: "t" if n.name in ("relu", "view", "sigmoid") else None), **options)
    [lowered] = modules(delegated)
    kinds = [type(spec.arg).__name__ for spec in lowered.original_module.graph_signature.input_specs]
    assert sorted(kinds) == ["SymIntArgument", "TensorArgument"]
    for rows in (2, 3, 8):
        assert_same(delegated, Flat(), torch.randn(rows, 4))


class Branch(torch.nn.Module):
    def forward(self, p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        y = torch.cond(p, lambda x: x.relu().sigmoid(), lambda x: x.tanh(), (x,))
        return y.exp()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("tags", "paths"),
    [
        ({"relu": "t"}, ["true_graph_0"]),
        ({"tanh": "t", "exp": "u"}, ["", "false_graph_0"]),
        ({"cond": "t", "getitem": "t", "exp": "t"}, [""]),
    ],
)
def test_delegates_in_and_around_control_flow(tags: dict[str, str], paths: list[str]) -> None:
    model = Branch()
    args = (torch.tensor(True), X)
    program = functional(model, *args)
    delegated = to_backend({"forward": program}, [by_name(tags)], registry(Names))
    assert [delegate.path for delegate in delegated.partitions["forward"]] == paths
    assert not any(is_delegate_call(node) for _, m in graph_modules(program.graph_module) for node in m.graph.nodes)
    assert_same(delegated, model, torch.tensor(True), X)
    assert_same(delegated, model, torch.tensor(False), X)


class Together(BackendDetails):
    """Compiles all methods at once; the blob says how many partitions it saw."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        raise NotImplementedError

    @classmethod
    def preprocess_multimethod(
        cls,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        seen = json.dumps({method: len(programs) for method, programs in edge_programs.items()}).encode()
        return {method: [PreprocessResult(seen) for _ in programs] for method, programs in edge_programs.items()}


def test_a_backend_sees_all_methods_at_once() -> None:
    programs = {"encode": functional(Net().eval(), IMAGE), "decode": functional(Counter(), torch.ones(4))}
    takes = [Takes(lambda node: node.name, "Together"), Takes(lambda node: None, "Together")]
    delegated = to_backend(programs, takes, registry(Together))
    blobs = {m.processed_bytes for method in programs for m in modules(delegated, method)}
    assert [json.loads(blob) for blob in blobs] == [{"encode": 7, "decode": 2}]


# ---- blobs -----------------------------------------------------------------------------------------


def test_a_blob_is_stamped_and_keeps_its_specs() -> None:
    [lowered] = modules(lower(Counter(), (torch.ones(4),), EVERYTHING))
    assert json.loads(lowered.processed_bytes) == [["add", "mul"], {"mode": "fast"}]
    assert lowered.compile_specs == [CompileSpec("mode", b"fast")]
    assert [spec.key for spec in lowered.stamped_compile_specs] == ["mode", "delegraph.stamp"]
    module = Names.__module__.partition(".")[0]
    assert read_stamp(lowered.stamped_compile_specs) == BlobStamp("Names", module, "0", 7)
    assert lowered.debug_handle_map == {0: [1, 2]}


def test_debug_handles_of_the_nodes_are_kept() -> None:
    program = functional(Counter(), torch.ones(4))
    for i, node in enumerate(program.graph.nodes):
        node.meta["debug_handle"] = 10 + i
    delegated = to_backend({"forward": program}, [EVERYTHING], registry(Names))
    [lowered] = modules(delegated)
    assert lowered.debug_handles == (12, 13)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(PluginNotFound, match="'Nobody'"):
        to_backend(
            {"forward": functional(Counter(), torch.ones(4))}, [Takes(lambda node: "t", "Nobody")], registry(Names)
        )


def _failing(answer: Callable[[ExportedProgram], Any]) -> type[BackendDetails]:
    class Failing(BackendDetails):
        @staticmethod
        def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
            return answer(edge_program)  # type: ignore[no-any-return]

    return Failing


def _raise(error: Exception) -> Callable[[ExportedProgram], Any]:
    def answer(program: ExportedProgram) -> Any:
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (
            _raise(ValueError("no room")),
            PreprocessError,
            "preprocess of lowerings:Failing .* failed: ValueError: no room",
        ),
        (
            lambda program: DelegateMappingBuilder().insert_delegate_mapping_entry(),
            PreprocessError,
            "either nodes or h",
        ),
        (lambda program: b"blob", PreprocessError, "preprocess returned bytes instead of a PreprocessResult"),
        (lambda program: PreprocessResult("text"), PreprocessError, "processed_bytes is str instead of bytes"),  # type: ignore[arg-type]
    ],
)
def test_a_failing_preprocess_is_named(answer: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        to_backend(
            {"forward": functional(Counter(), torch.ones(4))},
            [Takes(lambda node: "t", "Failing")],
            registry(_failing(answer)),
        )
    if error is PreprocessError:
        assert "partition: tag 't' of method 'forward': add, mul" in str(caught.value)


def test_a_preprocess_that_changes_the_users_weights_is_an_error() -> None:
    program = functional(torch.nn.Linear(64, 64), torch.ones(4, 64))
    takes = [Takes(lambda node: "t", "Failing")]
    with pytest.raises(
        PreprocessError, match=r"it changed 'weight', a weight of the user's model, which is spoilt now"
    ):
        to_backend({"forward": program}, takes, registry(_failing(lambda p: p.state_dict["weight"].data.mul_(2))))


def test_a_preprocess_that_takes_the_examples_size_for_every_calls_is_an_error() -> None:
    program = functional(torch.nn.Linear(4, 4), torch.ones(3, 4), dynamic_shapes=({0: Dim("n")},))
    takes = [Takes(lambda node: "t", "Failing")]
    with pytest.raises(PreprocessError, match=r"it took the example's size for every call's \(\w+ is 3\): int\(\), or"):
        to_backend({"forward": program}, takes, registry(_failing(_size_of_the_example)))


def _size_of_the_example(program: ExportedProgram) -> PreprocessResult:
    inputs = (node.meta["val"] for node in program.graph.find_nodes(op="placeholder"))
    return PreprocessResult(bytes(next(int(s) for x in inputs for s in x.shape if isinstance(s, torch.SymInt))))


def test_results_of_all_methods_have_to_fit() -> None:
    class Forgetful(Together):
        @classmethod
        def preprocess_multimethod(
            cls,
            edge_programs: dict[str, list[ExportedProgram]],
            compile_specs: dict[str, list[list[CompileSpec]]],
        ) -> dict[str, list[PreprocessResult]]:
            return {}

    with pytest.raises(PreprocessError, match=r"returned \{\} results by method instead of \{'forward': 1\}"):
        to_backend(
            {"forward": functional(Counter(), torch.ones(4))},
            [Takes(lambda node: "t", "Forgetful")],
            registry(Forgetful),
        )
