"""A partition that is another one at some sizes has its blob: it is not compiled."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export

from delegraph.aot import BackendDetails, CompileSpec, PreprocessResult, to_edge
from delegraph.aot.delegation.instances import instances_of
from delegraph.aot.delegation.lowered_module import LoweredBackendModule, lowered_modules
from delegraph.plugins.registry import PluginRegistry
from delegraph_partitioners import CapabilityBasedPartitioner

from .delegating import to_backend

COMPILED: list[ExportedProgram] = []


class Free(BackendDetails):
    """A blob is the number of its program; the debug handle map has every call by its operator."""

    serves: ClassVar[bool] = True

    @classmethod
    def serves_fixed_sizes(cls, edge_program: ExportedProgram, compile_specs: Sequence[CompileSpec]) -> bool:
        return cls.serves

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        COMPILED.append(edge_program)
        calls = [node for node in edge_program.graph.nodes if node.op == "call_function"]
        handles = {str(node): (node.meta["debug_handle"],) for node in calls if "debug_handle" in node.meta}
        return PreprocessResult(str(len(COMPILED)).encode(), handles)


class Decoder(nn.Module):
    """Rows with their number and the last one's position, as a language model has them; `step` is added to a state."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(16, width), nn.Linear(width, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, tokens: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        length = tokens.shape[1]
        rows = self.table(tokens).view(1, length, -1) * length
        return self.head(rows[:, -1:]) + start + self.calls  # type: ignore[no-any-return]


def exported(model: nn.Module, length: int | Dim) -> ExportedProgram:  # type: ignore[valid-type]
    tokens = torch.zeros(1, length if isinstance(length, int) else 5, dtype=torch.long)
    sizes = {"tokens": {1: length} if not isinstance(length, int) else None, "start": None}
    return export(model, (tokens, torch.tensor(1.0)), dynamic_shapes=sizes)


def delegates(programs: Mapping[str, ExportedProgram]) -> dict[str, list[LoweredBackendModule]]:
    """Compiled for `Free`, all calls in one partition."""
    COMPILED.clear()
    registry = PluginRegistry.discover()
    registry.register("lowerings", "Free", Free)
    takes_all = CapabilityBasedPartitioner("Free", lambda node: None, take_scalars=True, take_mutated_buffers=True)
    edge = {name: to_edge(program).exported_program() for name, program in programs.items()}
    done = to_backend(edge, [takes_all], registry)
    return {name: lowered_modules(program.graph_module) for name, program in done.programs.items()}


def blobs(**programs: ExportedProgram) -> list[bytes]:
    return [bytes(module.processed_bytes) for own in delegates(programs).values() for module in own]


ANY = Dim("length", min=2, max=64)


def test_a_step_has_the_blob_of_any_number_of_steps() -> None:
    model = Decoder()
    made = delegates({"decode": exported(model, 1), "prefill": exported(model, ANY)})
    [decode], [prefill] = made["decode"], made["prefill"]
    assert len(COMPILED) == 1
    assert decode.processed_bytes == prefill.processed_bytes
    own = {node.meta["debug_handle"] for node in decode.original_module.graph.nodes if "debug_handle" in node.meta}
    assert decode.debug_handle_map.keys() == prefill.debug_handle_map.keys()
    handles = {handle for of_call in decode.debug_handle_map.values() for handle in of_call}
    assert handles <= own
    assert len(handles) >= 5, "the calls of the general program are those of the step"


def test_equal_methods_are_compiled_once() -> None:
    model = Decoder()
    first, second = blobs(a=exported(model, ANY), b=exported(model, Dim("n", min=4, max=32)))
    assert first == second


def _other_weights(model: Decoder) -> Decoder:
    other = copy.deepcopy(model)
    nn.init.ones_(other.head.weight)
    return other


class Another(Decoder):
    def forward(self, tokens: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        return super().forward(tokens, start) * 2


class OtherNumber(Decoder):
    def forward(self, tokens: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        self.calls.add_(1)
        rows = self.table(tokens).view(1, length, -1) * (length + 1)
        return self.head(rows[:, -1:]) + start + self.calls  # type: ignore[no-any-return]


class OtherState(Decoder):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("others", torch.zeros(1))

    def forward(self, tokens: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        self.others.add_(1)
        length = tokens.shape[1]
        rows = self.table(tokens).view(1, length, -1) * length
        return self.head(rows[:, -1:]) + start + self.others  # type: ignore[no-any-return]


def _with_weights_of(model: Decoder, cls: type[Decoder]) -> Decoder:
    other = cls()
    other.load_state_dict({**other.state_dict(), **model.state_dict()})
    return other


@pytest.mark.parametrize("case", ["weights", "calls", "number", "state", "range", "longer"])
def test_another_program_is_compiled_for_itself(case: str) -> None:
    model = Decoder()
    general, other = {
        "weights": lambda: (exported(model, ANY), exported(_other_weights(model), 1)),
        "calls": lambda: (exported(model, ANY), exported(_with_weights_of(model, Another), 1)),
        "number": lambda: (exported(model, ANY), exported(_with_weights_of(model, OtherNumber), 1)),
        "state": lambda: (exported(model, ANY), exported(_with_weights_of(model, OtherState), 1)),
        "range": lambda: (exported(model, Dim("length", min=4, max=64)), exported(model, 1)),
        "longer": lambda: (exported(model, ANY), exported(model, 65)),
    }[case]()
    first, second = blobs(a=general, b=other)
    assert first != second
    assert len(COMPILED) == 2


def test_without_a_word_of_the_backend_all_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Free, "serves", False)
    first, second = blobs(a=exported(model := Decoder(), ANY), b=exported(model, 1))
    assert first != second


def test_options_and_fall_backs_are_not_mixed() -> None:
    model = Decoder()
    programs = {"prefill": exported(model, ANY), "decode": exported(model, 1)}
    [prefill], [decode] = delegates(programs).values()
    assert instances_of({"a": [prefill], "b": [decode]}, lambda module: True).keys() == {decode}
    decode.has_fallback = True
    assert not instances_of({"a": [prefill], "b": [decode]}, lambda module: True)
