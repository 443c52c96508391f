"""ExecuTorch's `export_llama`, ported: a tiny Llama with random weights, against eager."""

from __future__ import annotations

import json
import shutil
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import delegraph
from delegraph_executorch.port import main

CONTEXT, VOCABULARY = 32, 128
PARAMETERS = {
    "dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 128, "vocab_size": VOCABULARY,
    "multiple_of": 32, "norm_eps": 1e-5, "rope_theta": 10000.0,
}  # fmt: skip

OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "portable": {},
    "portable, a cache": {"model": {"use_kv_cache": True}},
    "XNNPACK, 4 bits, a cache": {
        "model": {"use_kv_cache": True},
        "quantization": {"qmode": "8da4w", "group_size": 32, "embedding_quantize": "8,0"},
        "backend.xnnpack": {"enabled": True, "extended_ops": True},
    },
    "XNNPACK, 4 bits": {
        "quantization": {"qmode": "8da4w", "group_size": 32, "embedding_quantize": "8,0"},
        "backend.xnnpack": {"enabled": True, "extended_ops": True},
    },
}
"""Parts of its `LlmConfig`, and what is set in them."""


@pytest.fixture(scope="module")
def export_llama(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The wheel's module, ported as a user's package."""
    spec = find_spec("executorch")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("executorch is not here: run `make test-executorch-users`")
    original, scratch = Path(spec.submodule_search_locations[0]) / "examples/models", tmp_path_factory.mktemp("llama")
    shutil.copytree(original / "llama", scratch / "ported_models/llama")
    for file in original.glob("*.py"):
        shutil.copy(file, scratch / "ported_models")
    assert main([str(scratch)]) == 0
    sys.path.insert(0, str(scratch))
    return import_module("ported_models.llama.export_llama_lib")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A checkpoint with random weights, as one is downloaded."""
    llama = "executorch.examples.models.llama"
    arguments = import_module(f"{llama}.model_args").ModelArgs(**PARAMETERS)
    model = import_module(f"{llama}.llama_transformer").construct_transformer(arguments)
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.08)
    folder = tmp_path_factory.mktemp("checkpoint")
    torch.save(model.state_dict(), folder / "consolidated.00.pth")
    (folder / "params.json").write_text(json.dumps(PARAMETERS), "utf-8")
    return {"checkpoint": str(folder / "consolidated.00.pth"), "params": str(folder / "params.json")}


@pytest.mark.parametrize("case", OPTIONS)
def test_export_llama(case: str, export_llama: Any, base: dict[str, str], tmp_path: Path) -> None:
    config = import_module("delegraph_executorch.extension.llm.export.config.llm_config").LlmConfig()
    parts: dict[str, dict[str, Any]] = {
        "base": base,
        "export": {
            "max_seq_length": CONTEXT,
            "max_context_length": CONTEXT,
            "output_name": str(tmp_path / "llama.pte"),
        },
    }
    for part, values in [*parts.items(), *OPTIONS[case].items()]:
        settings: Any = config
        for name in part.split("."):
            settings = getattr(settings, name)
        for name, value in values.items():
            setattr(settings, name, value)
    file = export_llama.export_llama(config)
    run = delegraph.load(file)
    reference = export_llama._prepare_for_llama_export(config).model
    # where values are rounded, one in the middle of two integers may become the other one
    within = 0.03 if "4 bits" in case else 1e-4
    position = 0
    for count in (5, 1, 9):
        tokens = torch.randint(0, VOCABULARY, (1, count))
        at = ({"input_pos": torch.tensor([position])},) if config.model.use_kv_cache else ()
        with torch.no_grad():
            expected = reference(tokens, *at).numpy()
        result = np.asarray(run(tokens, *at))
        assert np.abs(result - expected).max() < within * np.abs(expected).max()
        position += count
