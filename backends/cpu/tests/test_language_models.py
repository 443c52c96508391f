"""The operators of ExecuTorch's language models in a delegate. They are registered here by their formulae, in torch;
`plugins/executorch/tests/bridge/test_llama.py` has ExecuTorch's own, and its Llama."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

import delegraph
from delegraph.errors import InvalidArgument
from delegraph_cpu.blob import unpack

pytestmark = pytest.mark.models

Tensor = torch.Tensor
HEADS, GROUPS, SIZE, PLACES = 4, 2, 8, 16

_ATTENDS = "SymInt start_pos, Tensor? attn_mask=None, float drpout_p=0.0, bool is_causal=False, float? scale=None"
_GRIDS = ", ".join(f"Tensor? {x}_{part}=None" for x in "qkv" for part in ("zero_points", "scales"))
SCHEMAS = [
    "update_cache(Tensor value, Tensor(a!) cache, SymInt start_pos) -> Tensor",
    f"custom_sdpa(Tensor query, Tensor key, Tensor value, {_ATTENDS}) -> Tensor",
    f"custom_quantized_sdpa(Tensor query, Tensor key, Tensor value, {_ATTENDS}, {_GRIDS}, bool is_seq_at_dim_2=False)"
    " -> Tensor",
]


def update_cache(value: Tensor, cache: Tensor, start_pos: int) -> Tensor:
    cache[:, start_pos : start_pos + value.shape[1]] = value
    return value.new_zeros(1)


def custom_sdpa(
    query: Tensor, key: Tensor, value: Tensor, start_pos: int, attn_mask: Tensor | None = None, drpout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None,
) -> Tensor:  # fmt: skip
    place, row = torch.arange(key.shape[1]), torch.arange(query.shape[1])[:, None]
    seen = place <= start_pos + row if is_causal else (place < start_pos + len(row)).expand(len(row), -1)
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    mask = seen if attn_mask is None else attn_mask
    return F.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=True).transpose(1, 2)


def custom_quantized_sdpa(
    query: Tensor, key: Tensor, value: Tensor, start_pos: int, attn_mask: Tensor | None = None, drpout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, *grids: Tensor,
) -> Tensor:  # fmt: skip
    parts = zip((query, key, value), grids[:6:2], grids[1:6:2], strict=True)
    return custom_sdpa(
        *((x.float() - zero) * step for x, zero, step in parts), start_pos, attn_mask, 0.0, is_causal, scale
    )


@pytest.fixture(autouse=True, scope="module")
def llama() -> Iterator[None]:
    library = torch.library.Library("llama", "FRAGMENT")
    made = [update_cache, custom_sdpa, custom_quantized_sdpa]
    for schema, function in zip(SCHEMAS, made, strict=True):
        library.define(schema)
        library.impl(function.__name__, function, "CPU")
    library.impl("update_cache", lambda value, cache, start_pos: value.new_empty(1), "Meta")
    library.impl("custom_sdpa", lambda query, *rest: torch.empty_like(query), "Meta")
    library.impl("custom_quantized_sdpa", lambda query, *rest: torch.empty_like(query, dtype=torch.float32), "Meta")
    yield
    library._destroy()


def quantize(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True) / 127 + 1e-6
    return (x / scale).round().to(torch.int8), torch.zeros_like(scale).to(torch.int8), scale


class Attention(torch.nn.Module):
    """A layer with a cache, whose rows are seen and written from a position on; `quantized` keeps int8 and scales."""

    def __init__(self, causal: bool = True, quantized: bool = False, masked: bool = False) -> None:
        super().__init__()
        self.causal, self.quantized, self.masked = causal, quantized, masked
        self.project = torch.nn.Linear(16, (HEADS + 2 * GROUPS) * SIZE)
        shape = (1, PLACES, GROUPS, SIZE)
        dtype = torch.int8 if quantized else torch.float32
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(shape, dtype=dtype))
            self.register_buffer(f"{name}_scales", torch.zeros(1, PLACES, GROUPS, 1))
            self.register_buffer(f"{name}_zeros", torch.zeros(1, PLACES, GROUPS, 1, dtype=torch.int8))
        self.register_buffer("mask", torch.randn(PLACES, PLACES).masked_fill(torch.eye(PLACES) > 0, -math.inf))

    def _write(self, name: str, x: Tensor, start: Any) -> list[Tensor]:
        parts = quantize(x) if self.quantized else (x,)
        caches = [getattr(self, f"{name}{end}") for end in ("", "_zeros", "_scales")[: len(parts)]]
        for part, cache in zip(parts, caches, strict=True):
            torch.ops.llama.update_cache(part, cache, start)
        return caches

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        start = position[0].item()
        torch._check(start >= 0)
        torch._check(start + x.shape[1] <= PLACES)
        heads = self.project(x).unflatten(-1, (-1, SIZE))
        q, k, v = heads.split([HEADS, GROUPS, GROUPS], 2)
        (keys, *key_grid), (values, *value_grid) = (self._write(*of, start) for of in (("keys", k), ("values", v)))
        mask = self.mask.narrow(0, start, x.shape[1]) if self.masked else None
        if not self.quantized:
            return torch.ops.llama.custom_sdpa(q, keys, values, start, mask, 0.0, self.causal, 0.3).flatten(2)
        integers, *grid = quantize(q)
        attended = torch.ops.llama.custom_quantized_sdpa(
            integers, keys, values, start, mask, 0.0, self.causal, None, *grid, *key_grid, *value_grid, False
        )
        return attended.flatten(2)


FORMS: dict[str, dict[str, bool]] = {
    "causal": {},
    "all that is full": {"causal": False},
    "with a mask": {"causal": False, "masked": True},
    "quantized": {"quantized": True},
    "quantized, with a mask": {"causal": False, "quantized": True, "masked": True},
}


@pytest.mark.parametrize("form", FORMS)
def test_attention_with_a_cache_is_one_delegate(form: str) -> None:
    torch.manual_seed(0)
    model = Attention(**FORMS[form]).eval()
    x = torch.randn(1, 3, 16)
    dynamic = ({1: Dim("rows", max=PLACES)}, {0: Dim.STATIC})
    program = torch.export.export(model, (x, torch.tensor([0])), dynamic_shapes=dynamic)
    lowered = delegraph.lower(program, backends=["cpu"])
    assert not lowered.report.methods["forward"].leftovers
    assert len(lowered.report.methods["forward"].delegates) == 1
    kernels, run = delegraph.load(bytes(delegraph.lower(program))), delegraph.load(bytes(lowered))
    start = 0
    for rows in (5, 1, 3, 1, 6):
        given = torch.randn(1, rows, 16), torch.tensor([start])
        with torch.no_grad():
            wanted = model(*given).numpy()
        for name, lower in (("cpu", run), ("kernels", kernels)):
            got = lower(*(value.numpy() for value in given))
            # an integer in the middle may become the other one
            np.testing.assert_allclose(got, wanted, atol=0.02 if model.quantized else 1e-5, rtol=0, err_msg=name)
        start += rows


def test_a_cache_is_written_where_it_lies_and_a_row_needs_no_mask() -> None:
    model, given = Attention().eval(), (torch.randn(1, 1, 16), torch.tensor([4]))
    lowered = delegraph.lower(model, given, backends=["cpu"])
    blob = unpack(bytes(lowered.program.executorch_program.delegate_data[0]))
    assert {state.buffer: state.in_place for state in blob.states} == {"keys": True, "values": True}
    graph = onnx.load_from_string(bytes(blob.graph)).graph
    (attention,) = [node for node in graph.node if node.op_type == "Attention"]
    assert len([name for name in attention.input if name]) == 3


@pytest.mark.parametrize(("start", "place"), [(14, 16), (-1, -1), (2**40, 2**40)])
def test_rows_that_do_not_fit_are_refused(start: int, place: int) -> None:
    model, given = Attention().eval(), (torch.randn(1, 3, 16), torch.tensor([0]))
    run = delegraph.load(bytes(delegraph.lower(model, given, backends=["cpu"])))
    told = f"input 'position' holds {start}, but 'keys' has no place {place}: it has 16 places, 0 to 15"
    with pytest.raises(InvalidArgument, match=told):
        run(given[0].numpy(), np.array([start]))
