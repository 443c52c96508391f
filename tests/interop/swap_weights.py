"""Runs inside ExecuTorch's environment; the models and the input are the test's as well.

swap_weights.py DIR   lower both models there: DIR/theirs_one.{pte,ptd}, DIR/theirs_other.{pte,ptd}; then run every .pte
                      in DIR with every .ptd in DIR on ExecuTorch's runtime: outputs or the error, DIR/results.pt
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch


def models() -> dict[str, torch.nn.Module]:
    """Two that differ in nothing but their weights."""
    made = {}
    for seed, name in enumerate(("one", "other")):
        torch.manual_seed(seed)
        made[name] = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).eval()
    return made


def example() -> torch.Tensor:
    """An input of the models."""
    return torch.linspace(-1, 1, 12).reshape(2, 6)


def write(directory: Path) -> None:
    from executorch.exir import ExecutorchBackendConfig, to_edge

    for name, model in models().items():
        edge = to_edge(torch.export.export(model, (example(),)))
        manager = edge.to_executorch(ExecutorchBackendConfig(external_constants=True))
        (directory / f"theirs_{name}.pte").write_bytes(manager.buffer)
        manager.write_tensor_data_to_file(str(directory))
        next(directory.glob("_default*.ptd")).rename(directory / f"theirs_{name}.ptd")


def run(program: Path, data: Path) -> Any:
    from executorch.extension.pybindings import portable_lib

    try:
        module = portable_lib._load_for_executorch(str(program), data_path=str(data))
        return module.run_method("forward", (example(),))[0].clone()
    except Exception as error:
        return str(error)


def main(directory: Path) -> None:
    write(directory)
    pairs = [(p, d) for p in sorted(directory.glob("*.pte")) for d in sorted(directory.glob("*.ptd"))]
    torch.save({f"{p.name} {d.name}": run(p, d) for p, d in pairs}, directory / "results.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
