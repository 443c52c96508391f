"""`vectors.npz`: commands, inputs, and the outputs that the TOSA reference model gives: for machines without it.

PYTHONPATH=build/oracles python -m backends.npu.tests.vectors      writes the file anew
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from backends.npu.tests.cases import Case, cases
from numpy.typing import NDArray

from delegraph_npu.accesses import inputs_of
from delegraph_npu.commands import Pool, PoolKind

FILE = Path(__file__).with_name("vectors.npz")
ROUNDINGS = ("single", "double")


@dataclass(frozen=True)
class Vector:
    """A blob, what goes in and what comes out."""

    blob: bytes
    inputs: list[NDArray[Any]]
    output: NDArray[Any]


def roundings(case: Case) -> tuple[str, ...]:
    """Those of which TOSA tells the result: with double rounding a mean is TFLite's, not TOSA's."""
    is_mean = isinstance(case.command, Pool) and case.command.kind is not PoolKind.MAX
    return ROUNDINGS[:1] if is_mean else ROUNDINGS


def read() -> dict[str, Vector]:
    """All vectors by name."""
    with np.load(FILE) as file:
        counts = json.loads(file["counts"].tobytes())
        return {
            name: Vector(
                file[f"{name}/blob"].tobytes(),
                [file[f"{name}/input{index}"] for index in range(count)],
                file[f"{name}/output"],
            )
            for name, count in counts.items()
        }


def write() -> None:
    """Ask the reference model for all of them."""
    from backends.npu.tests.oracles.tosa import tosa

    arrays: dict[str, NDArray[Any]] = {}
    counts = {}
    for case in cases():
        for rounding in roundings(case):
            name = f"{case.name}, {rounding} rounding"
            blob = case.builder.blob([case.command], inputs_of(case.command), [case.command.ofm], rounding)
            arrays[f"{name}/blob"] = np.frombuffer(blob, np.uint8)
            arrays |= {f"{name}/input{index}": array for index, array in enumerate(case.inputs)}
            arrays[f"{name}/output"] = tosa(case, rounding)
            counts[name] = len(case.inputs)
    arrays["counts"] = np.frombuffer(json.dumps(counts).encode(), np.uint8)
    np.savez_compressed(FILE, allow_pickle=False, **arrays)


if __name__ == "__main__":
    write()
