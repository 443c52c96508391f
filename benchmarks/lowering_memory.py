"""`python -m benchmarks.lowering_memory [--layers 30 | --large 6]`: the memory that quantizing and lowering take at
their peak.

A decoder-only model in SmolLM2's shape, random weights, in a process for each row. All columns are in multiples of the
model's weights and do not count the model: the peak above what the process had before, and what is left afterwards,
when the program is saved and gone and the allocator has given back what is free. Fails where a peak exceeds `BOUND`.
`--large` is a model of linear layers with so many GB of weights, with its weights in the `.pte` and in a `.ptd`, which
is loaded and run in a process of its own as well. Linux alone.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.processes import ROOT, in_process

BOUND: Final = 1.5
"""For the peak of a lowering or a quantization, in multiples of the model's weights."""
OVERHEAD: Final = 128 * 2**20
"""Bytes that do not depend on the model: modules imported on the way, graphs."""

ROWS: Final = tuple(
    (dtype, methods, recipe, external)
    for dtype in ("float32", "bfloat16")
    for recipe, externals in (("float", (False, True)), ("int8_weight_only", (False,)), ("int4_weight_only", (False,)))
    for external in externals
    for methods in (1, 2)
)


def resident(field: str = "VmRSS") -> int:
    """Bytes of this process in memory; `VmHWM`: the most since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def forget_peak() -> int:
    """Give free memory back, so that its use is seen; returns what remains."""
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return resident()


def measured(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """The result of `call`, the peak of memory above what was there before, in bytes, and seconds."""
    before, start = forget_peak(), time.perf_counter()
    result = call()
    return result, {"peak": resident("VmHWM") - before, "seconds": time.perf_counter() - start}


def row(dtype: str, methods: int, recipe: str, external: bool, layers: int) -> dict[str, float]:
    """What one process measures, in bytes and seconds."""
    warnings.simplefilter("ignore")  # torchao's and transformers' own
    sys.path.insert(0, str(ROOT / "examples/generate"))
    import torch
    from lower import exported
    from transformers import LlamaConfig, LlamaForCausalLM

    import delegraph

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=layers, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=256, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()
    programs: Any = exported(model, 256)
    if methods == 1:
        programs = {"decode": programs["decode"]}
    delegraph.lower(torch.nn.Linear(8, 8), (torch.zeros(1, 8),), backends=["cpu"])  # what is imported once
    result = {"weights": float(sum(each.nbytes for each in model.parameters()))}
    before = forget_peak()
    result |= _stages(programs, recipe, external)
    result["left"] = float(forget_peak() - before)
    return result


def _stages(programs: Any, recipe: str, external: bool) -> dict[str, float]:
    import delegraph

    result: dict[str, float] = {}
    quantized = programs
    if recipe != "float":
        quantized, quantizing = measured(lambda: delegraph.quantize(programs, recipe=recipe, backends=["cpu"]))
        result |= {f"quantize {name}": value for name, value in quantizing.items()}
    settings = delegraph.ExecutorchBackendConfig(share_mutable_buffers=len(programs) > 1, external_constants=external)
    lowered, lowering = measured(lambda: delegraph.lower(quantized, backends=["cpu"], config=settings))
    result |= {f"lower {name}": value for name, value in lowering.items()}
    with tempfile.TemporaryDirectory() as folder:
        _, saving = measured(lambda: lowered.save(Path(folder) / "model.pte"))
        result["file"] = float(sum(path.stat().st_size for path in Path(folder).iterdir()))
    return result | {"save peak": saving["peak"]}


# ---- a file of several GB --------------------------------------------------------------------------------------------

WIDTH: Final = 8192
LARGE: Final = ROOT / "build" / "large"


def large_row(gigabytes: float, external: bool) -> dict[str, float]:
    """Lower and save a model of so many GB of float32, in bytes and seconds."""
    import torch

    import delegraph

    delegraph.lower(torch.nn.Linear(8, 8), (torch.zeros(1, 8),), backends=["cpu"])  # what is imported once
    count = round(gigabytes * 1e9 / (WIDTH * WIDTH * 4))
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(count)))
    result = {"weights": float(count * WIDTH * WIDTH * 4)}
    settings = delegraph.ExecutorchBackendConfig(external_constants=external)
    x = torch.ones(1, WIDTH)
    lowered, lowering = measured(lambda: delegraph.lower(model, (x,), backends=["cpu"], config=settings))
    _, saving = measured(lambda: lowered.save(LARGE / "model.pte"))
    with torch.no_grad():
        result["sum"] = float(model(x).sum())
    result["file"] = float(sum(path.stat().st_size for path in LARGE.iterdir()))
    return result | {f"lower {name}": value for name, value in lowering.items()} | {"save peak": saving["peak"]}


def loaded_row() -> dict[str, float]:
    """Load that file and run it once."""
    import numpy as np

    import delegraph

    start, before = time.perf_counter(), forget_peak()
    model = delegraph.load(LARGE / "model.pte", data_path=sorted(LARGE.glob("*.ptd")) or None)
    result = model(np.ones((1, WIDTH), np.float32))
    seconds = time.perf_counter() - start
    return {"sum": float(result.sum()), "load peak": resident("VmHWM") - before, "load seconds": seconds}


def large(gigabytes: float) -> bool:
    """Print a row with the weights in the program, and one with them beside it; whether one is above the bound."""
    table = Table("weights, GB", "in", "lower", "save", "file", "load and run")
    failed = False
    for external in (False, True):
        shutil.rmtree(LARGE, ignore_errors=True)
        LARGE.mkdir(parents=True)
        row = in_process("benchmarks.lowering_memory", f"large_row({gigabytes!r}, {external!r})", 1)
        ran = in_process("benchmarks.lowering_memory", "loaded_row()", 1)
        assert math.isclose(row["sum"], ran["sum"], rel_tol=1e-3, abs_tol=1e-2), (row["sum"], ran["sum"])
        shutil.rmtree(LARGE)
        weights = row["weights"]
        failed |= row["lower peak"] > BOUND * weights + OVERHEAD
        table.add_row(
            f"{weights / 1e9:.1f}", ".ptd" if external else ".pte",
            f"{row['lower peak'] / weights:.2f}, {row['lower seconds']:.0f} s",
            *(f"{row[name] / weights:.2f}" for name in ("save peak", "file")),
            f"{ran['load peak'] / weights:.2f}, {ran['load seconds']:.0f} s",
        )  # fmt: skip
    Console(width=120).print(table)
    return failed


def main() -> None:
    """Print the table; a row above its bound is marked, and the exit status says so."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=30, help="of the model; 30 are 135 million weights")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--large", type=float, metavar="GB", help="a model of so many GB instead")
    options = parser.parse_args()
    if options.large:
        sys.exit(large(options.large))
    if options.row:
        print(json.dumps(row(*json.loads(options.row), layers=options.layers)))
        return
    table = Table("dtype", "methods", "recipe", "weights", "quantize", "lower", "save", "left", "file")
    failed = False
    for dtype, methods, recipe, external in ROWS:
        command = [sys.executable, "-m", "benchmarks.lowering_memory", "--layers", str(options.layers), "--row"]
        command.append(json.dumps([dtype, methods, recipe, external]))
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        of_row: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        weights = of_row["weights"]
        cells = []
        for stage in ("quantize", "lower"):
            if f"{stage} peak" in of_row:
                is_above = of_row[f"{stage} peak"] > BOUND * weights + OVERHEAD
                failed |= is_above
                text = f"{of_row[f'{stage} peak'] / weights:.2f}, {of_row[f'{stage} seconds']:.0f} s"
                cells.append(f"[red]{text}[/red]" if is_above else text)
            else:
                cells.append("")
        cells += [f"{of_row[name] / weights:.2f}" for name in ("save peak", "left", "file")]
        name = f"{recipe}, in a .ptd" if external else recipe
        table.add_row(dtype, str(methods), name, f"{weights / 2**20:.0f} MB", *cells)
    Console(width=120).print(table)
    sys.exit(failed)


if __name__ == "__main__":
    main()
