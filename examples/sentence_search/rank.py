"""Search sentences by meaning, without torch:    python rank.py minilm.pte tokenizer.json sentence…"""

from __future__ import annotations

import sys
import time

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

import delegraph

QUERIES = ("a pet taking a nap", "monetary policy", "baking bread", "building software")


class Embedder:
    """Sentence -> its embedding, [384] of length 1."""

    def __init__(self, program: str, tokenizer: str) -> None:
        self._model = delegraph.load(program)
        self._tokenizer = Tokenizer.from_file(tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self._model.metadata.input_tensor_meta(0).sizes()[1])

    def __call__(self, sentence: str) -> NDArray[np.float32]:
        embedding: NDArray[np.float32] = self._model(np.array([self._tokenizer.encode(sentence).ids]))[0]
        return embedding


def main(program: str, tokenizer: str, *sentences: str) -> None:
    start = time.perf_counter()
    embed = Embedder(program, tokenizer)
    loaded = time.perf_counter()
    embeddings = np.stack([embed(sentence) for sentence in sentences])
    done = time.perf_counter()
    milliseconds = (done - loaded) * 1e3 / len(sentences)
    print(f"\nwithout torch: loaded in {loaded - start:.2f} s; {milliseconds:.1f} ms for a sentence")
    for query in QUERIES:
        scores = embeddings @ embed(query)  # cosine similarity, since the embeddings have length 1
        print(f"\n{query}")
        for index in np.argsort(-scores)[:3]:
            print(f"  {scores[index]:5.2f}  {sentences[index]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
