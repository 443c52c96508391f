"""The port tool: every way in which code names ExecuTorch's modules, in files, notebooks and folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from delegraph_executorch.port import leftovers, main, ported

CHANGED = {
    "import executorch": "import delegraph_executorch",
    "import executorch as et": "import delegraph_executorch as et",
    "import executorch.exir as exir, os": "import delegraph_executorch.exir as exir, os",
    "from executorch import exir": "from delegraph_executorch import exir",
    "from executorch.exir.pass_base import ExportPass": "from delegraph_executorch.exir.pass_base import ExportPass",
    "from executorch.unheard_of import x": "from delegraph_executorch.unheard_of import x",
    "def f():\n    from executorch import exir\n": "def f():\n    from delegraph_executorch import exir\n",
    "try:\n  import executorch\nfinally: pass": "try:\n  import delegraph_executorch\nfinally: pass",
    "import executorch\nprint(executorch.version, executorch.exir.to_edge)": (
        "import delegraph_executorch\nprint(delegraph_executorch.version, delegraph_executorch.exir.to_edge)"
    ),
    "import executorch.exir\nx = executorch.y": "import delegraph_executorch.exir\nx = delegraph_executorch.y",
    'patch("executorch.exir.program._program.to_edge")': 'patch("delegraph_executorch.exir.program._program.to_edge")',
    'é = "é"; import executorch; executorch.x': 'é = "é"; import delegraph_executorch; delegraph_executorch.x',
    "%pip install executorch\nfrom executorch import exir\n": (
        "%pip install executorch\nfrom delegraph_executorch import exir\n"
    ),
}
UNCHANGED = (
    "from delegraph_executorch import exir",
    "from torch._higher_order_ops.executorch_call_delegate import executorch_call_delegate",
    "ExecutorchBackendConfig(); executorch_call_delegate(x)",
    "# https://github.com/pytorch/executorch.git, third_party/executorch.exir",
    "from .executorch import exir",
    "executorch = build(); executorch.run()",
)


@pytest.mark.parametrize("source", CHANGED)
def test_modules_are_named_anew(source: str) -> None:
    assert ported(source) == CHANGED[source]
    assert ported(ported(source)) == ported(source)


@pytest.mark.parametrize("source", UNCHANGED)
def test_what_is_no_module_of_executorchs_stays(source: str) -> None:
    assert ported(source) == source


def test_what_a_person_decides_is_listed_with_its_line() -> None:
    source = (
        'import importlib\nimportlib.util.find_spec("executorch")\nname = f"executorch.{part}"\nx = "executorch.own"\n'
    )
    advice = {left.line: left.advice for left in leftovers(ported(source))}
    assert sorted(advice) == [2, 3, 4]
    assert "if it is to find or patch modules, write delegraph_executorch" in advice[2]
    assert "put together at run time" in advice[3] and "put together at run time" in advice[4]
    assert [left.advice for left in leftovers("from executorch import (")] == [
        "it is no Python that can be parsed here: look at its imports"
    ]


def test_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "package").mkdir()
    code = tmp_path / "package" / "use.py"
    code.write_text('from executorch import exir\nversion("executorch")\n', "utf-8")
    cells = [
        {"cell_type": "markdown", "source": ["import executorch\n"]},
        {"cell_type": "code", "source": ["import torch\n", "from executorch.exir import to_edge"]},
    ]
    notebook = tmp_path / "show.ipynb"
    notebook.write_text(json.dumps({"cells": cells, "nbformat": 4}), "utf-8")
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\ndependencies = ["executorch==1.4"]\n', "utf-8")
    assert main(["--check", str(tmp_path)]) == 1
    assert "delegraph" not in code.read_text("utf-8") + notebook.read_text("utf-8")
    capsys.readouterr()
    assert main([str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert code.read_text("utf-8").startswith("from delegraph_executorch import exir")
    ported_cells = json.loads(notebook.read_text("utf-8"))["cells"]
    assert ported_cells[0] == cells[0]
    assert ported_cells[1]["source"] == ["import torch\n", "from delegraph_executorch.exir import to_edge"]
    assert told.splitlines()[:2] == [str(code), str(notebook)]
    assert f'{code}:2: version("executorch")' in told
    assert f'{project}:2: dependencies = ["executorch==1.4"]\n    the ported code needs delegraph-executorch' in told
    assert main(["--check", str(tmp_path)]) == 0
