"""Runs inside ExecuTorch's environment: `run_quantized.py DIR` runs every DIR/<name>.pte on DIR/<name>.pt, its inputs,
with ExecuTorch's portable and quantized kernels, and writes the first outputs to DIR/results.pt by name."""

from __future__ import annotations

import sys
from pathlib import Path

import executorch.kernels.quantized  # noqa: F401  registers its kernels
import torch
from executorch.extension.pybindings import portable_lib


def main(directory: Path) -> None:
    results = {}
    for path in sorted(directory.glob("*.pte")):
        module = portable_lib._load_for_executorch(str(path))
        (output, *_) = module.run_method("forward", tuple(torch.load(path.with_suffix(".pt"))))
        results[path.stem] = output.clone()
    torch.save(results, directory / "results.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
