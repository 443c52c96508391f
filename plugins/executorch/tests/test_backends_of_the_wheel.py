"""ExecuTorch's backends under our name are ExecuTorch's own modules, or an error that says what to install."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from delegraph.errors import PluginLoadError

ALIAS = """
import sys
sys.path.append({site_packages!r})
from delegraph_executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner as ours
import delegraph_executorch.backends.xnnpack.partition.xnnpack_partitioner as module
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner as theirs
assert ours is theirs
assert module.__spec__.name == module.__name__ == "executorch.backends.xnnpack.partition.xnnpack_partitioner"
"""


@pytest.mark.executorch
def test_a_backend_of_the_wheel_is_the_same_module(executorch_package: Path) -> None:
    script = ALIAS.format(site_packages=str(executorch_package.parent))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(importlib.util.find_spec("executorch") is not None, reason="the wheel is installed")
def test_without_the_wheel_an_import_says_what_to_install() -> None:
    with pytest.raises(PluginLoadError, match="ExecuTorch is not installed; what to do: pip install"):
        importlib.import_module("delegraph_executorch.backends.xnnpack")
