"""The partitioner asks a device: one that is told here what to say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import onnx
import pytest
import torch
from torch import nn

from delegraph.aot import to_edge
from delegraph.interfaces import Partitioner
from delegraph_providers.aot import asking
from delegraph_providers.aot.assigning import Assigned, Graph
from delegraph_providers.aot.compiling import Compiled
from delegraph_providers.aot.partitioner import qnn_partitioner, webgpu_partitioner
from delegraph_providers.engine import ProviderFailed
from delegraph_providers.options import GraphOptions
from delegraph_providers.providers import QNN, Provider


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu().sigmoid()).tanh()  # type: ignore[no-any-return]


class Told:
    """Refuses graphs that have all of the operators `refused`, and leaves those of `left` to the CPU."""

    def __init__(self, left: Collection[str] = (), refused: Collection[str] = ()) -> None:
        self.left, self.refused, self.asked = left, refused, list[list[str]]()

    def compiled(self, provider: Provider, model: bytes, options: Mapping[str, str]) -> Compiled:
        assert (provider, options["htp_arch"]) == (QNN, "73")
        nodes = onnx.load_from_string(model).graph.node
        self.asked.append([node.op_type for node in nodes])
        if self.refused and {*self.refused} <= {*self.asked[-1]}:
            raise ProviderFailed("no memory")
        return Compiled((), tuple(node for node in nodes if node.op_type in self.left))


def reasons(told: Told, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(asking, "compiled", told.compiled)
    program = to_edge(torch.export.export(Model(), (torch.randn(2, 4),))).exported_program()
    declined = qnn_partitioner(soc_model=43, htp_arch=73).partition(program).declined
    return {name.removeprefix("aten_").removesuffix("_default"): reason for name, reason in declined.items()}


def test_a_device_that_takes_all_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    assert reasons(told, monkeypatch) == {}
    assert len(told.asked) == 1


def test_what_it_leaves_is_left_and_the_rest_asked_about_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(left={"Sigmoid"})
    assert reasons(told, monkeypatch) == {"sigmoid": "the provider leaves its Sigmoid to the CPU"}
    assert len(told.asked) == 3, "the whole, then what stands before it and behind it"


def test_a_graph_that_is_refused_is_asked_about_call_by_call(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(refused={"Tanh"})
    assert reasons(told, monkeypatch) == {"tanh": "the provider fails: no memory"}


def test_calls_that_are_refused_together_alone_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(refused={"Relu", "Sigmoid"})
    left = reasons(told, monkeypatch)
    assert {*left.values()} == {"the provider takes each call of its partition, and not all: no memory"}
    assert {"relu", "sigmoid"} <= left.keys()


class Deep(nn.Module):
    """Alike layers, of weights of their own, and a call that is refused."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).sigmoid()
        return x.tanh()


@pytest.mark.parametrize("partitioner", [qnn_partitioner, webgpu_partitioner])
def test_alike_layers_are_asked_about_once(
    partitioner: Callable[..., Partitioner], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(depth: int) -> int:
        questions: list[bytes] = []

        def answer(content: bytes) -> None:
            questions.append(content)
            if any(node.op_type == "Tanh" for node in onnx.load_from_string(content).graph.node):
                raise ProviderFailed("no memory")

        def compiled(provider: Provider, content: bytes, options: Mapping[str, str]) -> Compiled:
            answer(content)
            return Compiled((), ())

        def assigned(provider: Provider, graph: Graph, options: GraphOptions) -> Assigned:
            answer(graph.content)
            return Assigned({}, ())

        monkeypatch.setattr(asking, "compiled", compiled)
        monkeypatch.setattr(asking, "assigned", assigned)
        program = to_edge(torch.export.export(Deep(depth), (torch.randn(2, 32),))).exported_program()
        assert partitioner().partition(program).declined == {"aten_tanh_default": "the provider fails: no memory"}
        return len(questions)

    assert asked(3) == asked(12) == 5, "all, a layer's two calls, tanh, and all before tanh"


def test_a_tuple_of_constants_is_left_with_its_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(8.0).reshape(2, 4))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            first, second = (self.table * 2).split(2, 1)
            return x.relu() + first, second

    monkeypatch.setattr(asking, "compiled", Told().compiled)
    program = to_edge(torch.export.export(Split(), (torch.randn(2, 2),))).exported_program()
    result = qnn_partitioner(soc_model=43, htp_arch=73).partition(program)
    assert "reads nothing but constants" in result.declined["aten_split_with_sizes_copy_default"]
    assert {node.name for node in program.graph.nodes if "delegation_tag" in node.meta} >= {"aten_relu_default"}


def test_an_element_of_a_result_is_left_with_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "compiled", Told(left={"LayerNormalization"}).compiled)
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU())
    program = to_edge(torch.export.export(model, (torch.randn(2, 4),))).exported_program()
    declined = qnn_partitioner(soc_model=43, htp_arch=73).partition(program).declined
    assert declined == {
        "aten_native_layer_norm_default": "the provider leaves its LayerNormalization to the CPU",
        "getitem": "is an element of aten_native_layer_norm_default, which was left",
    }
