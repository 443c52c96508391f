"""Programs and inputs in a folder -> their outputs, or the error's words, in another: run here and on each platform.

    python run_programs.py FOLDER OUTPUTS

NAME.npz has the inputs of each call of NAME.pte, as CALL_INDEX. Imports nothing but NumPy and Delegraph.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import delegraph


def calls_of(file: Path) -> list[list[Any]]:
    """The inputs of each call."""
    with np.load(file) as saved:
        calls: list[list[Any]] = []
        for name in saved.files:  # in their order
            if int(name.partition("_")[0]) == len(calls):
                calls.append([])
            calls[-1].append(saved[name])
        return calls


def main(folder: Path, outputs: Path) -> None:
    """Run each program, and write what comes of it."""
    for file in sorted(folder.glob("*.pte")):
        try:
            module = delegraph.load(file)
            results = [module(*inputs) for inputs in calls_of(file.with_suffix(".npz"))]
        except delegraph.DelegraphError as error:
            (outputs / f"{file.stem}.json").write_text(json.dumps(f"{type(error).__name__}: {error}"))
            continue
        flat = {
            f"{call}_{index}": np.asarray(value)
            for call, result in enumerate(results)
            for index, value in enumerate(result if isinstance(result, list | tuple) else [result])
        }
        np.savez(outputs / f"{file.stem}.npz", **flat)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
