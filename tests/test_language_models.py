"""`transformers`' own recipes lower as they are, and say what eager mode says; the guide has prefill and decode."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

import delegraph

pytestmark = pytest.mark.models

PROMPT = [3, 14, 15, 9]


@pytest.fixture(scope="module")
def language_model() -> Any:
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=32, bos_token_id=0, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.generation_config = GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        cache_config={"batch_size": 1, "max_cache_len": 32},
        bos_token_id=0,
        pad_token_id=0,
    )
    return model


@pytest.fixture(scope="module")
def recipe(language_model: Any) -> torch.export.ExportedProgram:
    from transformers.integrations.executorch import convert_and_export_with_cache

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers' own
        return convert_and_export_with_cache(language_model)


@pytest.mark.parametrize("backend", ["portable", "cpu"])
def test_a_model_exported_with_its_cache_says_what_eager_says(
    backend: str, language_model: Any, recipe: torch.export.ExportedProgram
) -> None:
    wanted = language_model.generate(
        torch.tensor([PROMPT]), max_new_tokens=12, do_sample=False, cache_implementation=None
    )[0].tolist()
    session = delegraph.load(bytes(delegraph.lower(recipe, backends=[] if backend == "portable" else [backend])))

    def step(token: int, position: int) -> int:
        logits = session(input_ids=np.array([[token]]), cache_position=np.array([position]))
        return int(logits[0, -1].argmax())

    said = [step(token, position) for position, token in enumerate(PROMPT)][-1:]
    while len(said) < 12:
        said.append(step(said[-1], len(PROMPT) + len(said) - 1))
    assert PROMPT + said == wanted
    assert session.state["cumulative_length_0"] == len(PROMPT) + 11
