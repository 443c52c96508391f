"""`python -m tests.fuzz [-runs=1000000] [folder]`: coverage-guided fuzzing of everything that reads a stranger's file.

Atheris (libFuzzer for Python) keeps each input that reached code which none had reached before, and goes on from there;
`mutations.py` makes the inputs. What is found lies in `crash-…`; `python -m tests.fuzz crash-…` runs that one again.
Options are libFuzzer's. `make fuzz` runs it.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

PACKAGES = [f"delegraph{name}" for name in ("", "_cpu", "_mnn", "_providers", "_portable", "_dsp", "_npu", "_machines")]

with atheris.instrument_imports(include=PACKAGES):
    from tests.fuzz.harness import exercise
    from tests.fuzz.mutations import mutate
    from tests.fuzz.seeds import SEEDS

RUNS = "1000000"
OPTIONS = ("-max_len=16384", "-timeout=60", "-rss_limit_mb=6144", "-use_value_profile=0", "-print_final_stats=1")


def mutator(data: bytes, max_size: int, seed: int) -> bytes:
    """What libFuzzer asks for the next input: one of its corpus, changed as a file of its kind can be."""
    rng = random.Random(seed)
    made = mutate(data or rng.choice(SEEDS), rng)
    return made if len(made) <= max_size else data


def main() -> None:
    """Fuzz, or run the files that are named."""
    words = sys.argv[1:]
    named = [Path(word) for word in words if not word.startswith("-")]
    if not any(path.is_file() for path in named):
        folder = named[0] if named else Path("build/fuzz/corpus")
        folder.mkdir(parents=True, exist_ok=True)
        for index, seed in enumerate(SEEDS):
            (folder / f"seed-{index}").write_bytes(seed)
        words = [word for word in words if word.startswith("-")] + [str(folder)]
        if not any(word.startswith("-runs=") for word in words):
            words.insert(0, f"-runs={RUNS}")
    atheris.Setup([sys.argv[0], *OPTIONS, *words], lambda data: exercise(bytes(data)) and None, custom_mutator=mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
