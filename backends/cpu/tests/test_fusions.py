"""Attention to a cache, rotations and norms: one operator each where that means the same, and the parts where not."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from backends.cpu.tests.harness import run
from torch import nn

import delegraph
from delegraph import ExecutorchBackendConfig, Module
from delegraph.errors import DelegraphError
from delegraph_cpu.aot.compiled.in_place import changed_in_place
from delegraph_cpu.blob import unpack

pytestmark = pytest.mark.models

PLACES, HEADS, GROUPS, SIZE = 24, 4, 2, 16


class Attention(nn.Module):
    """A static cache, rotary positions, of each head or a part of it, grouped heads, a mask that may be a window: as
    transformers' models have it."""

    scale = 0.3

    def __init__(
        self,
        batch: int = 1,
        size: int = SIZE,
        window: int | None = None,
        turned: bool = True,
        future: int = 0,
        part: int | None = None,
    ) -> None:
        super().__init__()
        self.size, self.window, self.turned, self.future, self.part = size, window, turned, future, part
        self.register_buffer("keys", torch.zeros(batch, GROUPS, PLACES, size))
        self.register_buffer("values", torch.zeros(batch, GROUPS, PLACES, size))
        self.register_buffer("speeds", 1 / 100 ** (torch.arange(0, part or size, 2) / size), persistent=False)

    def forward(self, rows: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        batch, length, _ = rows.shape
        places = torch.arange(length) + position[0]
        query, key, value = self.projected(rows)
        if self.turned:
            angles = torch.cat([places[None, :, None].float() * self.speeds] * 2, -1)
            query, key = self.turn(query, angles), self.turn(key, angles)
        self.keys.index_copy_(2, places, key)
        self.values.index_copy_(2, places, value)
        keys, values = (
            cache[:, :, None].expand(batch, GROUPS, 2, PLACES, self.size).reshape(batch, HEADS, PLACES, self.size)
            for cache in (self.keys, self.values)
        )
        attended = self.attended(query, keys, values, self.seen(places))
        return attended.transpose(1, 2).reshape(batch, length, HEADS * self.size)

    def seen(self, places: torch.Tensor) -> torch.Tensor:
        columns = torch.arange(PLACES)[None, None, None, :]
        seen = columns <= places[None, None, :, None] + self.future
        return seen if self.window is None else (columns > places[None, None, :, None] - self.window) & seen

    def attended(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, seen: torch.Tensor
    ) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(query, keys, values, seen, scale=self.scale)

    def projected(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        query = self.parted(rows, HEADS)
        return query, query[:, ::2], query[:, 1::2]

    def parted(self, rows: torch.Tensor, heads: int) -> torch.Tensor:
        return rows.view(*rows.shape[:2], heads, self.size).transpose(1, 2)

    def turn(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        first, rest = x[..., : self.part], x[..., self.part :]
        half = first.shape[-1] // 2
        crossed = torch.cat([-first[..., half:], first[..., :half]], -1)
        turned = first * angles.cos()[:, None] + crossed * angles.sin()[:, None]
        return turned if self.part is None else torch.cat([turned, rest], -1)


def rows(length: int, batch: int = 1, size: int = SIZE) -> torch.Tensor:
    drawn = np.random.default_rng(length).normal(size=(batch, length, HEADS * size))
    return torch.from_numpy(drawn.astype(np.float32))


def lowered(attention: Attention) -> Module:
    batch, _, _, size = attention.keys.shape
    length = torch.export.Dim("length", min=2, max=PLACES)
    methods = {
        "prefill": torch.export.export(
            attention, (rows(5, batch, size), torch.arange(5)), dynamic_shapes=({1: length}, {0: length})
        ),
        "decode": torch.export.export(attention, (rows(1, batch, size), torch.arange(1))),
    }
    sharing = ExecutorchBackendConfig(share_mutable_buffers=True)
    return delegraph.load(bytes(delegraph.lower(methods, backends=["cpu"], config=sharing)), method="decode")


def operators(module: Module) -> list[Counter[str]]:
    """Of each delegate: how often it has which operator."""
    graphs = [unpack(blob).graph for blob in module.program.records.delegate_data]
    return [Counter(node.op_type for node in onnx.ModelProto.FromString(bytes(g)).graph.node) for g in graphs]


def assert_says_what_eager_says(module: Module, eager: Attention) -> None:
    batch, _, _, size = eager.keys.shape
    for method, at, length in (("prefill", 0, 5), ("decode", 5, 1), ("prefill", 6, 7), ("decode", 3, 1)):
        new, position = rows(length, batch, size), torch.arange(at, at + length)
        with torch.no_grad():
            wanted = eager(new, position).numpy()
        np.testing.assert_allclose(module[method](new.numpy(), position.numpy()), wanted, rtol=1e-4, atol=1e-5)
        for name in ("keys", "values"):
            np.testing.assert_allclose(module.state[name], getattr(eager, name).numpy(), rtol=1e-5, atol=1e-6)


FUSED: dict[str, dict[str, Any]] = {
    "all of it": {},
    "a window": {"window": 4},
    "no rotation": {"turned": False, "size": 8},
    "a rotation that the operator lacks": {"size": 8},
    "a rotation of a part": {"size": 32, "part": 16},
    "a rotation of a part that is all": {"part": 16},
    "a rotation of a part that the operator lacks": {"part": 8},
}


@pytest.mark.parametrize("form", FUSED)
def test_attention_to_a_cache_is_one_operator(form: str) -> None:
    module = lowered(Attention(**FUSED[form]))
    rotates = FUSED[form].get("turned", True) and not form.endswith("lacks")
    for counts in operators(module):
        assert counts["GroupQueryAttention"] == 1
        assert not {"ScatterND", "Softmax"} & counts.keys()
        assert bool({"Neg", "Sin", "Cos"} & counts.keys()) == form.endswith("lacks")
        assert not rotates or counts["MatMul"] == 0
    assert_says_what_eager_says(module, Attention(**FUSED[form]))
    before = module.state.copy()
    for place in (PLACES, PLACES + 7, -1, 10**9, 2**32 + 3, 3 - 2**32, 2**63 - 2):
        with pytest.raises(DelegraphError):
            module.decode(rows(1, size=module.state["keys"].shape[3]).numpy(), np.array([place]))
    for place in (PLACES - 2, -3, 2**32 - 1):
        with pytest.raises(DelegraphError):
            module.prefill(rows(5, size=module.state["keys"].shape[3]).numpy(), place + np.arange(5))
    assert all(np.array_equal(module.state[name], held) for name, held in before.items())


class TurnedElsewhere(Attention):
    """What is rotated is not the part whose place the result takes."""

    def turn(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        last = x[..., 16:]
        return torch.cat([last * angles.cos()[:, None] + crossed(last) * angles.sin()[:, None], last], -1)


def test_a_rotation_of_another_part_is_not_left_to_attention() -> None:
    form = {"size": 32, "part": 16}
    module = lowered(TurnedElsewhere(**form))
    for counts in operators(module):
        assert counts["GroupQueryAttention"] == 1
        assert counts["RotaryEmbedding"] == 2
    assert_says_what_eager_says(module, TurnedElsewhere(**form))


class TurnedOtherwise(Attention):
    """By one of many ways to write a rotation; all get angles of which both halves are equal."""

    def __init__(self, turn: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor], **form: Any) -> None:
        super().__init__(**form)
        self.way = turn

    def turn(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        once = angles[:, None, :, : angles.shape[-1] // 2]
        first, rest = x[..., : self.part], x[..., self.part :]
        turned = self.way(first, once.cos(), once.sin())
        return turned if self.part is None else torch.cat([turned, rest], -1)


def by_neighbours(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * cos.repeat_interleave(2, -1) + turned * sin.repeat_interleave(2, -1)


def by_halves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def backwards(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    turned = torch.stack([x[..., 1::2], -x[..., ::2]], -1).flatten(-2)
    return x * cos.repeat_interleave(2, -1) + turned * sin.repeat_interleave(2, -1)


def by_others_angles(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * torch.cat([cos, cos], -1) + turned * torch.cat([sin, sin], -1)


def by_halves_mirrored(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * cos + b * sin], -1)


ROTATIONS: dict[str, dict[str, Any]] = {
    "neighbours": {"turn": by_neighbours},
    "neighbours of a part": {"turn": by_neighbours, "size": 32, "part": 16},
    "halves": {"turn": by_halves},
    "halves of a part": {"turn": by_halves, "size": 32, "part": 16},
}


@pytest.mark.parametrize("form", ROTATIONS)
def test_a_rotation_may_be_written_in_many_ways(form: str) -> None:
    module = lowered(TurnedOtherwise(**ROTATIONS[form]))
    for counts in operators(module):
        assert counts["GroupQueryAttention"] == 1
        assert not {"RotaryEmbedding", "Neg", "Sin", "Cos"} & counts.keys()
    assert_says_what_eager_says(module, TurnedOtherwise(**ROTATIONS[form]))


@pytest.mark.parametrize("form", ["neighbours", "halves"])
def test_a_part_that_attention_does_not_rotate_is_rotated_before(form: str) -> None:
    small = ROTATIONS[form] | {"part": 8}
    module = lowered(TurnedOtherwise(**small))
    for counts in operators(module):
        assert (counts["GroupQueryAttention"], counts["RotaryEmbedding"], counts["Neg"]) == (1, 2, 0)
    assert_says_what_eager_says(module, TurnedOtherwise(**small))


@pytest.mark.parametrize("turn", [backwards, by_others_angles, by_halves_mirrored])
def test_what_is_not_quite_a_rotation_is_left_as_it_is(turn: Any) -> None:
    module = lowered(TurnedOtherwise(turn))
    for counts in operators(module):
        assert (counts["GroupQueryAttention"], counts["RotaryEmbedding"]) == (1, 0)
        assert {"Sin", "Cos"} <= counts.keys()
    assert_says_what_eager_says(module, TurnedOtherwise(turn))


LOWEST = torch.finfo(torch.float32).min


class Masked(Attention):
    """What is seen from `places` is said in one of many ways."""

    def __init__(self, mask: Callable[[Any, torch.Tensor], torch.Tensor], scale: float = 0.3) -> None:
        super().__init__(turned=False)
        self.mask, self.scale = mask, scale
        self.register_buffer("triangle", torch.ones(PLACES, PLACES).tril().bool(), persistent=False)
        self.register_buffer("added", torch.full((PLACES, PLACES), -math.inf).triu(1), persistent=False)

    def seen(self, places: torch.Tensor) -> torch.Tensor:
        return self.mask(self, places)


MASKS: dict[str, Any] = {
    "compared before it gets its dims": lambda m, p: (torch.arange(PLACES)[None] <= p[:, None])[None, None],
    "by a view": lambda m, p: (torch.arange(PLACES) <= p.view(-1, 1)).view(1, 1, -1, PLACES),
    "rows on the left": lambda m, p: p[None, None, :, None] >= torch.arange(PLACES)[None, None, None],
    "columns before the next": lambda m, p: torch.arange(PLACES) < p[:, None] + 1,
    "columns counted from 1": lambda m, p: torch.arange(1, PLACES + 1) <= p[:, None] + 1,
    "not behind": lambda m, p: ~(torch.arange(PLACES) > p[:, None]),
    "neither behind nor far before": lambda m, p: (
        ~((torch.arange(PLACES) > p[:, None]) | (torch.arange(PLACES) <= p[:, None] - 5))
    ),
    "a difference": lambda m, p: torch.arange(PLACES) - p[:, None] <= 0,
    "a window, as a difference": lambda m, p: (
        (p[:, None] - torch.arange(PLACES) < 5) & (torch.arange(PLACES) <= p[:, None])
    ),
    "rows of a triangle": lambda m, p: m.triangle[p],
    "rows of a triangle with dims": lambda m, p: m.triangle[p][None, None],
    "rows of what is added": lambda m, p: m.added[p],
    "what is added": lambda m, p: torch.where(torch.arange(PLACES) <= p[:, None], 0.0, -math.inf)[None, None],
    "what is added, the other way round": lambda m, p: torch.where(torch.arange(PLACES) > p[:, None], LOWEST, 0.0),
}


@pytest.mark.parametrize("form", MASKS)
def test_a_mask_may_be_said_in_many_ways(form: str) -> None:
    module = lowered(Masked(MASKS[form]))
    for counts in operators(module):
        assert counts["GroupQueryAttention"] == 1
        assert not {"ScatterND", "Softmax", "Where"} & counts.keys()
    assert_says_what_eager_says(module, Masked(MASKS[form]))


OTHER_MASKS: dict[str, Any] = {
    "rows that see the next": lambda m, p: torch.arange(PLACES) < p[:, None] + 2,
    "rows that see all behind": lambda m, p: torch.arange(PLACES) >= p[:, None],
    "columns and rows swapped": lambda m, p: (torch.arange(PLACES) <= p[:, None]).sum(0, keepdim=True) > 0,
    "either": lambda m, p: (torch.arange(PLACES) <= p[:, None]) | (torch.arange(PLACES) == 20),
    "hidden by little": lambda m, p: torch.where(torch.arange(PLACES) <= p[:, None], 0.0, -3.0),
    "a triangle that looks ahead": lambda m, p: (m.triangle.roll(1, 1) | m.triangle)[p],
    "a difference that is doubled": lambda m, p: torch.arange(PLACES) - 2 * p[:, None] <= 0,
}


@pytest.mark.parametrize("form", OTHER_MASKS)
def test_a_mask_that_says_something_else_is_left_as_it_is(form: str) -> None:
    module = lowered(Masked(OTHER_MASKS[form]))
    assert not any(counts["GroupQueryAttention"] for counts in operators(module))
    assert_says_what_eager_says(module, Masked(OTHER_MASKS[form]))


def test_scores_that_are_scaled_by_zero() -> None:
    """onnxruntime's operator takes 0 for not given."""
    module = lowered(Masked(MASKS["a difference"], scale=0.0))
    assert_says_what_eager_says(module, Masked(MASKS["a difference"], scale=0.0))


@pytest.mark.parametrize("count", [1, 5])
def test_a_rotation_by_angles_of_the_run_is_not_left_to_attention(count: int) -> None:
    """They are not known for each place of the cache: row i of a run has angle i, wherever it is put."""

    class ByRow(Attention):
        def turn(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
            table = torch.cat([torch.arange(1.0, count + 1)[:, None] * self.speeds] * 2, -1)[None, None]
            return x * table.cos() + crossed(x) * table.sin()

    program = torch.export.export(ByRow(), (rows(5), torch.arange(5)))
    module = delegraph.load(bytes(delegraph.lower(program, backends=["cpu"])))
    assert operators(module)[0]["GroupQueryAttention"] == 1
    eager = ByRow()
    for at in (0, 7):
        wanted = eager(rows(5), torch.arange(at, at + 5)).numpy()
        got = module(rows(5).numpy(), np.arange(at, at + 5))
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


OTHERWISE: dict[str, dict[str, Any]] = {
    "a mask that looks ahead": {"future": 2},
    "a size of heads that the operator lacks": {"size": 12},
}


@pytest.mark.parametrize("form", OTHERWISE)
def test_what_the_operator_would_not_mean_is_not_it(form: str) -> None:
    module = lowered(Attention(**OTHERWISE[form]))
    assert not any(counts["GroupQueryAttention"] for counts in operators(module))
    assert_says_what_eager_says(module, Attention(**OTHERWISE[form]))


def test_several_rows_to_each_cache_of_a_batch_are_not_it() -> None:
    """onnxruntime's operator takes them only while the caches are empty."""
    module = lowered(Attention(batch=2))
    assert sorted(counts["GroupQueryAttention"] for counts in operators(module)) == [0, 1]
    assert_says_what_eager_says(module, Attention(batch=2))


Scores = Callable[[torch.Tensor], torch.Tensor]
SINKS = torch.tensor([0.5, -1.0, 2.0, 0.0])


class WrittenOut(Attention):
    """As transformers writes it under the name "eager": `bent` are the scores before the mask, `shares` the softmax."""

    def __init__(
        self, bent: Scores = lambda x: x * 0.3, shares: Scores = lambda x: x.softmax(-1), hidden: float = -1e30
    ) -> None:
        super().__init__()
        self.bent, self.shares, self.hidden = bent, shares, hidden

    def attended(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, seen: torch.Tensor
    ) -> torch.Tensor:
        scores = self.bent(query @ keys.transpose(2, 3)) + torch.where(seen, 0.0, self.hidden)
        return self.shares(scores) @ values


def softcapped(cap: float) -> Scores:
    return lambda scores: torch.tanh(scores * 0.6 / cap) * cap


def with_sinks(shift: Scores, left: slice = slice(None, -1)) -> Scores:
    def shares(scores: torch.Tensor) -> torch.Tensor:
        batch, heads, length, _ = scores.shape
        sinks = SINKS.reshape(1, -1, 1, 1).expand(batch, heads, length, 1)
        return shift(torch.cat([scores, sinks], -1)).softmax(-1)[..., left]

    return shares


WRITTEN_OUT: dict[str, dict[str, Any]] = {
    "plain": {},
    "divided, hidden by infinity": {"bent": lambda x: x / 4, "hidden": -math.inf},
    "neither": {"bent": lambda x: x},
    "softcap": {"bent": softcapped(0.7)},
    "softcap below zero": {"bent": softcapped(-0.7)},
    "softcap of the opposite sign": {"bent": lambda x: torch.tanh(x * -0.6) * 0.7},
    "sinks": {"shares": with_sinks(lambda x: x)},
    "sinks, less the greatest": {"shares": with_sinks(lambda x: x - x.max(-1, keepdim=True).values)},
    "sinks, less the greatest, in short": {"shares": with_sinks(lambda x: x - x.amax(-1, keepdim=True))},
}


@pytest.mark.parametrize("form", WRITTEN_OUT)
def test_attention_that_is_written_out_is_the_operator_too(form: str) -> None:
    module = lowered(WrittenOut(**WRITTEN_OUT[form]))
    for counts in operators(module):
        assert counts["GroupQueryAttention"] == 1
        assert not {"ScatterND", "Softmax", "Tanh", "MatMul", "Sin"} & counts.keys()
    assert_says_what_eager_says(module, WrittenOut(**WRITTEN_OUT[form]))


NOT_QUITE: dict[str, dict[str, Any]] = {
    "hidden by little": {"hidden": -3.0},
    "the softmax of columns": {"shares": lambda x: x.softmax(-2)},
    "the sink is what stays": {"shares": with_sinks(lambda x: x, slice(1, None))},
    "less the greatest of columns": {"shares": with_sinks(lambda x: x - x.amax(-2, keepdim=True))},
    "moved by their mean": {"bent": lambda x: x * 0.3 + x.mean()},
    "weights squared": {"shares": lambda x: x.softmax(-1) * x.softmax(-1)},
    "scaled by each row": {"bent": lambda x: x * torch.arange(1.0, PLACES + 1)},
}


@pytest.mark.parametrize("form", NOT_QUITE)
def test_what_is_not_quite_attention_is_left_as_it_is(form: str) -> None:
    module = lowered(WrittenOut(**NOT_QUITE[form]))
    assert not any(counts["GroupQueryAttention"] for counts in operators(module))
    assert_says_what_eager_says(module, WrittenOut(**NOT_QUITE[form]))


def test_softmaxes_that_look_like_those_of_attention() -> None:
    scores, values, sinks = torch.randn(2, 3, 5), torch.randn(2, 4, 6), torch.randn(2, 3, 1)
    for function in (
        lambda x, v, s: (x - 1.0).softmax(-1)[..., :-1] @ v,
        lambda x, v, s: (x - x.amax()).softmax(-1)[..., :4] @ v,
        lambda x, v, s: torch.cat([x[..., 1:], s], -1).softmax(-1)[..., :-1] @ v,
        lambda x, v, s: torch.cat([x[..., 2:], s, s], -1).softmax(-1)[..., 1:] @ v,
    ):
        [got] = run(function, scores, values, sinks)
        np.testing.assert_allclose(got, function(scores, values, sinks).numpy(), rtol=1e-5, atol=1e-6)


class Weighed(WrittenOut):
    """The weights are read once more."""

    def attended(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, seen: torch.Tensor
    ) -> torch.Tensor:
        weights = ((query @ keys.transpose(2, 3)) * 0.3 + torch.where(seen, 0.0, self.hidden)).softmax(-1)
        return weights @ values + weights.square().sum(-1, keepdim=True)


def test_weights_that_are_read_once_more_are_computed() -> None:
    module = lowered(Weighed())
    assert not any(counts["GroupQueryAttention"] for counts in operators(module))
    assert_says_what_eager_says(module, Weighed())


class Narrowed(Attention):
    """As ExecuTorch's Llama has it: the place is a number, by which cache and mask are narrowed; `places` are as many
    as it is given, of which the first says where rows go, and the last what they see."""

    def __init__(self, places: int = 1, future: int = 0) -> None:
        super().__init__(turned=False)
        self.places = places
        self.register_buffer("triangle", torch.ones(PLACES, PLACES, dtype=torch.bool).tril(future), persistent=False)

    def forward(self, rows: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        length = rows.shape[1]
        first, last = (position[index].item() for index in (0, -1))
        for place in (first, last):
            torch._check(place >= 0)
            torch._check(place + length <= PLACES)
        query = rows.view(1, length, HEADS, self.size).transpose(1, 2)
        for cache, new in ((self.keys, query[:, ::2]), (self.values, query[:, 1::2])):
            cache.narrow(2, first, length).copy_(new)  # type: ignore[arg-type]
        keys, values = (cache.repeat_interleave(2, dim=1) for cache in (self.keys, self.values))
        seen = self.triangle.narrow(0, last, length)  # type: ignore[arg-type]
        attended = nn.functional.scaled_dot_product_attention(query, keys, values, seen, scale=0.3)
        return attended.transpose(1, 2).reshape(1, length, HEADS * self.size)


@pytest.mark.parametrize(
    ("form", "fused"),
    [({}, True), ({"future": 1}, False), ({"places": 2}, False)],
    ids=["a triangle", "a mask that looks ahead", "two places that may differ"],
)
def test_a_cache_and_a_mask_that_are_narrowed(form: dict[str, int], fused: bool) -> None:
    eager = Narrowed(**form)
    length = torch.export.Dim("length", min=2, max=PLACES - 1)
    position = torch.zeros(eager.places, dtype=torch.int64)
    methods = {
        "prefill": torch.export.export(eager, (rows(5), position), dynamic_shapes=({1: length}, None)),
        "decode": torch.export.export(eager, (rows(1), position)),
    }
    sharing = ExecutorchBackendConfig(share_mutable_buffers=True)
    module = delegraph.load(bytes(delegraph.lower(methods, backends=["cpu"], config=sharing)), method="decode")
    assert all(counts["GroupQueryAttention"] == fused for counts in operators(module))
    for method, at, count in (("prefill", 0, 5), ("decode", 5, 1), ("prefill", 6, 7), ("decode", 3, 1)):
        given = rows(count), torch.full((eager.places,), at)
        with torch.no_grad():
            wanted = eager(*given).numpy()
        np.testing.assert_allclose(module[method](*(x.numpy() for x in given)), wanted, rtol=1e-4, atol=1e-5)


# ---- projections before it ----------------------------------------------------------------------------------------


class Projected(Attention):
    """With layers for query, key and value, whose input may be of a float half."""

    def __init__(self, batch: int = 1, bias: bool = False, turned: bool = True) -> None:
        super().__init__(batch, turned=turned)
        torch.manual_seed(0)
        width = HEADS * SIZE
        self.query, self.key, self.value = (nn.Linear(width, heads * SIZE, bias) for heads in (HEADS, GROUPS, GROUPS))

    def projected(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.parted(self.query(rows), HEADS), *(self.parted(of(rows), GROUPS) for of in (self.key, self.value))


PROJECTED: dict[str, dict[str, Any]] = {"plain": {}, "with biases": {"bias": True}, "no rotation": {"turned": False}}


@pytest.mark.parametrize("form", PROJECTED)
def test_projections_are_one_product(form: str) -> None:
    module = lowered(Projected(**PROJECTED[form]))
    assert [counts["MatMul"] + counts["Gemm"] for counts in operators(module)] == [1], "both methods have one blob"
    assert_says_what_eager_says(module, Projected(**PROJECTED[form]))


def test_a_weight_that_another_part_has_by_itself_is_not_stored_once_more() -> None:
    """Of a batch, several rows are attended to in parts: the weights of one row's projections are theirs too."""
    module = lowered(Projected(batch=2))
    assert sorted(counts["GroupQueryAttention"] for counts in operators(module)) == [0, 1]
    assert [counts["MatMul"] for counts in operators(module) if counts["GroupQueryAttention"]] == [3]
    assert_says_what_eager_says(module, Projected(batch=2))


class Packed(Attention):
    """One layer gives all three, of which `order` says where: as Phi-3 has it, or `split` as GPT-2."""

    def __init__(self, order: tuple[int, int, int] = (0, 1, 2), more: int = 0, split: bool = False) -> None:
        super().__init__()
        self.order, self.split = order, split
        self.all = nn.Linear(HEADS * SIZE, 2 * HEADS * SIZE + more)

    def projected(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        heads = [(HEADS, GROUPS, GROUPS)[place] for place in self.order]
        given, start = {}, 0
        features = self.all(rows)
        split = features.split([count * SIZE for count in heads], -1) if self.split else ()
        for place, count in zip(self.order, heads, strict=True):
            sliced = split[len(given)] if split else features[..., start : start + count * SIZE]
            given[place] = self.parted(sliced, count)
            start += count * SIZE
        return given[0], given[1], given[2]


@pytest.mark.parametrize(
    "form",
    [{}, {"order": (1, 0, 2)}, {"order": (0, 2, 1)}, {"more": 8}, {"split": True}, {"order": (1, 0, 2), "split": True}],
)
def test_slices_of_one_product_are_taken_whole(form: dict[str, Any]) -> None:
    torch.manual_seed(0)
    eager = Packed(**form)
    module = lowered(copy.deepcopy(eager))
    for counts in operators(module):
        assert counts["GroupQueryAttention"] == 1
        assert bool({"Slice", "Split"} & counts.keys()) == bool({*form} - {"split"})
    assert_says_what_eager_says(module, eager)


@pytest.mark.parametrize("recipe", ["int8_dynamic", "int8_weight_only", "int4_weight_only"])
@pytest.mark.parametrize("bias", [False, True])
def test_quantized_projections_are_one_product(recipe: str, bias: bool) -> None:
    exported = torch.export.export(Projected(bias=bias), (rows(1), torch.arange(1)))
    quantized = delegraph.quantize(exported, recipe=recipe, backends=["cpu"])
    module = delegraph.load(bytes(delegraph.lower(quantized, backends=["cpu"])))
    wanted = quantized.program.module()
    [counts] = operators(module)
    assert counts["DynamicQuantizeMatMul"] + counts["MatMulNBits"] == (2 if recipe == "int8_weight_only" else 1)
    for place in range(3):
        given = rows(1) + place, torch.tensor([place])
        with torch.no_grad():
            np.testing.assert_allclose(module(*(x.numpy() for x in given)), wanted(*given), rtol=1e-3, atol=1e-4)


# ---- attention without a cache ------------------------------------------------------------------------------------


class Turned(nn.Module):
    """Queries and keys rotated by the places of their rows, heads of keys and values repeated, perhaps a mask."""

    def __init__(self, causal: bool = True, equal_halves: bool = True) -> None:
        super().__init__()
        self.causal, self.equal_halves = causal, equal_halves
        self.register_buffer("speeds", 1 / 100 ** (torch.arange(0, SIZE, 2) / SIZE))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        batch, length, _ = rows.shape
        query = rows.view(batch, length, HEADS, SIZE).transpose(1, 2)
        places = torch.arange(length)
        angles = places[None, :, None].float() * self.speeds
        angles = torch.cat([angles, angles if self.equal_halves else angles * 2], -1)
        cos, sin = ((function(angles) * 0.9)[:, None] for function in (torch.cos, torch.sin))
        query, key = (x * cos + crossed(x) * sin for x in (query, query[:, ::2]))
        keys, values = (
            x[:, :, None].expand(batch, GROUPS, 2, length, SIZE).reshape(batch, HEADS, length, SIZE)
            for x in (key, rows.view(batch, length, HEADS, SIZE)[:, :, :GROUPS].transpose(1, 2))
        )
        seen = (places <= places[:, None])[None, None] if self.causal else None
        attended = nn.functional.scaled_dot_product_attention(query, keys, values, seen)
        return attended.transpose(1, 2).reshape(batch, length, HEADS * SIZE)


def crossed(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([-x[..., SIZE // 2 :], x[..., : SIZE // 2]], -1)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("batch", [1, 2])
def test_rotations_and_repeated_heads_are_left_to_operators(batch: int, causal: bool) -> None:
    module = delegraph.load(bytes(delegraph.lower(Turned(causal), (rows(6, batch),), backends=["cpu"])))
    [counts] = operators(module)
    assert (counts["RotaryEmbedding"], counts["Attention"]) == (2, 1)
    assert not {"Expand", "Neg", "Concat", "Mul"} & counts.keys()
    wanted = Turned(causal)(rows(6, batch)).numpy()
    np.testing.assert_allclose(module(rows(6, batch).numpy()), wanted, rtol=1e-4, atol=1e-5)


def test_a_rotation_with_two_angles_for_each_pair_is_not_that_operators() -> None:
    model = Turned(equal_halves=False)
    module = delegraph.load(bytes(delegraph.lower(model, (rows(6),), backends=["cpu"])))
    assert operators(module)[0]["RotaryEmbedding"] == 0
    np.testing.assert_allclose(module(rows(6).numpy()), model(rows(6)).numpy(), rtol=1e-4, atol=1e-5)


def test_a_rotation_by_as_many_rows_as_there_are() -> None:
    length = torch.export.Dim("length", min=2, max=PLACES)
    exported = torch.export.export(Turned(), (rows(6),), dynamic_shapes=({1: length},))
    module = delegraph.load(bytes(delegraph.lower(exported, backends=["cpu"])))
    assert operators(module)[0]["RotaryEmbedding"] == 2
    for count in (3, 11):
        np.testing.assert_allclose(module(rows(count).numpy()), Turned()(rows(count)).numpy(), rtol=1e-4, atol=1e-5)


# ---- what may be changed in place ---------------------------------------------------------------------------------


def graph(*nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("new",)) -> ir.Graph:
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in ("cache", *outputs)]
    return ir.from_proto(onnx.helper.make_graph(nodes, "g", values[:1], values[1:]))


PUT = onnx.helper.make_node("ScatterND", ["cache", "at", "rows"], ["new"])


def test_an_input_that_its_writer_alone_reads_is_changed_in_place() -> None:
    assert changed_in_place(graph(PUT)) == {"cache": "new"}


@pytest.mark.parametrize(
    "reader",
    [
        onnx.helper.make_node("Neg", ["cache"], ["other"]),
        onnx.helper.make_node(
            "If", ["c"], ["other"],
            then_branch=onnx.helper.make_graph([onnx.helper.make_node("Neg", ["cache"], ["inside"])], "b", [], []),
            else_branch=onnx.helper.make_graph([], "b", [], []),
        ),
    ],
)  # fmt: skip
def test_an_input_that_somebody_else_reads_is_not(reader: onnx.NodeProto) -> None:
    assert changed_in_place(graph(PUT, reader)) == {}


def test_nor_is_what_does_not_become_an_output() -> None:
    assert changed_in_place(graph(PUT, onnx.helper.make_node("Neg", ["new"], ["out"]), outputs=("out",))) == {}


# ---- norms --------------------------------------------------------------------------------------------------------


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


@pytest.mark.parametrize("shape", [(2, 3, 8), (1, 7)])
def test_root_mean_square_norms(shape: tuple[int, ...]) -> None:
    x, weight = torch.randn(shape), torch.rand(shape[-1])
    [got] = run(rms_norm, x, weight)
    np.testing.assert_allclose(got, rms_norm(x, weight).numpy(), rtol=1e-5, atol=1e-6)
    [infinite] = run(rms_norm, torch.full(shape, float("inf")), weight)
    assert np.isnan(infinite).all()


def test_what_is_not_quite_a_norm_is_left_as_it_is() -> None:
    x = torch.randn(3, 4, 8)
    for function in (
        lambda x: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6),
        lambda x: x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True).abs() + 1e-6),
        lambda x: (x + 1) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    ):
        [got] = run(function, x)
        np.testing.assert_allclose(got, function(x).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 3, 8), (1, 8), (8,)])
@pytest.mark.parametrize("written", ["in parts", "whole", "more than its weight"])
def test_a_norm_of_a_sum_gives_the_sum_too(shape: tuple[int, ...], written: str) -> None:
    whole = nn.RMSNorm(8, eps=1e-6)
    weight = whole.weight.detach().copy_(torch.rand(8))

    def added(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + y
        scale = 1.0 + weight if written == "more than its weight" else weight  # Gemma's
        again = total + (whole(total) if written == "whole" else rms_norm(total, scale))
        return again, again * rms_norm(again, scale) + total

    x, y = torch.randn(shape), torch.randn(shape)
    module = delegraph.load(bytes(delegraph.lower(Called(added), (x, y), backends=["cpu"])))
    [counts] = operators(module)
    assert counts["SkipSimplifiedLayerNormalization"] == (2 if len(shape) > 1 else 0)
    for got, wanted in zip(module(x.numpy(), y.numpy()), added(x, y), strict=True):
        np.testing.assert_allclose(got, wanted.detach().numpy(), rtol=1e-5, atol=1e-6)


class Called(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.forward = function
