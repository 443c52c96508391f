"""Folders on standard input, one a line -> in each, `model.pte` run on `inputs.npz` gives `outputs.npz`.

Run where torch cannot be imported (`examples/without_torch.py`). Answers each line with "done", or with what went wrong
as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

import delegraph


def leaves(value: Any) -> list[Any]:
    """The arrays in a model's result, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for one in value for leaf in leaves(one)]
    return [] if value is None else [value]


for line in sys.stdin:
    folder = Path(line.strip())
    try:
        with np.load(folder / "inputs.npz") as inputs:
            result = delegraph.load(folder / "model.pte")(**inputs)
        np.savez(folder / "outputs.npz", *leaves(result))
        assert "torch" not in sys.modules
        print("done", flush=True)
    except Exception:
        print(json.dumps(traceback.format_exc()), flush=True)
