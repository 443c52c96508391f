"""The port tool: every way in which code names ExecuTorch's modules, in files, notebooks and folders."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

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


# ---- how public repositories are written -----------------------------------------------------------

REPOSITORIES: dict[str, dict[str, str]] = {
    "executorch-examples: a script, a notebook, a command": {
        "mv2/export.py": """
            import torch
            from {et}.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
            from {et}.exir import to_edge_transform_and_lower
            program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
            open("mv2.pte", "wb").write(program.to_executorch().buffer)
            """,
        "llm/export.sh": """
            pip install executorch  # listed
            git clone https://github.com/pytorch/executorch.git && cd executorch/examples
            python -m {et}.extension.llm.export.export_llm --config llama.yaml
            """,
    },
    "torchtune: a check for the package, imports in functions": {
        "recipes/quantize.py": """
            def import_package(name):
                try:
                    import {et}
                except ImportError:
                    raise RuntimeError(f"{name} needs `pip install executorch`")
                return {et}.exir, {et}.__path__
            def describe(executorch):
                return executorch.name
            """,
        "pyproject.toml": """
            [project.optional-dependencies]
            export = ["executorch>=0.6"]  # listed
            """,
    },
    "optimum-executorch: packages of the same name, a version": {
        "optimum/exporters/executorch/convert.py": """
            import importlib.metadata
            from typing import TYPE_CHECKING
            from optimum.executorch.attentions import custom_sdpa
            from ..executorch.tasks import discover
            from .recipes.portable import export_to_executorch_with_portable
            if TYPE_CHECKING:
                from {et}.exir import ExecutorchProgram, ExecutorchProgramManager
            def convert(model, recipe):
                import optimum.executorch
                version = importlib.metadata.version("executorch")  # listed
                return optimum.executorch.run(model)
            """,
        "setup.py": """
            from setuptools import setup
            setup(install_requires=["executorch>=1.0.0", "transformers"])  # listed
            """,
    },
    "ultralytics: flags of the name, a requirement checked when it runs": {
        "engine/exporter.py": """
            def export_executorch(self, file):
                check_requirements(("executorch==1.0.1", "flatbuffers"))  # listed
                from {et} import version as executorch_version
                from {et}.exir import to_edge_transform_and_lower
                return executorch_version.__version__
            def load(weights):
                onnx, executorch = kinds(weights)
                if executorch:
                    from {et}.runtime import Runtime
                    return Runtime.get().load_program(weights)
            """,
    },
    "torchao: an optional backend, modules patched in tests": {
        "test/test_export.py": """
            import sys
            from unittest.mock import patch
            try:
                import {et}
            except ImportError:
                {et} = None
            HAS_EXECUTORCH = {et} is not None
            @patch("{et}.exir.program._program.to_edge")
            @patch.dict(sys.modules, {"executorch": None})  # listed
            def test_it(to_edge): ...
            """,
    },
    "torchchat: runtime bindings, shared libraries found": {
        "torchchat/export.py": """
            from pathlib import Path
            import {et}.exir as exir
            from {et}.extension.pybindings.portable_lib import _load_for_executorch
            from {et}.extension.llm.custom_ops import custom_ops
            def folder():
                import {et}
                return Path({et}.__path__[0]) / "extension/llm/custom_ops"
            default_runtime = {"executorch": ".pte"}  # listed
            """,
    },
    "unsloth: a specification of the package, files of it edited": {
        "unsloth/import_fixes.py": """
            import importlib.util, os
            def fix_executorch():
                spec = importlib.util.find_spec("executorch")  # listed
                where = os.path.join(os.path.split(spec.origin)[0], "examples", "models", "__init__.py")
                line = "from {et}.extension.llm.export.builder import get_mapped_key"
            """,
    },
    "react-native-executorch: notebooks": {
        "scripts/export.ipynb": """
            !pip install executorch torch  # listed
            %env QNN_SDK_ROOT=/opt/qnn
            from {et} import exir
            import {et}.exir.passes as passes
            """,
    },
    "ai-hub-models: names put together, availability by name": {
        "qai_hub_models/utils/executorch.py": """
            import importlib
            BACKENDS = ("qualcomm", "xnnpack")
            def available():
                return importlib.util.find_spec("{et}.backends.qualcomm") is not None
            def partitioner(name):
                return importlib.import_module(f"executorch.{kind(name)}.{name}.partition")  # listed
            """,
    },
    "Arm's ML examples: dialects imported for what they register, edited by hand": {
        "ethos_u.py": """
            import {et}.backends.arm.tosa.dialect  # noqa: F401
            from {et}.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner; from {et} import exir
            from \\
                {et} import devtools
            names = {"executorch_exir_dialects_edge__ops_aten_add_Tensor"}
            """,
        "environment.yml": """
            dependencies:
              - pip:
                - executorch==1.4.1  # listed
            """,
        "stubs/kernels.pyi": """
            from {et}.exir.dialects._ops import ops as exir_ops
            """,
        ".venv/lib/executorch/exir.py": "from executorch.exir import x\n",
        "env/site-packages/executorch/exir.py": "from executorch.exir import x\n",
    },
}
"""Files in the shape of ten repositories', by what is special there: `{et}` is what is renamed, and what else calls
itself executorch stays; a line that ends with "# listed" is one that the tool tells of."""


def written(files: dict[str, str], package: str) -> dict[str, str]:
    texts = {name: dedent(text.removeprefix("\n")).replace("{et}", package) for name, text in files.items()}
    return {name: as_notebook(text) if name.endswith(".ipynb") else text for name, text in texts.items()}


def as_notebook(code: str) -> str:
    cells = [{"cell_type": "code", "source": code.splitlines(keepends=True)}]
    return json.dumps({"cells": cells}, indent=1) + "\n"


@pytest.mark.parametrize("repository", REPOSITORIES)
def test_a_repository(repository: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = (written(REPOSITORIES[repository], package) for package in ("executorch", "delegraph_executorch"))
    for name, text in before.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    assert main([str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert {name: (tmp_path / name).read_text("utf-8") for name in before} == after
    listed = {
        f"{tmp_path / name}:{number}:"
        for name, text in REPOSITORIES[repository].items()
        for number, line in enumerate(dedent(text.removeprefix("\n")).splitlines(), 1)
        if line.endswith("# listed")
    }
    assert {line.partition(": ")[0] + ":" for line in told.splitlines() if ": " in line and line[0] != " "} == listed
    assert main(["--check", str(tmp_path)]) == 0
    assert {name: (tmp_path / name).read_text("utf-8") for name in before} == after


def test_bytes_that_are_no_names_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "windows.py").write_bytes(b"import os\r\n\x0cfrom executorch import exir\r\n")
    (tmp_path / "latin.py").write_bytes("# é\nimport executorch\n".encode("latin-1"))
    assert main([str(tmp_path)]) == 0
    assert (tmp_path / "windows.py").read_bytes() == b"import os\r\n\x0cfrom delegraph_executorch import exir\r\n"
    assert f"{tmp_path / 'latin.py'}:1: latin.py\n    it is no text in UTF-8" in capsys.readouterr().out
