"""`examples/generate`: a language model lowered with torch says without it what eager mode says; sampling."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
FOLDER = EXAMPLES / "generate"


@pytest.fixture(scope="module")
def sampling() -> Any:
    return module("sampling")


def module(name: str) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        return __import__(name)


LOGITS = np.log(np.array([0.1, 0.5, 0.15, 0.25], np.float32))


@pytest.mark.parametrize(
    ("top_k", "top_p", "wanted"),
    [
        (0, 1.0, {1: 0.5, 3: 0.25, 2: 0.15, 0: 0.1}),
        (2, 1.0, {1: 2 / 3, 3: 1 / 3}),
        (0, 0.5, {1: 1.0}),
        (0, 0.6, {1: 2 / 3, 3: 1 / 3}),
        (3, 0.9, {1: 5 / 9, 3: 2.5 / 9, 2: 1.5 / 9}),
        (9, 1e-9, {1: 1.0}),
    ],
)
def test_the_likeliest_are_drawn_from(sampling: Any, top_k: int, top_p: float, wanted: dict[int, float]) -> None:
    tokens, chances = sampling.likeliest(LOGITS, top_k, top_p)
    assert tokens.tolist() == list(wanted)
    np.testing.assert_allclose(chances, list(wanted.values()), rtol=1e-5)


def test_draws_follow_the_temperature_and_the_seed(sampling: Any) -> None:
    def drawn(temperature: float, seed: int) -> list[int]:
        choose = sampling.sampler(temperature, seed=seed)
        return [choose(LOGITS) for _ in range(400)]

    assert drawn(1, seed=5) == drawn(1, seed=5) != drawn(1, seed=6)
    assert set(drawn(0, seed=5)) == set(drawn(1e-45, seed=5)) == {1}
    counts = [drawn(temperature, seed=5).count(1) for temperature in (0.3, 1, 10)]
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize(
    "options",
    [{"temperature": -1}, {"temperature": math.nan}, {"top_k": -1}, {"top_p": 0}, {"top_p": 1.5}, {"seed": -1}],
)
def test_numbers_that_mean_nothing_are_refused(sampling: Any, options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="are from 0 on, top_p"):
        sampling.sampler(**options)


# ---- the whole way ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights, as transformers saves one, and a tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("checkpoint")
    tokenizer = module("lower").trained_tokenizer("one two three four five " * 9)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=64, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.docs
def test_a_prompt_gives_the_logits_of_its_last_token_in_the_checkpoints_dtype(checkpoint: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    import delegraph

    eager = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16)
    eager.save_pretrained(tmp_path / "half")
    tokenizer = str(checkpoint / "tokenizer.json")
    sizes = {}
    for dtype in ("auto", "float32"):
        words = ["--checkpoint", str(tmp_path / "half"), "--tokenizer", tokenizer, "--context", "32", "--dtype", dtype]
        module("lower").main([str(tmp_path / dtype), *words])
        sizes[dtype] = (tmp_path / dtype / "model.pte").stat().st_size
    assert sizes["auto"] < 0.75 * sizes["float32"]
    prompt = np.array([[1, 2, 3]])
    logits = delegraph.load(tmp_path / "auto" / "model.pte", method="prefill")(
        input_ids=prompt, cache_position=np.arange(3)
    )
    expected = eager(torch.from_numpy(prompt)).logits[:, -1:].float().detach().numpy()
    assert logits.dtype.name == "bfloat16" and logits.shape == expected.shape
    np.testing.assert_allclose(logits.astype(np.float32), expected, atol=0.02)
    done = generated(tmp_path / "auto", "one two", "--tokens", "3")
    assert done.returncode == 0, done.stderr


def generated(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, EXAMPLES / "without_torch.py", FOLDER / "generate.py", folder, *options]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


@pytest.mark.docs
def test_a_checkpoint_says_without_torch_what_it_says_with_it(checkpoint: Path, tmp_path: Path) -> None:
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    module("lower").main([str(tmp_path), "--checkpoint", str(checkpoint), "--context", "32"])
    done = generated(tmp_path, "one two", "--tokens", "12", "--temperature", "0")
    assert done.returncode == 0, done.stderr
    assert "without torch" in done.stderr
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    prompt = tokenizer.encode("one two").ids
    eager = AutoModelForCausalLM.from_pretrained(checkpoint)
    tokens = eager.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)[0].tolist()
    # a letter that the last token only begins is not printed
    assert done.stdout.rstrip("\ufffd") == f"one two{tokenizer.decode(tokens[len(prompt) :])}".rstrip("\ufffd")
    for options, said in (
        (["", "--tokens", "1"], "the prompt has 0 tokens; it has from 1 to 31"),
        (["one", "--tokens", "-5"], "--tokens -5: from 0 on"),
    ):
        done = generated(tmp_path, *options)
        assert done.returncode == 1
        assert done.stderr.startswith("generate.py: ") and said in done.stderr
    nowhere = generated(tmp_path / "nowhere", "one")
    assert nowhere.returncode == 1 and nowhere.stderr.startswith("generate.py: ") and "nowhere" in nowhere.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--recipe", "bogus"], "there is no recipe 'bogus'"),
        (["--backend", "bogus"], "'bogus'"),
        (["--context", "2"], "--context 2: from 8 on"),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_is_trained(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        module("lower").main([str(tmp_path), *options])
    captured = capsys.readouterr()
    assert said in captured.err and not captured.out


@pytest.mark.docs
def test_a_model_is_trained_on_the_spot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--steps", "2", "--width", "64", "--context", "32", "--recipe", "int4_weight_only"]
    module("lower").main([str(tmp_path), *options])
    assert f"{tmp_path / 'model.pte'}: " in capsys.readouterr().out
    done = generated(tmp_path, "A", "--tokens", "999")  # until the cache is full
    assert "31 tokens in" in done.stderr
