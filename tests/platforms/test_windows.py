"""Windows, simulated: no module of ours counts on what only POSIX has, and files are saved where open ones stay.

A workflow runs the tests on Windows itself (`.github/workflows/ci.yml`); until it has, this is all that is known.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.platforms.as_windows import MISSING_MODULES, ONLY_ON_POSIX
from tools.distributions import DISTRIBUTIONS, ROOT

WITH_ANOTHER_WAY = {
    "backends/cpu/delegraph_cpu/aot/preprocess.py": "/dev/shm",  # or the folder for temporary files
    "backends/cpu/delegraph_cpu/runtime/adaptive.py": "os.sched_getaffinity",  # or no load meter
    "backends/cpu/delegraph_cpu/runtime/other_processes.py": "/proc/stat os.sched_getaffinity os.sysconf",  # the meter
    "backends/cpu/delegraph_cpu/sessions.py": "os.register_at_fork",
    "backends/mnn/delegraph_mnn/options.py": "os.sched_getaffinity",  # or os.cpu_count
    "backends/providers/delegraph_providers/hardware.py": "/sys/bus/pci/devices",  # or what providers find
    "core/delegraph/cli/timing.py": "/proc/self/status resource",  # or no peak of memory
    "core/delegraph/interfaces/compilation_cache.py": "os.geteuid",  # or any owner
    "core/delegraph/interfaces/dma_buf.py": "fcntl",  # no such buffers there
    "core/delegraph/interfaces/forks.py": "os.register_at_fork",  # no forks there
    "core/delegraph/interfaces/host.py": "/proc/cpuinfo",  # or the platform's words
    "core/delegraph/mapping/parts.py": "fcntl",  # two runs of one output are not told apart there
    "core/delegraph/program/files/atomic_file.py": "/proc/self/fd fcntl os.O_TMPFILE os.chown",  # or named files
    "core/delegraph/runtime/concurrency.py": "os.sched_getaffinity",  # or os.cpu_count
    "core/delegraph/runtime/leases.py": "fcntl os.register_at_fork signal.SIGIO signal.SIGURG signal.SIG_BLOCK"
    " signal.pthread_sigmask signal.sigwait",  # or no lease
    "core/delegraph/runtime/execution/stop.py": "os.register_at_fork",
    "core/delegraph/runtime/execution/watch.py": "os.register_at_fork",
    "core/delegraph/runtime/mapped_file.py": "/proc/self/fd mmap.MADV_DONTNEED mmap.MAP_ANONYMOUS mmap.MAP_PRIVATE"
    " mmap.PROT_READ mmap.PROT_WRITE os.preadv",  # or a mapping that Windows has
    "plugins/aten/delegraph_aten/calls.py": "os.register_at_fork",
    "plugins/executorch/delegraph_executorch/extension/pybindings/_portable_lib.py": "os.sched_getaffinity",
    "plugins/ray/delegraph_ray/shipping.py": "os.getuid",  # or any owner
}
"""What of POSIX our modules use, by file, where Windows has another way, which `PROGRAMS` takes below."""


def posix_names(tree: ast.Module) -> Iterator[str]:
    """What only POSIX has, of the standard library and of the file system, that a module names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.partition(".")[0] in MISSING_MODULES)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module in MISSING_MODULES:
            yield node.module
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module in ONLY_ON_POSIX:
            yield from (f"{node.module}.{a.name}" for a in node.names if a.name in ONLY_ON_POSIX[node.module])
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in ONLY_ON_POSIX.get(node.value.id, ()):
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Constant) and str(node.value).startswith(("/proc/", "/dev/", "/sys/")):
            yield str(node.value).rstrip("/")


def test_what_is_posix_alone_has_another_way() -> None:
    used = {}
    for distribution in DISTRIBUTIONS:
        for path in sorted(distribution.package.rglob("*.py")):
            names = set() if "templates" in path.parts else set(posix_names(ast.parse(path.read_text("utf-8"))))
            if names:
                used[path.relative_to(ROOT).as_posix()] = " ".join(sorted(names))
    assert used == WITH_ANOTHER_WAY, "give what is new another way for Windows, have PROGRAMS run it, and say it above"


def simulated(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "tests.platforms.as_windows", str(folder / "script.py"), str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


RUNTIME = """
import importlib, pkgutil, sys
import delegraph

packages = ["delegraph.program", "delegraph.interfaces", "delegraph.plugins", "delegraph.runtime", "delegraph.devtools"]
for name in packages:
    for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
        if module.name != "delegraph.devtools.program_view.main":  # for Model Explorer alone, which brings its own
            importlib.import_module(module.name)
assert "torch" not in sys.modules
"""

PROGRAMS = """
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

import delegraph
from delegraph.aot import ExecutorchBackendConfig, LoweringConfig
from delegraph.runtime import data_loader

folder = Path(sys.argv[1])
data_loader.COPIED_BYTES = 0  # every file is mapped
torch.manual_seed(0)
x = torch.randn(1, 3, 8, 8)
net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 7)).eval()
expected = net(x).detach().numpy()
for backends in ([], ["cpu"], ["npu"], ["dsp"]):
    lowered = delegraph.lower(net, (x,), backends=backends)
    file = folder / f"{''.join(backends)}.pte"
    lowered.save(file)
    lowered.save(file)  # over the first
    loaded = delegraph.load(file, cache=folder / "cache")
    np.testing.assert_allclose(loaded(x.numpy()), expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(delegraph.load(file, cache=folder / "cache")(x.numpy()), expected, rtol=1e-3, atol=1e-4)
    assert not list(folder.glob(".delegraph-*"))

try:
    lowered.save(file)  # which is mapped
except PermissionError as error:
    print(error)
assert loaded(x.numpy()).shape == (1, 7)
del loaded

config = LoweringConfig(executorch=ExecutorchBackendConfig(external_constants=True))
apart = delegraph.lower(net, (x,), config=config)
apart.save(folder / "apart.pte")
apart.save(folder / "apart.pte")
print(sorted(file.name for file in folder.glob("*.ptd")))
"""


def test_the_runtime_is_imported(tmp_path: Path) -> None:
    done = simulated(RUNTIME, tmp_path)
    assert done.returncode == 0, done.stderr


def test_programs_are_lowered_saved_over_and_run(tmp_path: Path) -> None:
    done = simulated(PROGRAMS, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Windows replaces no file that somebody has open, or loaded: end that first" in done.stdout
    assert done.stdout.endswith("['_default_external_constant.ptd']\n")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("import fcntl", "No module named 'fcntl'"),
        ("import os\nos.fork()", "module 'os' has no attribute 'fork', as on Windows"),
        ("from os import getuid", "cannot import name 'getuid'"),
        ("import mmap\nmmap.mmap(-1, 8, flags=mmap.MAP_PRIVATE)", "module 'mmap' has no attribute 'MAP_PRIVATE'"),
        ("open('/proc/stat')", "No such file or directory, as on Windows"),
        ("import ctypes\nctypes.CDLL(None)", "must be str, not None"),
        ("import os\nfile = open('a', 'w')\nos.unlink('a')", "The process cannot access the file"),
    ],
    ids=lambda value: value.partition("\n")[0][:20],
)
def test_the_simulation_refuses(tmp_path: Path, line: str, told: str) -> None:
    """A module of ours which does that."""
    (tmp_path / "delegraph_careless.py").write_text(line)
    script = f"import os, sys\nos.chdir({str(tmp_path)!r})\nsys.path.append('.')\nimport delegraph_careless"
    done = simulated(script, tmp_path)
    assert told in done.stderr, done.stderr
