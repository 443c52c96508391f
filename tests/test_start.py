"""To the first output a new process imports what its program needs, and little else: a start is mostly imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import delegraph

RUN = """
import sys
import numpy as np, {alone}
x = np.ones((1, 3, 8, 8), np.float32)
before = {{*sys.modules}}
import delegraph
delegraph.load({file!r})(x)
print(*sorted({{*sys.modules}} - before))
"""

ALONE = {"portable": "numpy", "cpu": "onnxruntime"}
"""What does the same without Delegraph; its modules don't count."""

MOST = {"portable": 130, "cpu": 160}

LIBRARY = {
    *("__future__", "_json", "atexit", "errno", "importlib._abc", "importlib.util", "json", "json.decoder"),
    *("json.encoder", "json.scanner", "mmap", "zlib"),
}
"""The modules of the standard library. `dataclasses`, `threading`, `pathlib`, `tempfile`, `re` … are not worth it."""

SELDOM = {
    *("delegraph.tables", "delegraph.interfaces.former", "delegraph.program.inlining", "delegraph.program.signatures"),
    *("delegraph.program.files.atomic_file", "delegraph.program.flatbuffer.builder", "delegraph.program.user_metadata"),
    *("delegraph.runtime.binding.checking", "delegraph.runtime.binding.shape_bindings"),
    *("delegraph.runtime.calls.targets", "delegraph.runtime.external_data", "delegraph.runtime.pool"),
    *("delegraph.runtime.execution.tracing", "delegraph.runtime.execution.watch"),
    *("delegraph.runtime.isolation", "delegraph.runtime.submitted_calls", "delegraph.runtime.values.uses"),
    *("delegraph_cpu.runtime.profiling", "delegraph_cpu.runtime.tapping", "delegraph_portable.pointwise.arithmetic"),
}
"""What is seldom asked for: profiling, checks, `.ptd` files, signatures, dynamic sizes, `out=` …"""

OF_DELEGATES = {"delegraph.interfaces.backend", "delegraph.runtime.resolution.delegates"}


@pytest.mark.parametrize("name", ["portable", "cpu"])
def test_a_static_net_imports_what_it_needs(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5)).eval()
    x = np.ones((1, 3, 8, 8), np.float32)
    file = tmp_path / "m.pte"
    delegraph.lower(net, (torch.from_numpy(x),), backends=[name] if name == "cpu" else []).save(file)
    code = RUN.format(alone=ALONE[name], file=str(file))
    environment = os.environ | {"DELEGRAPH_PLUGINS": f"delegraph-{name}"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    imported = {*done.stdout.split()}
    ours = {module for module in imported if module.partition(".")[0].startswith("delegraph")}
    assert not ours & SELDOM
    assert name == "cpu" or not ours & OF_DELEGATES
    assert len(ours) <= MOST[name], "is one of these for a rare case? import it there"
    assert imported - ours <= LIBRARY
