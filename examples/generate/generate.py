"""Continue a text, word by word, without torch:    python generate.py folder "Once upon a time" --temperature 0.7"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sampling import Sampler, sampler
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

import delegraph
from delegraph.errors import DelegraphError


class Generator:
    """What `lower.py` wrote: the model's two methods on one KV cache, and its tokenizer."""

    def __init__(self, folder: Path) -> None:
        self.session = delegraph.load(folder / "model.pte", method="decode")
        self.tokenizer = Tokenizer.from_str((folder / "tokenizer.json").read_text())
        settings = json.loads((folder / "settings.json").read_text())
        self.context: int = settings["context"]
        self.stop: set[int] = set(settings["stop"])

    def tokens(self, prompt: list[int], count: int, choose: Sampler) -> Iterator[int]:
        """Up to `count` tokens after `prompt`, until one that ends the text. Raises `ValueError` for a prompt that is
        empty, or leaves no room for a token."""
        if not 0 < len(prompt) < self.context:
            raise ValueError(f"the prompt has {len(prompt)} tokens; it has from 1 to {self.context - 1}")
        self.session.state.reset()
        read = self.session.prefill if len(prompt) > 1 else self.session.decode
        logits = read(input_ids=np.array([prompt]), cache_position=np.arange(len(prompt)))
        for place in range(len(prompt), min(len(prompt) + count, self.context)):
            token = choose(logits[0, -1].astype(np.float32))
            if token in self.stop:
                return
            yield token
            logits = self.session.decode(input_ids=np.array([[token]]), cache_position=np.array([place]))

    def text(self, prompt: str, count: int, choose: Sampler) -> Iterator[str]:
        """The same in pieces of text: a token that ends within a letter waits for the next one."""
        stream = DecodeStream(skip_special_tokens=True)
        for token in self.tokens(self.tokenizer.encode(prompt).ids, count, choose):
            piece = stream.step(self.tokenizer, token)
            yield piece or ""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what lower.py wrote")
    parser.add_argument("prompt")
    parser.add_argument("--tokens", type=int, default=100, help="how many at most, from 0 on")
    parser.add_argument("--temperature", type=float, default=0.8, help="0: always the likeliest token")
    parser.add_argument("--top-k", type=int, default=0, help="draw among the k likeliest; 0: among all")
    parser.add_argument("--top-p", type=float, default=0.95, help="draw among the fewest that have p together")
    parser.add_argument("--seed", type=int, help="the same seed, the same text")
    given = parser.parse_args(arguments)
    try:
        if given.tokens < 0:
            raise ValueError(f"--tokens {given.tokens}: from 0 on")
        choose = sampler(given.temperature, given.top_k, given.top_p, given.seed)
        generator = Generator(given.folder)
        print(given.prompt, end="", flush=True)
        start, count = time.perf_counter(), 0
        for piece in generator.text(given.prompt, given.tokens, choose):
            print(piece, end="", flush=True)
            count += 1
    except (ValueError, OSError, DelegraphError) as error:
        raise SystemExit(f"generate.py: {error}") from error
    seconds = time.perf_counter() - start
    print(f"\n\n{count} tokens in {seconds:.2f} s, {count / seconds:.0f} a second, without torch", file=sys.stderr)


if __name__ == "__main__":
    main()
