"""Runs inside ExecuTorch's environment.

run_executorch.py write DIR   lower every case with ExecuTorch's portable flow: DIR/<case>.pte (and .ptd)
run_executorch.py run DIR     run every DIR/<case>.pte on ExecuTorch's runtime: results into DIR/results.pt, by case
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from modules import Case, cases


def write(name: str, case: Case, directory: Path) -> None:
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.passes import MemoryPlanningPass

    exported = torch.export.export(case.module, case.calls[0], dynamic_shapes=case.dynamic_shapes)
    config = ExecutorchBackendConfig(
        external_constants=case.external_constants, memory_planning_pass=MemoryPlanningPass()
    )
    manager = to_edge(exported).to_executorch(config)
    (directory / f"{name}.pte").write_bytes(manager.buffer)
    if case.external_constants:
        manager.write_tensor_data_to_file(str(directory))
        next(directory.glob("_default*.ptd")).rename(directory / f"{name}.ptd")


def run(name: str, case: Case, directory: Path) -> list[list[Any]]:
    from executorch.extension.pybindings import portable_lib

    data = directory / f"{name}.ptd"
    module = portable_lib._load_for_executorch(
        str(directory / f"{name}.pte"), **({"data_path": str(data)} if data.exists() else {})
    )
    return [[_owned(x) for x in module.run_method("forward", tuple(call))] for call in case.calls]


def _owned(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def main(action: str, directory: Path) -> None:
    results: dict[str, Any] = {}
    for name, case in cases().items():
        try:
            if action == "write":
                write(name, case, directory)
            elif (directory / f"{name}.pte").exists():
                results[name] = run(name, case, directory)
        except Exception:
            results[name] = traceback.format_exc(limit=3)
    torch.save(results, directory / ("write_errors.pt" if action == "write" else "results.pt"))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
