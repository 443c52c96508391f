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


STRICT = """
import sys, warnings
sys.path.append({site_packages!r})
warnings.simplefilter("error", DeprecationWarning)
import delegraph_executorch.exir.passes
warnings.resetwarnings()
import executorch.exir.passes
"""


@pytest.mark.executorch
def test_where_warnings_are_errors_the_wheel_can_still_be_imported_after_ours(executorch_package: Path) -> None:
    script = STRICT.format(site_packages=str(executorch_package.parent))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
