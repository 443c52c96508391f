"""`python -m benchmarks.decode [--threads 1,2]`: tokens a second of a small Llama, one at a time on a static KV cache.

The same weights, exported by `transformers`' own recipe, here, in eager mode and on ExecuTorch, and converted by
onnxruntime-genai's builder; each in a process of its own. A row counts only if its tokens are those of eager mode.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.processes import EXECUTORCH, PEERS, in_process

PROMPT = (3, 14, 15, 92, 65, 35)
STEPS = 160
CACHE = 192
Figures = dict[str, Any]


def language_model() -> Any:
    """A Llama of 5.8 million weights; the same in every process."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4096, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=CACHE, bos_token_id=0, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def recipe() -> Any:
    """`transformers`' exportable module around it."""
    from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

    model = language_model()
    model.generation_config.cache_implementation = "static"
    return TorchExportableModuleForDecoderOnlyLM(model, batch_size=1, max_cache_len=CACHE)


def exported() -> Any:
    """The method that decodes one token."""
    import torch

    return recipe().export(input_ids=torch.zeros(1, 1, dtype=torch.long), cache_position=torch.arange(1))


def decode(step: Callable[[int, int], Any]) -> Figures:
    """`step(token, position)` gives the logits of the next token. Greedy from `PROMPT` on."""
    tokens, times = list(PROMPT), []
    for position in range(STEPS):
        start = time.perf_counter()
        logits = step(tokens[position], position)
        if position + 1 == len(tokens):
            tokens.append(int(logits.reshape(-1).argmax()))
        times.append(time.perf_counter() - start)
    return {"tokens": tokens, "per_second": 1 / statistics.median(times[8:])}


def ours(backends: list[str]) -> Figures:
    """Delegraph, on `backends` and portable kernels."""
    import numpy as np

    import delegraph

    model = delegraph.load(bytes(delegraph.lower(exported(), backends=backends)))
    return decode(lambda token, at: model(input_ids=np.array([[token]]), cache_position=np.array([at])))


def eager(threads: int) -> Figures:
    """The recipe's module as it is."""
    import torch

    torch.set_num_threads(threads)
    model = recipe().model
    with torch.no_grad():
        return decode(lambda token, at: model(input_ids=torch.tensor([[token]]), cache_position=torch.tensor([at])))


def executorch(xnnpack: bool, threads: int) -> Figures:
    """ExecuTorch, on its portable kernels or with XNNPACK before them; runs in its environment."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings import portable_lib

    torch.set_num_threads(threads)
    portable_lib._unsafe_reset_threadpool(threads)
    program = exported().run_decompositions({})  # it refuses in-place calls on what `.to()` returned
    edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()] if xnnpack else [])
    buffer = edge.to_executorch().buffer  # which its runtime reads without owning it
    model = portable_lib._load_for_executorch_from_buffer(buffer)
    return decode(lambda token, at: model.forward((torch.tensor([[token]]), torch.tensor([at])))[0])


def genai(threads: int) -> Figures:
    """onnxruntime-genai on what its builder makes of the checkpoint; runs in the peers' environment."""
    import onnxruntime_genai as og
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    with tempfile.TemporaryDirectory() as place:
        source, made = Path(place) / "source", Path(place) / "made"
        checkpoint = language_model()
        checkpoint.config.eos_token_id = checkpoint.config.vocab_size - 1  # the builder wants one, and a tokenizer
        checkpoint.save_pretrained(source)
        words = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
        PreTrainedTokenizerFast(tokenizer_object=words, unk_token="a").save_pretrained(source)
        builder = [
            sys.executable,
            "-m",
            "onnxruntime_genai.models.builder",
            "-i",
            str(source),
            "-o",
            str(made),
            "-c",
            place,
        ]
        subprocess.run([*builder, "-p", "fp32", "-e", "cpu"], check=True, capture_output=True)
        settings = json.loads((made / "genai_config.json").read_text())
        settings["model"]["decoder"]["session_options"]["intra_op_num_threads"] = threads
        (made / "genai_config.json").write_text(json.dumps(settings))
        model = og.Model(str(made))
        search = og.GeneratorParams(model)
        search.set_search_options(max_length=CACHE, do_sample=False)
        generator = og.Generator(model, search)
        generator.append_tokens(list(PROMPT))
        times = []
        for _ in range(STEPS + 1 - len(PROMPT)):
            start = time.perf_counter()
            generator.generate_next_token()
            times.append(time.perf_counter() - start)
        tokens = [int(token) for token in generator.get_sequence(0)]
        return {"tokens": tokens, "per_second": 1 / statistics.median(times[8:])}


def peers(threads: int) -> dict[str, tuple[str, str | Path]]:
    """Every peer's name, the call that measures it, and the Python that makes it."""
    return {
        "eager": (f"eager({threads})", sys.executable),
        "delegraph, cpu": ("ours(['cpu'])", sys.executable),
        "delegraph, portable": ("ours([])", sys.executable),
        "onnxruntime-genai": (f"genai({threads})", PEERS),
        "executorch, XNNPACK": (f"executorch(True, {threads})", EXECUTORCH),
        "executorch, portable": (f"executorch(False, {threads})", EXECUTORCH),
    }


def measured(threads: int, names: Sequence[str]) -> dict[str, Figures]:
    """Tokens, and how many a second, of each of `names`; an error of those that do not run."""
    found: dict[str, Figures] = {}
    for name in names:
        call, python = peers(threads)[name]
        try:
            found[name] = in_process("benchmarks.decode", call, threads, python)
        except SystemExit as error:  # ExecuTorch 1.4.1's runtime ends with a segmentation fault in this program
            found[name] = {"error": str(error).strip().splitlines()[-1]}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", default="1,2", help="thread counts, separated by commas")
    packages = ("torch", "transformers", "onnxruntime", "numpy")
    print(platform.platform(), f"{os.cpu_count()} CPUs,", ", ".join(f"{name} {version(name)}" for name in packages))
    for threads in map(int, parser.parse_args().threads.split(",")):
        print(f"\n{threads} thread(s)")
        found = measured(threads, list(peers(threads)))
        wanted = found["eager"]
        for name, figure in found.items():
            if "error" in figure:
                print(f"  {name:22} does not run")
                continue
            ratio = figure["per_second"] / wanted["per_second"]
            remark = "" if figure["tokens"] == wanted["tokens"] else "  OTHER TOKENS THAN EAGER"
            print(f"  {name:22} {figure['per_second']:8.1f} tokens/s  {ratio:5.2f} x eager{remark}")


if __name__ == "__main__":
    main()
