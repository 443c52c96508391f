"""Who sees which weights: backends that take external ones, backends that do not, and what they store."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
import torch

import delegraph
from delegraph.aot import (
    BackendDetails,
    CompileSpec,
    ExecutorchBackendConfig,
    Lowered,
    LoweringConfig,
    NamedDataStore,
    PreprocessResult,
    ResolvedSignature,
    external_tag,
    layout_of,
)
from delegraph.errors import InvalidExternalData, LoweringError, PluginNotFound
from delegraph.plugins.registry import PluginRegistry
from delegraph.program import serialize_flat_tensor
from delegraph.program.flat_tensor import TensorLayout
from delegraph.program.schema import ScalarType
from delegraph.runtime import BackendInterface
from delegraph_partitioners import OperatorsPartitioner

INPUTS: dict[str, list[str]] = {}


class Bakes(BackendDetails):
    """Writes its weight into the blob, if it has one; else takes it as an input."""

    @staticmethod
    def preprocess(edge_program: Any, compile_specs: list[CompileSpec]) -> PreprocessResult:
        signature = ResolvedSignature.of(edge_program)
        INPUTS["Bakes"] = [node.name for node in signature.inputs]
        held = [held.tensor for held in signature.constants.values()]
        return PreprocessResult(b"".join(tensor.detach().numpy().tobytes() for tensor in held))


class Refers(BackendDetails):
    """Refers to the weight by its name; stores half of it where the specs ask for that."""

    takes_external_weights = True

    @staticmethod
    def preprocess(edge_program: Any, compile_specs: list[CompileSpec]) -> PreprocessResult:
        store, signature = NamedDataStore(), ResolvedSignature.of(edge_program)
        INPUTS["Refers"] = [node.name for node in signature.inputs]
        ((node, held),) = signature.constants.items()
        tensor = held.tensor / 2 if compile_specs else held.tensor
        store.add_named_data(held.name, tensor, 16, external_tag(node))
        return PreprocessResult(held.name.encode(), data_store_output=store.get_named_data_store_output())


class Multiplies(BackendInterface):
    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        name = bytes(processed)
        return np.frombuffer(context.named_data[name.decode()] if name == b"weight" else name, np.float32)

    def execute(self, context: Any, handle: Any, args: Sequence[Any]) -> None:
        *inputs, out = args
        weight = handle.reshape(4, 4) if handle.size else inputs[1]
        np.matmul(inputs[0], weight.T, out=out)


class Net(torch.nn.Module):
    """The weight is read by a backend and, in the second half, by a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.weight) + self.weight


@pytest.fixture
def registry() -> PluginRegistry:
    registry = PluginRegistry.discover()
    for lowering in (Bakes, Refers):
        registry.register("lowerings", lowering.__name__, lowering)
        registry.register("backends", lowering.__name__, Multiplies())
    return registry


def lowered(backend: str, registry: PluginRegistry, external: Any = True, *specs: CompileSpec) -> Lowered:
    torch.manual_seed(0)
    linear = torch.ops.aten.linear.default
    takes = OperatorsPartitioner(backend, ["aten::linear"], specs, keep_whole=[linear])
    config = LoweringConfig(executorch=ExecutorchBackendConfig(external_constants=external))
    return delegraph.lower(Net(), (torch.ones(2, 4, 4),), backends=[takes], config=config, plugins=registry)


def output(made: Lowered, registry: PluginRegistry) -> Any:
    data = [serialize_flat_tensor(file) for file in made.program.tensor_data.values()]
    return delegraph.load(bytes(made), data_path=data or None, plugins=registry)(np.ones((2, 4, 4), np.float32))


@pytest.mark.parametrize(("backend", "inputs"), [("Bakes", ["x", "p_weight"]), ("Refers", ["x"])])
def test_a_backend_bakes_no_external_weight(backend: str, inputs: list[str], registry: PluginRegistry) -> None:
    made = lowered(backend, registry)
    assert INPUTS[backend] == inputs
    (file,) = made.program.tensor_data.values()
    assert {key: str(entry.tensor_layout) for key, entry in file.named_data.items()} == {
        "weight": "FLOAT[4, 4] in dim order [0, 1]"
    }
    assert sum(len(blob) for blob in made.program.executorch_program.delegate_data) < 64
    torch.manual_seed(0)
    with torch.no_grad():
        np.testing.assert_allclose(output(made, registry), Net()(torch.ones(2, 4, 4)).numpy(), rtol=1e-6)


def test_without_the_option_the_weight_is_in_the_blob(registry: PluginRegistry) -> None:
    made = lowered("Bakes", registry, external=False)
    assert made.program.tensor_data == {} and len(INPUTS["Bakes"]) == 1
    assert [len(blob) for blob in made.program.executorch_program.delegate_data] == [64]


def test_something_else_under_the_name_of_a_weight(registry: PluginRegistry) -> None:
    with pytest.raises(LoweringError, match=r"_constant\.ptd would have two entries 'weight': a weight of"):
        lowered("Refers", registry, True, CompileSpec("half", b""))


