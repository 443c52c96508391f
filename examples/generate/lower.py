"""A decoder-only model of transformers -> a folder that `generate.py` runs without torch.

python lower.py folder                             a small Llama, trained here, in a minute, on this repository's guides
python lower.py folder --checkpoint path           a checkpoint of your own, with its tokenizer.json
python lower.py folder --recipe int4_weight_only   quantized: see docs/quantization.md
"""

from __future__ import annotations

import argparse
import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.export import Dim, ExportedProgram
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

import delegraph
from delegraph.aot import recipe_named
from delegraph.errors import DelegraphError, LimitWarning

GUIDES = Path(__file__).parents[2] / "docs"
VOCABULARY = 1024
LEAST_CONTEXT = 8
"""Of tokens: a prompt that has a dynamic length, five as the example, and what comes after it."""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where model.pte, tokenizer.json and settings.json go")
    parser.add_argument("--checkpoint", type=Path, help="a local folder of transformers, instead of training")
    parser.add_argument("--tokenizer", type=Path, help="its tokenizer.json, if it is not in the checkpoint's folder")
    parser.add_argument("--dtype", default="auto", help="of its weights: float32, bfloat16, …; auto: the checkpoint's")
    parser.add_argument("--recipe", default="float", help="of delegraph.quantize: int8_dynamic, int4_weight_only, …")
    parser.add_argument("--backend", default="cpu", help="with options: cpu{int8_products=true}")
    parser.add_argument("--context", type=int, default=256, help="tokens that the cache has room for")
    parser.add_argument("--width", type=int, default=128, help="of the model that is trained")
    parser.add_argument("--steps", type=int, default=600, help="how long it is trained")
    given = parser.parse_args(arguments)
    if given.context < LEAST_CONTEXT:
        parser.error(f"--context {given.context}: from {LEAST_CONTEXT} on")
    try:  # before a model is trained for a minute
        recipe_named(given.recipe)
        delegraph.lower(torch.nn.ReLU(), (torch.zeros(1),), backends=[given.backend])
    except DelegraphError as error:
        parser.error(str(error))
    if given.checkpoint is not None:
        model = AutoModelForCausalLM.from_pretrained(given.checkpoint, dtype=given.dtype, local_files_only=True).eval()
        tokenizer = Tokenizer.from_file(str(given.tokenizer or given.checkpoint / "tokenizer.json"))
    else:
        text = "\n\n".join(path.read_text() for path in sorted(GUIDES.glob("*.md")))
        tokenizer = trained_tokenizer(text)
        model = trained(tokenizer.encode(text).ids, given.width, given.context, given.steps)
    methods = exported(model, given.context)
    quantized: Any = methods
    if given.recipe != "float":
        quantized = delegraph.quantize(methods, recipe=given.recipe, backends=[given.backend])
    sharing = delegraph.ExecutorchBackendConfig(share_mutable_buffers=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LimitWarning)  # nobody could load it as generate.py does
        try:
            lowered = delegraph.lower(quantized, backends=[given.backend], config=sharing)
        except LimitWarning as warning:
            parser.error(f"{warning}; or give a smaller --context")
    given.folder.mkdir(parents=True, exist_ok=True)
    lowered.save(given.folder / "model.pte")
    tokenizer.save(str(given.folder / "tokenizer.json"))
    settings = {"context": given.context, "stop": end_tokens(model)}
    (given.folder / "settings.json").write_text(json.dumps(settings) + "\n")
    size = (given.folder / "model.pte").stat().st_size
    print(f"{given.folder / 'model.pte'}: {size / 2**20:.1f} MB, {given.recipe}")


def exported(model: Any, context: int) -> dict[str, ExportedProgram]:
    """transformers' own recipe, twice: a prompt of any length, and one token more; both with a cache of that size, and
    the logits of the last token alone."""
    model.generation_config.cache_implementation = "static"
    model.forward = partial(model.forward, logits_to_keep=1)
    recipe = TorchExportableModuleForDecoderOnlyLM(model, batch_size=1, max_cache_len=context)
    length = Dim("length", min=2, max=context - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers' own
        return {
            "prefill": recipe.export(
                input_ids=torch.zeros(1, 5, dtype=torch.long),
                cache_position=torch.arange(5),
                dynamic_shapes={"input_ids": {1: length}, "cache_position": {0: length}},
            ),
            "decode": recipe.export(input_ids=torch.zeros(1, 1, dtype=torch.long), cache_position=torch.arange(1)),
        }


def end_tokens(model: Any) -> list[int]:
    """The tokens after which a text is over."""
    ends = model.generation_config.eos_token_id
    return ends if isinstance(ends, list) else [] if ends is None else [ends]


# ---- a model of our own -------------------------------------------------------------------------------------------


def trained_tokenizer(text: str) -> Tokenizer:
    """Byte pairs of `text`: any other text has tokens too."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def trained(tokens: list[int], width: int, context: int, steps: int) -> Any:
    """A Llama of four layers that has read `tokens`, 16 pieces of them a step. It knows words, not what they mean."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=context,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = torch.tensor(tokens)
    length = min(context, 64)
    for step in range(1, steps + 1):
        starts = torch.randint(len(data) - length, (16,))
        batch = torch.stack([data[start : start + length] for start in starts.tolist()])
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"  {step} of {steps} steps, loss {loss.item():.2f}", flush=True)
    return model.eval()


if __name__ == "__main__":
    main()
