"""Models of `transformers` lower in one call, on what a tokenizer gives, and say what eager mode says at every size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim

import delegraph
from delegraph.errors import LoweringError

pytestmark = pytest.mark.models

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
WORDS = {**SMALL, "vocab_size": 64, "max_position_embeddings": 32}
IMAGES = {**SMALL, "image_size": 16, "patch_size": 8}
BATCH, TOKENS = Dim("batch", max=4), Dim("tokens", max=16)


def ids(batch: int, tokens: int) -> torch.Tensor:
    return torch.randint(0, 64, (batch, tokens), generator=torch.Generator().manual_seed(batch))


def text(batch: int, tokens: int) -> dict[str, Any]:
    """In a tokenizer's order, which is not that of the models' arguments."""
    ones = torch.ones(batch, tokens, dtype=torch.long)
    return {"input_ids": ids(batch, tokens), "token_type_ids": ones * 0, "attention_mask": ones}


def plain_text(batch: int, tokens: int) -> dict[str, Any]:
    return {name: value for name, value in text(batch, tokens).items() if name != "token_type_ids"}


def two_texts(batch: int, tokens: int) -> dict[str, Any]:
    return {"input_ids": ids(batch, tokens), "decoder_input_ids": ids(batch, 3)}


def pixels(batch: int, _tokens: int) -> dict[str, Any]:
    return {"pixel_values": torch.ones(batch, 3, 16, 16)}


def sound(batch: int, _tokens: int) -> dict[str, Any]:
    return {"input_features": torch.ones(batch, 80, 100)}


def whisper_encoder() -> Any:
    from transformers import WhisperConfig, WhisperModel

    config = {f"{half}_{name}": 1 if name == "layers" else 2 for half in ("encoder", "decoder") for name in HEADS}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    return WhisperModel(WhisperConfig(vocab_size=64, d_model=16, max_source_positions=50, **config, **tokens)).encoder


HEADS = ("layers", "attention_heads")
DISTILBERT = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "vocab_size": 64}
T5 = {"vocab_size": 64, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}

MODELS: dict[str, tuple[Any, Any, dict[int, Dim]]] = {
    "BERT": (lambda t: t.BertForSequenceClassification(t.BertConfig(**WORDS)), text, {0: BATCH, 1: TOKENS}),
    "DistilBERT": (lambda t: t.DistilBertModel(t.DistilBertConfig(**DISTILBERT)), plain_text, {0: BATCH, 1: TOKENS}),
    "Llama": (lambda t: t.LlamaForCausalLM(t.LlamaConfig(**WORDS)), plain_text, {0: BATCH, 1: TOKENS}),
    "T5": (lambda t: t.T5Model(t.T5Config(**T5)), two_texts, {0: BATCH}),
    "ViT": (lambda t: t.ViTForImageClassification(t.ViTConfig(**IMAGES)), pixels, {0: BATCH}),
    "Whisper's encoder": (lambda t: whisper_encoder(), sound, {0: BATCH}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_in_one_call(name: str) -> None:
    import transformers

    torch.manual_seed(0)
    make, inputs, dims = MODELS[name]
    model = make(transformers).eval()
    encoded = transformers.BatchEncoding(inputs(1, 8))
    run = delegraph.load(bytes(delegraph.lower(model, encoded, dynamic_shapes=dims, backends=["cpu"])))
    for batch, tokens in ((1, 8), (3, 8), *([(2, 13)] if 1 in dims else [])):
        given_now = inputs(batch, tokens)
        results = run(**{name: tensor.numpy() for name, tensor in given_now.items()})
        expected = {k: v for k, v in model(**given_now).items() if isinstance(v, torch.Tensor)}
        assert results.keys() == expected.keys(), "tensors under the names that the model gives them, and no cache"
        for key, tensor in expected.items():
            np.testing.assert_allclose(results[key], tensor.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_language_model_gets_its_cache_back() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(**WORDS)).eval()
    lowered = delegraph.lower(model, ids(1, 8))
    assert delegraph.load(bytes(lowered))(ids(1, 8).numpy()).keys() == {"logits"}
    assert model.config.use_cache and model(ids(1, 8)).past_key_values is not None
    with pytest.raises(LoweringError, match=r"forward returns a transformers\.cache_utils\.DynamicCache"):
        delegraph.lower(model, {"input_ids": ids(1, 8), "use_cache": True})
    assert model.config.use_cache


def test_classes_of_results() -> None:
    from transformers import BertConfig, BertForSequenceClassification
    from transformers.modeling_outputs import SequenceClassifierOutput

    model = BertForSequenceClassification(BertConfig(**WORDS)).eval()
    run = delegraph.load(bytes(delegraph.lower(model, text(1, 8))), types=[SequenceClassifierOutput])
    result = run(**text(1, 8))
    assert isinstance(result, SequenceClassifierOutput) and result.logits.shape == (1, 2)


def test_a_quantized_model_in_one_call() -> None:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**WORDS)).eval()
    quantized = delegraph.quantize(model, [text(1, 8)], recipe="int8", backends=["cpu"], dynamic_shapes={0: BATCH})
    run = delegraph.load(bytes(delegraph.lower(quantized, text(2, 8), backends=["cpu"])))
    logits = run(**text(4, 8))["logits"]
    np.testing.assert_allclose(logits, model(**text(4, 8)).logits.detach().numpy(), atol=0.1)
