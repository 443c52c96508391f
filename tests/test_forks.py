"""A process is forked in which models have run: the child gets their numbers, or is told why not; it never waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import delegraph

pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system"),
]

SCRIPT = """
import json, os, signal, sys
import numpy as np
import delegraph
from delegraph.errors import NotSupported

path, options, kernels = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
if kernels == ["aten"]:
    import torch
    torch.set_num_threads(2)
x = np.load(path + ".npy")
load = lambda: delegraph.load(path, backend_options=options, kernels=kernels)
models = [load(), load()]
expected = [model(x) for model in models]
child = os.fork()
if not child:
    signal.alarm(60)
    for call in (lambda: models[0](x), lambda: models[1](x), lambda: load()(x)):
        try:
            assert np.array_equal(call(), expected[0])
            print("equal", flush=True)
        except NotSupported as error:
            print(error, flush=True)
    del models, call, load
    sys.exit(0)  # with all of C's and C++'s destructors
_, status = os.waitpid(child, 0)
assert status == 0, status
assert np.array_equal(models[0](x), expected[0])  # the parent goes on
"""

CASES = {
    "portable": ([], {}, ["portable"], "equal"),
    "aten": ([], {}, ["aten"], "equal"),
    "npu": (["npu"], {}, None, "equal"),
    "dsp": (["dsp"], {}, None, "equal"),
    "cpu": (["cpu"], {"cpu": {"num_threads": 2}}, None, "equal"),
    "cpu, one thread": (["cpu"], {"cpu": {"num_threads": 1}}, None, "equal"),
    "cpu, a pool": (["cpu"], {"cpu": {"thread_pool": "shared"}}, None, "whose delegates share a thread pool"),
    "openvino": (["openvino"], {"openvino": {"num_threads": 2}}, None, "OpenVINO's threads stayed there"),
    "mnn": (["mnn"], {"mnn": {"num_threads": 2}}, None, "MNN's threads stayed there"),
}


@pytest.mark.parametrize("name", CASES)
def test_child(name: str, tmp_path: Path) -> None:
    backends, options, kernels, said = CASES[name]
    torch.manual_seed(0)
    simulated = bool({"npu", "dsp"} & set(backends))
    # above delegraph-cpu's LITTLE_WORK, below which it takes one thread; simulated devices take their time
    width = 8 if simulated else 64
    model = nn.Sequential(nn.Conv2d(8, width, 3), nn.ReLU(), nn.Conv2d(width, 8, 3), nn.Flatten(), nn.LazyLinear(8))
    x = torch.randn(1, 8, *((8, 8) if simulated else (32, 32)))
    model(x)
    path = tmp_path / "m.pte"
    if simulated:
        delegraph.lower(delegraph.quantize(model.eval(), [(x,)], backends=backends), backends=backends).save(path)
    else:
        delegraph.lower(model.eval(), (x,), backends=backends).save(path)
    np.save(f"{path}.npy", x.numpy())
    command = [sys.executable, "-c", SCRIPT, str(path), *map(json.dumps, (options, kernels))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all(said in line for line in lines), lines
