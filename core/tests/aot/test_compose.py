"""Backends compose: the first of `backends=[…]` gets what it gets alone, whoever stands behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import permutations
from typing import Any

import pytest
import torch
from benchmarks import models
from torch.export import Dim, ExportedProgram, export

from delegraph.aot import (
    BackendDetails,
    CompileSpec,
    EdgeCompileConfig,
    EdgeProgramManager,
    Partitioner,
    PartitionResult,
    PreprocessResult,
)
from delegraph.aot import to_edge_transform_and_lower as lower_to
from delegraph.plugins.registry import PluginRegistry
from delegraph_partitioners import CapabilityBasedPartitioner


class Compiles(BackendDetails):
    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        return PreprocessResult(b"blob")


PLUGINS = PluginRegistry()
for backend in ("A", "B", "C"):
    PLUGINS.register("lowerings", backend, Compiles)


def takes(backend: str, operators: str, whole: str = "", **options: Any) -> Partitioner:
    """Takes calls of `operators`, in as few partitions as can be, and asks to see those in `whole` undecomposed."""
    names = frozenset(operators.split())

    def support(node: torch.fx.Node) -> str | None:
        name = getattr(getattr(node.target, "_schema", None), "name", "").removeprefix("aten::")
        return None if name in names else f"{backend} has no {name}"

    options = {"allow_trivial": True, "keep_whole": [overload(name) for name in whole.split()], **options}
    return CapabilityBasedPartitioner(backend, support, **options)


def overload(name: str) -> torch._ops.OpOverload:
    packet, _, overload = name.partition(".")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return found


def three() -> dict[str, Partitioner]:
    """Three backends whose operators, and whose whole ones, overlap."""
    attention = "scaled_dot_product_attention"
    return {
        "A": takes("A", f"linear conv2d gelu relu add {attention}", "linear conv2d gelu"),
        "B": takes("B", f"addmm mm bmm convolution permute_copy layer_norm {attention}", f"{attention} layer_norm"),
        "C": takes("C", "linear lstm layer_norm conv2d softmax mul", "linear lstm.input layer_norm softmax.int"),
    }


def operators(manager: EdgeProgramManager, method: str = "forward") -> dict[str, list[str]]:
    """Backend -> the operators of its partitions; "" -> what was left."""
    report = manager.report.methods[method]
    found: dict[str, Counter[str]] = {"": Counter(entry.operator for entry in report.leftovers)}
    for entry in report.delegates:
        found.setdefault(entry.backend, Counter()).update(entry.operators)
    return {backend: sorted(counter.elements()) for backend, counter in found.items()}


Taken = list[tuple[str, dict[str, int]]]


def taken_by(backend: str, manager: EdgeProgramManager, method: str = "forward") -> Taken:
    """The partitions of one backend: in which graph, which operators and how often."""
    entries = manager.report.methods[method].delegates
    return [(e.graph, dict(sorted(e.operators.items()))) for e in entries if e.backend == backend]


def assert_the_first_is_not_disturbed(
    programs: Any, methods: Sequence[str] = ("forward",), orders: Sequence[tuple[str, ...]] | None = None
) -> None:
    """In every order of three backends, or in `orders`: the first one's partitions are those that it has alone."""
    alone = {name: lower_to(programs, partitioner=[one], plugins=PLUGINS) for name, one in three().items()}
    assert any(taken_by(name, manager, methods[0]) for name, manager in alone.items())
    for order in orders or permutations(three()):
        together = lower_to(programs, partitioner=[three()[name] for name in order], plugins=PLUGINS)
        for method in methods:
            assert taken_by(order[0], together, method) == taken_by(order[0], alone[order[0]], method), order


@cache
def exported(name: str) -> ExportedProgram:
    model, args = models.make(name)
    return export(model, args)


@pytest.mark.models
@pytest.mark.parametrize("model", models.MODELS)
def test_what_the_first_takes_is_the_same_as_when_it_is_alone(model: str) -> None:
    each_is_first_once = tuple(permutations(three()))[::2]
    assert_the_first_is_not_disturbed(exported(model), orders=None if model == "lstm" else each_is_first_once)


