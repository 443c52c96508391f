"""ExecuTorch's example delegate, from its wheel: ported as the documentation says, lowered onto, and run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from delegraph_executorch import port

pytestmark = pytest.mark.executorch

REPOSITORY = Path(__file__).parents[3]
PAGE = REPOSITORY / "docs" / "coming-from-executorch.md"
FILE = re.compile(r"^```python (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run(folder: Path, script: str) -> str:
    ran = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_example_delegate_is_ported_by_its_imports_alone(executorch_package: Path, tmp_path: Path) -> None:
    package = tmp_path / "example_delegate"
    shutil.copytree(executorch_package / "backends" / "example", package)
    for path in package.rglob("*.py"):
        path.write_text(path.read_text("utf-8").replace("executorch.backends.example", "example_delegate"), "utf-8")
    assert port.main([str(package)]) == 0
    for name, text in FILE.findall(PAGE.read_text("utf-8")):
        (tmp_path / name).write_text(text, "utf-8")
    report = run(tmp_path, "lower_it.py")
    assert "forward: 3 nodes in 1 delegate, 1 node left to kernels" in report
    run(tmp_path, "run_it.py")
