"""`python -m benchmarks.memory`: resident memory of loaded programs, as multiples of their files.

    load      one load, each method run once: a prompt of 128 tokens and the next one, or a batch of 8
    20 loads  twenty of the same file in one process, each run once, as a multiple of one; the states of the other
              nineteen (key-value caches), which are each load's own, are not counted, nor the room for new values
    process   what a second process on the same file has for itself, as a multiple of the file; bounded with a cache,
              for weights are packed in each process without one

Each figure is of a process of its own, without torch, as a proportional set size (`smaps_rollup`, Linux): a page that
several processes or mappings have counts once for all of them. What the process had before, with one small delegate
loaded, is not counted. `--cache` measures with `delegraph.load(…, cache=…)` as well, from its second load on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.processes import ROOT, in_process

FOLDER: Final = ROOT / "build" / "memory"
PROMPT: Final = 128
CONTEXT: Final = 256
RECIPES: Final = {"float32": "float", "int8": "int8_weight_only", "4 bits": "int4_weight_only"}
IN_EACH_RUN: Final = ", widened in each run"
"""The end of a name whose program is loaded with cpu's option `widen="run"`."""
BOUNDS: Final = {"float32": 1.6, "bfloat16": 2.3, f"bfloat16{IN_EACH_RUN}": 1.6, "int8": 1.3, "4 bits": 1.3}
"""Of one load, times the file. onnxruntime computes bfloat16 in float32, which takes twice the bytes."""
LOADS: Final = 20
LOADS_BOUND: Final = 1.2
PROCESS_BOUND: Final = 0.3


# ---- the files ------------------------------------------------------------------------------------------------------


def write_files(names: tuple[str, ...]) -> list[str]:
    """Lower the models that are not there yet; their names."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in (*names, "small"):
        if not _file(name).exists():
            _write(name.removesuffix(IN_EACH_RUN))
    return list(names)


def _file(name: str) -> Path:
    return FOLDER / f"{name.removesuffix(IN_EACH_RUN)}.pte"


def _write(name: str) -> None:
    import torch

    import delegraph

    if name == "small":
        delegraph.lower(torch.nn.Linear(4, 4), (torch.zeros(1, 4),), backends=["cpu"]).save(FOLDER / "small.pte")
        return
    model, _, precision = name.partition(", ")
    methods: Any = MODELS[model](precision)
    recipe = RECIPES.get(precision, "float")
    if recipe != "float":
        data = [(torch.randn(8, 1024),)] if model == "mlp" else None
        methods = delegraph.quantize(*methods[:1], *([data] if data else []), recipe=recipe, backends=["cpu"])
        methods = (methods,)
    sharing = delegraph.ExecutorchBackendConfig(share_mutable_buffers=model.startswith("llama"))
    delegraph.lower(*methods, backends=["cpu"], config=sharing).save(FOLDER / f"{name}.pte")


def _llama(precision: str, width: int = 640, layers: int = 6, vocabulary: int = 4096) -> tuple[Any, ...]:
    """A Llama, of 32 million weights unless told otherwise: a prompt of any length, and one token; both give the last
    token's logits."""
    import torch
    from torch.export import Dim
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=width * 27 // 10, num_hidden_layers=layers,
        num_attention_heads=width // 64, num_key_value_heads=5, max_position_embeddings=CONTEXT,
        bos_token_id=0, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model: Any = LlamaForCausalLM(config).eval()
    model = model.to(torch.bfloat16) if precision == "bfloat16" else model
    model.generation_config.cache_implementation = "static"
    model.forward = partial(model.forward, logits_to_keep=1)  # as examples/generate does
    recipe = TorchExportableModuleForDecoderOnlyLM(model, batch_size=1, max_cache_len=CONTEXT)
    length = Dim("length", min=2, max=CONTEXT - 1)
    prefill = recipe.export(
        input_ids=torch.zeros(1, 5, dtype=torch.long),
        cache_position=torch.arange(5),
        dynamic_shapes={"input_ids": {1: length}, "cache_position": {0: length}},
    )
    decode = recipe.export(input_ids=torch.zeros(1, 1, dtype=torch.long), cache_position=torch.arange(1))
    return ({"prefill": prefill, "decode": decode},)


def _mlp(precision: str) -> tuple[Any, ...]:
    """24 linear layers of 1024 by 1024."""
    import torch

    torch.manual_seed(0)
    layers = [layer for _ in range(24) for layer in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())]
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    return torch.nn.Sequential(*layers).eval().to(dtype), (torch.randn(8, 1024, dtype=dtype),)


MODELS: Final[Mapping[str, Callable[[str], tuple[Any, ...]]]] = {
    "llama": _llama,
    "llama 138M": partial(_llama, width=960, layers=12, vocabulary=8192),
    "mlp": _mlp,
}