def test_a_backend_that_nobody_offers_is_told_as_ever(registry: PluginRegistry) -> None:
    with pytest.raises(PluginNotFound, match="'Nobody'"):
        lowered("Nobody", registry)


def test_what_delegates_swallowed_before_the_option_was_known_is_not_mixed(registry: PluginRegistry) -> None:
    """`to_executorch` comes after the delegates were compiled, with their weights in them."""
    made = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        program = torch.export.export(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), Net()), _ARGS)
        takes = OperatorsPartitioner("Bakes", ["aten::linear"], keep_whole=[torch.ops.aten.linear.default])
        edge = delegraph.to_edge_transform_and_lower(program, partitioner=[takes], plugins=registry)
        made.append(edge.to_executorch(ExecutorchBackendConfig(external_constants=True)))
    (own,), (other,) = (list(manager.tensor_data.values()) for manager in made)
    delegraph.Program.load(made[0].buffer, data_path=serialize_flat_tensor(own))
    with pytest.raises(InvalidExternalData, match=r"the \.ptd was written with another program, and its '2\.weight'"):
        delegraph.Program.load(made[0].buffer, data_path=serialize_flat_tensor(other))


_ARGS = (torch.ones(2, 4, 4),)


def test_a_mark_that_came_with_the_program(registry: PluginRegistry) -> None:
    """As ExecuTorch's `delegate_external_constants_pass_unlifted` leaves it."""
    torch.manual_seed(0)
    program = torch.export.export(Net(), _ARGS)
    (weight,) = ResolvedSignature.of(program).constants
    weight.meta["custom"] = {"delegate_constant_tag": "far"}
    takes = OperatorsPartitioner("Refers", ["aten::linear"], keep_whole=[torch.ops.aten.linear.default])
    edge = delegraph.to_edge_transform_and_lower(program, partitioner=[takes], plugins=registry)
    assert {name: list(file.named_data) for name, file in edge.to_executorch().tensor_data.items()} == {
        "far": ["weight"]
    }


# ---- what is stored --------------------------------------------------------------------------------


def test_a_tensor_has_its_layout_in_a_file() -> None:
    store, image = NamedDataStore(), torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
    store.add_named_data("image", image, external_tag="file")
    store.add_named_data("text", b"words", external_tag="file")
    store.add_named_data("image", image, 8, external_tag="file")
    entries = store.get_named_data_store_output().external_data["file"]
    assert entries["image"].tensor_layout == TensorLayout(ScalarType.FLOAT, (1, 2, 3, 4), (0, 2, 3, 1))
    assert entries["image"].tensor_layout == layout_of(image)
    assert bytes(entries["image"].data) == image.permute(0, 2, 3, 1).contiguous().numpy().tobytes()
    assert (entries["image"].alignment, entries["text"].tensor_layout) == (8, None)


def test_one_key_has_one_layout() -> None:
    store = NamedDataStore()
    store.add_named_data("w", torch.zeros(2, 3), external_tag="file")
    with pytest.raises(ValueError, match=r"'w' is FLOAT\[2, 3\] in dim order \[0, 1\], now FLOAT\[3, 2\]"):
        store.add_named_data("w", torch.zeros(3, 2), external_tag="file")


def test_what_is_for_the_pte_goes_into_shards() -> None:
    def shards(*keys: str) -> dict[str, list[tuple[str, bytes, int]]]:
        store = NamedDataStore()
        content = {"a": b"six456", "again": b"six456", "b": b"four", "c": b"five5"}
        for key in keys:
            store.add_named_data(key, content[key], 16)
        store.add_named_data("far", b"x", external_tag="side")
        for _ in range(2):
            store.externalize_pte_data(10, "part")
        output = store.get_named_data_store_output()
        assert not output.pte_data and list(output.external_data.pop("side")) == ["far"]
        return {
            tag: [(key, bytes(entry.data), entry.alignment) for key, entry in entries.items()]
            for tag, entries in output.external_data.items()
        }

    first = shards("a", "again", "b", "c")
    assert shards("c", "b", "again", "a") == first
    assert [[key for key, *_ in entries] for entries in first.values()] == [["a", "again", "b"], ["c"]]
    assert list(first)[1] == f"part_{sha256(b'c').hexdigest()}"


def test_what_goes_into_no_shard() -> None:
    store = NamedDataStore()
    store.add_named_data("w", b"eleven bytes", 16)
    store.add_named_data("far", b"x", external_tag=f"part_{sha256(b'w').hexdigest()}")
    with pytest.raises(ValueError, match="'w': 12 bytes exceeds external data shard cap 11"):
        store.externalize_pte_data(11, "part")
    with pytest.raises(ValueError, match="external data tag collision: part_"):
        store.externalize_pte_data(12, "part")
    with pytest.raises(ValueError, match="max_data_bytes is True; an external data shard takes a positive integer"):
        store.externalize_pte_data(True, "part")
    with pytest.raises(ValueError, match="tag_prefix is empty"):
        store.externalize_pte_data(12, "")
    assert list(store.get_named_data_store_output().pte_data) == ["w"]