class Branches(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def chosen(y: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.gelu(self.linear(y)).tanh()

        def other(y: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.layer_norm(y, (4,)) * 2

        return torch.cond(x.sum() > 0, chosen, other, (self.linear(x),)).relu()  # type: ignore[no-any-return]


def test_so_it_is_in_control_flow_and_with_several_methods_that_share_weights() -> None:
    model = Branches().requires_grad_(False)
    programs = {"forward": export(model, (X,)), "prefill": export(model, (torch.randn(3, 4),))}
    assert_the_first_is_not_disturbed(programs, ("forward", "prefill"))


def test_so_it_is_with_dynamic_shapes() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(16, 4), torch.nn.GELU())
    x = torch.randn(2, 1, 4, 4)
    assert_the_first_is_not_disturbed(export(model, (x,), dynamic_shapes=({0: Dim("batch", max=8)},)))


class TwoLinears(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(self.two(self.one(x)).tanh())


X = torch.randn(2, 4)


def both(model: torch.nn.Module, *partitioners: Partitioner) -> EdgeProgramManager:
    """`model` on the partitioners' backends; it still computes the same."""
    manager = lower_to(export(model, (X,)), partitioner=list(partitioners), plugins=PLUGINS)
    torch.testing.assert_close(manager.exported_program().module()(X), model(X))
    return manager


def test_a_backend_behind_takes_nothing_by_what_it_wants_whole() -> None:
    manager = both(TwoLinears(), takes("A", "addmm permute_copy"), takes("B", "linear mm tanh", "linear"))
    assert operators(manager) == {
        "A": ["aten::addmm", "aten::permute_copy", "aten::permute_copy"],
        "B": ["aten::mm", "aten::tanh"],  # A has the permute of `two`: what it left of that linear is a mm
        "": ["aten::gelu"],
    }


def test_what_the_first_leaves_comes_to_the_next_undecomposed() -> None:
    manager = both(TwoLinears(), takes("A", "addmm"), takes("B", "linear gelu", "linear gelu"))
    assert operators(manager) == {
        "A": ["aten::addmm"],
        "B": ["aten::gelu", "aten::linear"],
        "": ["aten::permute_copy", "aten::tanh"],
    }


def test_the_report_tells_who_saw_what_in_which_form() -> None:
    report = both(TwoLinears(), takes("A", "tanh"), takes("B", "linear", "linear")).report
    linear = report.methods["forward"].asked["aten_linear_default"]
    assert [(seen.operator, seen.reason) for seen in linear["CapabilityBasedPartitioner"]] == [
        ("aten::permute_copy", "A has no permute_copy"),
        ("aten::addmm", "A has no addmm"),
    ]
    second = linear["CapabilityBasedPartitioner (2)"]
    assert [(seen.operator, seen.tag, seen.reason) for seen in second] == [("aten::linear", "B_0", "")]


class Insists(Partitioner):
    """Wants to see linear whole, and takes none."""

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        nodes = exported_program.graph.nodes
        return PartitionResult(exported_program, {}, {n.name: "too big" for n in nodes if "linear" in n.name})

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[torch._ops.OpOverload], None]:
        return [torch.ops.aten.linear.default], None


def test_a_leftover_that_was_seen_whole_says_so() -> None:
    report = both(TwoLinears(), takes("A", "tanh"), Insists()).report
    [addmm] = [entry for entry in report.methods["forward"].leftovers if entry.operator == "aten::addmm"]
    assert addmm.reasons == {"CapabilityBasedPartitioner": "A has no addmm", "Insists": "as aten::linear: too big"}


def test_two_partitioners_of_one_class_have_names_of_their_own() -> None:
    report = both(TwoLinears(), takes("A", "tanh"), takes("A", "gelu"), takes("A", "linear")).report
    assert report.partitioners == tuple(f"CapabilityBasedPartitioner{n}" for n in ("", " (2)", " (3)"))


class Sizes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.arange(x.shape[0] * 2), x.relu()


def test_numbers_that_a_partition_computes_are_computed_outside_as_well() -> None:
    program = export(Sizes(), (X,), dynamic_shapes=({0: Dim("batch", max=8)},))
    everything = takes("A", "relu sym_size", take_scalars=True)
    everything.support = lambda node: None if "arange" not in str(node.target) else "has no arange"  # type: ignore[attr-defined]
    manager = lower_to(program, partitioner=[everything], plugins=PLUGINS)
    for partition in manager.report.methods["forward"].delegates:
        assert partition.backend == "A"
    x = torch.randn(3, 4)
    for got, wanted in zip(manager.exported_program().module()(x), Sizes()(x), strict=True):
        torch.testing.assert_close(got, wanted)
    calls = [node for node in manager.exported_program().graph.nodes if node.name.startswith("call_delegate")]
    assert all(isinstance(value, torch.Tensor) for call in calls for value in call.meta["val"])


class Scalars(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.rsub(x, 5) * torch.rsub(x, 7)


class KeepsTheSecond(Insists):
    def ops_to_not_decompose(self, ep: ExportedProgram) -> Any:
        return [torch.ops.aten.rsub.Scalar], lambda node: 7 in node.args


def test_constants_that_decomposing_adds_later_do_not_take_the_place_of_earlier_ones() -> None:
    both(Scalars(), KeepsTheSecond())


class Loss(torch.nn.Module):
    def forward(self, x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(x.tanh(), wanted)


class KeepsLoss(Insists):
    def ops_to_not_decompose(self, ep: ExportedProgram) -> Any:
        return [torch.ops.aten.cross_entropy_loss.default], None


def test_what_is_preserved_stays_whole_in_what_a_backend_saw_whole_and_left() -> None:
    program = export(Loss(), (X, torch.tensor([1, 2])))
    config = EdgeCompileConfig(preserve_ops=[torch.ops.aten.nll_loss_forward.default])
    manager = lower_to(program, partitioner=[KeepsLoss(), takes("A", "tanh")], compile_config=config, plugins=PLUGINS)
    assert operators(manager) == {"A": ["aten::tanh"], "": ["aten::_log_softmax", "aten::nll_loss_forward"]}