MEASURED: Final = (
    "llama 138M, float32",
    "llama 138M, bfloat16",
    f"llama 138M, bfloat16{IN_EACH_RUN}",
    "llama 138M, int8",
    "llama 138M, 4 bits",
    "mlp, float32",
)


# ---- in a process of its own ----------------------------------------------------------------------------------------


def resident(field: str = "Pss") -> int:
    """Bytes of this process; `Private` is what no other process has."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    return sizes["Private_Clean"] + sizes["Private_Dirty"] if field == "Private" else sizes[field]


def loaded(name: str, loads: int, cache: str, field: str = "Pss", wait: bool = False) -> dict[str, int]:
    """What so many loads of a file, each run once, take: bytes, and of these those that are no file's."""
    import numpy as np

    import delegraph

    small = delegraph.load(FOLDER / "small.pte")
    small(np.zeros((1, 4), np.float32))
    before, anonymous = resident(field), resident("Anonymous")
    kept = [_run(name, cache) for _ in range(loads)]
    figures = {"bytes": resident(field) - before, "anonymous": resident("Anonymous") - anonymous}
    if wait:
        print(json.dumps(figures), flush=True)
        sys.stdin.read()
    assert len(kept) == loads
    rooms = 2 if "bfloat16" in name else 1  # a new value that is made of float32 does not replace the old one in place
    figures["states"] = rooms * sum(array.nbytes for array in kept[0].state.values())
    return figures


def _run(name: str, cache: str) -> Any:
    import numpy as np

    import delegraph

    options: dict[str, Any] = {"cache": cache} if cache else {}
    if name.endswith(IN_EACH_RUN):
        options["backend_options"] = {"cpu": {"widen": "run"}}
    if not name.startswith("llama"):
        model = delegraph.load(_file(name), **options)
        model(np.zeros((8, 1024), np.float32))
        return model
    model = delegraph.load(_file(name), method="decode", **options)
    model.prefill(input_ids=np.zeros((1, PROMPT), np.int64), cache_position=np.arange(PROMPT))
    model.decode(input_ids=np.zeros((1, 1), np.int64), cache_position=np.array([PROMPT]))
    return model


def second_process(name: str, cache: str) -> int:
    """Bytes that a process on the file has for itself while another one has it loaded, too."""
    code = f"from benchmarks.memory import loaded; loaded({name!r}, 1, {cache!r}, wait=True)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as first:
        assert first.stdout is not None
        first.stdout.readline()
        figures = in_process("benchmarks.memory", f"loaded({name!r}, 1, {cache!r}, 'Private')", 1)
        first.communicate()
    return int(figures["bytes"])


# ---- the table ------------------------------------------------------------------------------------------------------


def row(name: str, cache: str) -> tuple[float, ...]:
    """Times the file: one load, its anonymous part; 20 loads, times one; a second process's own."""
    size = _file(name).stat().st_size
    if cache:
        in_process("benchmarks.memory", f"loaded({name!r}, 1, {cache!r})", 1)  # which fills it
    one = in_process("benchmarks.memory", f"loaded({name!r}, 1, {cache!r})", 1)
    many = in_process("benchmarks.memory", f"loaded({name!r}, {LOADS}, {cache!r})", 1)
    own = second_process(name, cache)
    of_loads = many["bytes"] - (LOADS - 1) * one["states"]
    return one["bytes"] / size, one["anonymous"] / size, of_loads / one["bytes"], own / size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=";".join(MEASURED))
    parser.add_argument("--cache", action="store_true", help="with a compilation cache as well")
    parser.add_argument("--check", action="store_true", help="fail where a bound is exceeded")
    args = parser.parse_args()
    names = tuple(args.models.split(";"))
    in_process("benchmarks.memory", f"write_files({names!r})", 1)
    print("| model | file, MB | cache | load | of it anonymous | 20 loads | second process |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: |")
    exceeded = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            for cache in ("", folder) if args.cache else ("",):
                figures = row(name, cache)
                size = _file(name).stat().st_size / 1e6
                told = " | ".join(f"{figure:.2f}x" for figure in figures)
                print(f"| {name} | {size:.1f} | {'yes' if cache else 'no'} | {told} |", flush=True)
                shares = cache and not name.endswith(IN_EACH_RUN)  # a weight that is made wide is the process's own
                bounds = (BOUNDS[name.partition(", ")[2]], None, LOADS_BOUND, PROCESS_BOUND if shares else None)
                pairs = zip(figures, bounds, strict=True)
                exceeded += [name for figure, bound in pairs if bound is not None and figure > bound]
    if args.check and exceeded:
        raise SystemExit(f"bounds are exceeded: {', '.join(dict.fromkeys(exceeded))}")


if __name__ == "__main__":
    main()
