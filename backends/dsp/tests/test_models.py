"""Whole models: a float16 transformer on the DSP alone, a quantized one on the DSP and the CPU, through a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import delegraph
from delegraph.errors import LoweringError
from delegraph_dsp.aot.partitioner import dsp_partitioner
from delegraph_dsp.aot.quantizer import dsp_quantizer

WIDTH, HEADS, TOKENS = 32, 2, 8


class Block(nn.Module):
    """A transformer's block on tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) * (width // HEADS) ** -0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))  # type: ignore[no-any-return]


def tokens(seed: int) -> torch.Tensor:
    return torch.randint(0, 50, (1, TOKENS), generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def block() -> Block:
    torch.manual_seed(0)
    return Block().eval()


def test_a_float16_model_goes_whole_on_the_dsp(block: Block) -> None:
    halves = Block().half().eval()
    halves.load_state_dict({name: value.half() for name, value in block.state_dict().items()})
    lowered = delegraph.lower(halves, (tokens(0),), backends=["dsp"])
    report = lowered.report.methods["forward"]
    assert [delegate.backend for delegate in report.delegates] == ["DspBackend"]
    assert not report.leftovers
    run = delegraph.load(bytes(lowered))
    exact = Block().double().eval()
    exact.load_state_dict({name: value.half().double() for name, value in block.state_dict().items()})
    for seed in range(3):
        np.testing.assert_allclose(run(tokens(seed).numpy()), exact(tokens(seed)).detach().numpy(), atol=6e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("recipe", ["int8_dynamic", "int8_dynamic_int4_weight"])
def test_layers_whose_grids_are_found_in_the_run_are_left_between_halves(recipe: str, dtype: torch.dtype) -> None:
    """And what is float32, if it is computed as float16, is no quantized weight that is only moved."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU()).to(dtype).eval(), torch.randn(2, 3, 16)
    quantized = delegraph.quantize(model, None, (x.to(dtype),), recipe=recipe)
    lowered = delegraph.lower(quantized, backends=["dsp{dtype=float16}"])
    report = lowered.report.methods["forward"]
    names = [name for delegate in report.delegates for name in delegate.operators]
    assert any("layer_norm" in name for name in names) and any("gelu" in name for name in names)
    reasons = {left.name: left.reasons["dsp"] for left in report.leftovers}
    assert "its scale and zero point are chosen at run time" in reasons.values()
    wanted = quantized.program.module()(x.to(dtype)).detach().float().numpy()
    np.testing.assert_allclose(delegraph.load(bytes(lowered))(x.to(dtype).numpy()), wanted, atol=0.03)


@pytest.mark.models
@pytest.mark.parametrize(("recipe", "steps", "far"), [("int8", 1, 0.1), ("int16x8", 2, 0.01)])
def test_a_quantized_model_on_dsp_and_cpu(block: Block, recipe: str, steps: int, far: float) -> None:
    """All of it goes on codes, the embedding too, a step or two from torch's program."""
    quantized = delegraph.quantize(
        block, [(tokens(seed),) for seed in range(4)], recipe=f"{recipe}{{observer=minmax}}", backends=["dsp"]
    )
    lowered = delegraph.lower(quantized, backends=["dsp", "cpu"])
    report = lowered.report.methods["forward"]
    on_cpu = {name for entry in report.delegates if entry.backend == "CpuBackend" for name in entry.operators}
    assert {name for name in on_cpu if not name.startswith("quantized")} == set()
    run, program = delegraph.load(bytes(lowered)), quantized.program.module()
    unit = next(n.args[1] for n in reversed(quantized.program.graph.nodes) if "dequantize" in str(n.target))
    for seed in range(3):
        found = np.asarray(run(tokens(seed).numpy()))
        assert np.abs(found - program(tokens(seed)).detach().numpy()).max() <= (steps + 0.01) * unit
        assert np.abs(found - block(tokens(seed)).detach().numpy()).max() <= far


class Attention(nn.Module):
    """`F.scaled_dot_product_attention`, with a mask or without."""

    def __init__(self, causal: bool = False, scale: float | None = None) -> None:
        super().__init__()
        self.causal, self.scale = causal, scale

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=self.scale)


@pytest.mark.parametrize("scale", [None, 0.1])
def test_an_attention_is_quantized_by_parts(scale: float | None) -> None:
    torch.manual_seed(0)
    inputs = tuple(torch.randn(1, 2, 12, 16) for _ in range(3))
    model = Attention(scale=scale)
    quantized = delegraph.quantize(model, [inputs], recipe="int8{observer=minmax}", backends=["dsp"])
    names = [str(node.target) for node in quantized.program.graph.nodes]
    assert names.count("aten.matmul.default") == 2 and "aten.scaled_dot_product_attention.default" not in names
    lowered = delegraph.lower(quantized, backends=["dsp", "cpu"])
    delegates = lowered.report.methods["forward"].delegates
    (on_dsp,) = (delegate for delegate in delegates if delegate.backend == "DspBackend")
    assert {"aten::matmul", "aten::softmax.int"} <= set(on_dsp.operators)
    found = np.asarray(delegraph.load(bytes(lowered))(*(x.numpy() for x in inputs)))
    np.testing.assert_allclose(found, model(*inputs).numpy(), atol=0.05)


def test_an_attention_with_a_mask_stays_whole() -> None:
    inputs = tuple(torch.randn(1, 2, 12, 16) for _ in range(3))
    exported = torch.export.export(Attention(causal=True), inputs).module(check_guards=False)
    changed = dsp_quantizer().transform_for_annotation(exported)  # type: ignore[attr-defined]
    assert any("scaled_dot_product_attention" in str(node.target) for node in changed.graph.nodes)


def test_events_of_operators_in_the_devices_own_time() -> None:
    x = torch.randn(4, 16).half()
    model = nn.Sequential(nn.Linear(16, 16), nn.Softmax(-1)).half()
    lowered = delegraph.lower(model, (x,), backends=["dsp"])
    tracer = delegraph.EventTracer()
    delegraph.load(bytes(lowered), event_tracer=tracer)(x.numpy())
    events = [event for block in tracer.blocks for event in block.profile_events]
    found = [event for event in events if event.delegate_debug_id is not None]
    names = [event.name for event in found]
    assert names == ["aten::linear", "aten::softmax.int"]
    told = [json.loads(event.metadata) for event in found]
    assert all(one["cycles"] >= one["compute_cycles"] >= one["packets"] >= one["least_packets"] > 0 for one in told)
    assert all(event.end - event.start == round(one["cycles"]) for event, one in zip(found, told, strict=True))


def test_recipes_that_the_quantizer_has_no_part_in() -> None:
    for recipe in ("int8_dynamic", "int8_weight_only", "float"):
        with pytest.raises(LoweringError, match="quantizer 'dsp' annotates values whose ranges data show"):
            dsp_quantizer(recipe=recipe)


def test_the_runtime_half_needs_no_torch(tmp_path: Path) -> None:
    x = torch.randn(4, 16).half()
    lowered = delegraph.lower(nn.Softmax(-1), (x,), backends=["dsp"])
    (tmp_path / "m.pte").write_bytes(bytes(lowered))
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import delegraph, numpy as np\n"
        f"out = delegraph.load({str(tmp_path / 'm.pte')!r})(np.zeros((4, 16), np.float16))\n"
        "print(float(np.asarray(out)[0, 0]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "0.0625\n"


def test_what_each_pass_made_is_kept_beside_the_program() -> None:
    x = torch.randn(4, 16).half()
    exported = torch.export.export(nn.Softmax(-1), (x,))
    manager = delegraph.to_edge_transform_and_lower(exported, partitioner=[dsp_partitioner()]).to_executorch()
    texts: Any = next(iter(manager.delegate_map["forward"].values()))["delegate_info_meta"]
    assert texts.keys() == {"kernels", "placement", "program"}
    assert "softmax(" in texts["kernels"] and "TCM: " in texts["placement"] and "dma load" in texts["program"]
