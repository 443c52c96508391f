"""The runtime half runs where neither torch nor, for a program without bfloat16, ml_dtypes can be imported, and its
import brings nothing of the other half.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

import delegraph

SCRIPT = """
import sys
for name in ("torch", "ml_dtypes", "delegraph.aot", "delegraph_partitioners"):
    sys.modules[name] = None
import delegraph, numpy as np
program = delegraph.load(sys.argv[1], backend_options={"openvino": {"num_threads": 1}})
np.save(sys.argv[2], program(np.load(sys.argv[3])))
assert not [name for name in sys.modules if name.startswith("delegraph_openvino.aot")]
"""


def test_without_torch(tmp_path: Path) -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh()), torch.randn(2, 8)
    delegraph.lower(model, (x,), backends=["openvino"]).save(tmp_path / "m.pte")
    np.save(tmp_path / "x.npy", x.numpy())
    command = [sys.executable, "-c", SCRIPT, *(str(tmp_path / name) for name in ("m.pte", "y.npy", "x.npy"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), model(x).detach().numpy(), rtol=1e-5, atol=1e-6)
