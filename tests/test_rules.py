"""The rules of ARCHITECTURE.md that are not about who imports whom, which import-linter checks (`make floors`)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from tests.untested_messages import untested
from tools.distributions import DISTRIBUTIONS, ROOT
from torch.export import ExportedProgram

import delegraph
from delegraph import Runtime
from delegraph.interfaces import Platform

HOST, *PLUGINS = DISTRIBUTIONS
CORE = HOST.package


def modules(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Every module of these folders of the core, by its path there; those that `delegraph new` copies left out."""
    for path in (path for folder in folders for path in sorted((CORE / folder).rglob("*.py"))):
        if "templates" not in path.parts:
            yield path.relative_to(CORE).as_posix(), ast.parse(path.read_text("utf-8"))


def called(tree: ast.AST) -> set[str]:
    """The last names of what is called in `tree`: `export` for `torch.export.export(…)`."""
    functions = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {
        f.attr if isinstance(f, ast.Attribute) else f.id for f in functions if isinstance(f, ast.Attribute | ast.Name)
    }


# ---- names -----------------------------------------------------------------------------------------


def names_of_plug_ins() -> set[str]:
    """Distributions, their packages, and the ids of their backends."""
    named = [
        plugin for plugin in PLUGINS if plugin.name not in ("delegraph-testkit", "delegraph-ray")
    ]  # tools, which the command line recommends
    projects = [tomllib.loads((plugin.folder / "pyproject.toml").read_text("utf-8"))["project"] for plugin in named]
    entries = [project.get("entry-points", {}).get("delegraph.backends", {}) for project in projects]
    names = {name for plugin in named for name in (plugin.name, plugin.package.name)}
    return names.union(*entries)


def test_the_core_names_no_plug_in() -> None:
    """In no string and no name; a docstring may have it as an example."""
    forbidden = names_of_plug_ins()
    assert {"CpuBackend", "delegraph-cpu", "delegraph_partitioners"} <= forbidden
    naming = {(path, text) for path, tree in modules(".") for text in texts(tree) if any(f in text for f in forbidden)}
    assert naming == set()


def texts(tree: ast.Module) -> Iterator[str]:
    """The strings of a module that are not docstrings, and the names that it imports or reads."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in prose:
                yield text
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.alias(name=text):
                yield text


def test_nothing_that_reads_files_imports_by_a_name_in_them() -> None:
    """That nothing evaluates or unpickles either is ruff's to say, of every module: S102, S301, S307."""
    importing = {
        path
        for path, tree in modules("program", "runtime", "devtools")
        if {"import_module", "__import__"} & called(tree)
    }
    assert importing == set()


def test_no_more_messages_stand_in_no_test_than_contributing_says() -> None:
    core, everywhere = map(int, re.findall(r"all but (\d+)\b", (ROOT / "CONTRIBUTING.md").read_text("utf-8")))
    missing = [message for distribution in DISTRIBUTIONS for message in untested(distribution)]
    assert len(untested(HOST)) <= core, "`python -m tests.untested_messages` lists them"
    assert len(missing) <= everywhere, "`python -m tests.untested_messages` lists them"


# ---- lowering --------------------------------------------------------------------------------------

TRACES = {"run_decompositions", "make_fx", "export_for_training", "draft_export", "_export", "symbolic_trace"}


def test_no_stage_traces_the_whole_program_again() -> None:
    """`decompose` traces a call, `mode_regions` a region; `vmap_regions` what has vmap in it, `quantize` its own."""
    tracing = {path: calls for path, tree in modules("aot") if (calls := called(tree) & TRACES | torch_exports(tree))}
    assert tracing == {
        "aot/export.py": {"torch.export.export"},
        "aot/functional/decompose.py": {"make_fx"},
        "aot/functional/mode_regions.py": {"make_fx"},
        "aot/functional/vmap_regions.py": {"run_decompositions"},
        "aot/quantize/weights/as_program.py": {"make_fx"},
    }


def torch_exports(tree: ast.AST) -> set[str]:
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return calls & {"torch.export.export"}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) + 1


class Mapped(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(super().forward)(x)


@pytest.mark.parametrize(("model", "traced"), [(Net(), 0), (Mapped(), 1)], ids=["as everywhere", "with vmap"])
def test_a_program_is_traced_again_for_vmap_alone(model: Net, traced: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = torch.export.export(model.eval(), (torch.zeros(2, 8),))
    anew, run_decompositions = [], ExportedProgram.run_decompositions

    def counted(self: ExportedProgram, *args: Any, **kwargs: Any) -> ExportedProgram:
        anew.append(self)
        return run_decompositions(self, *args, **kwargs)

    monkeypatch.setattr(ExportedProgram, "run_decompositions", counted)
    monkeypatch.setattr("torch.export.export", None)
    delegraph.lower(program)
    assert len(anew) == traced


def test_weights_are_the_models_own_to_the_end() -> None:
    model = Net().eval()
    edge = delegraph.to_edge(torch.export.export(model, (torch.zeros(2, 8),)))
    assert edge.exported_program().state_dict["linear.weight"].data_ptr() == model.linear.weight.data_ptr()


def test_torchao_is_imported_by_who_quantizes_alone() -> None:
    script = (
        "import sys, torch, delegraph, delegraph.aot\n"
        "delegraph.lower(torch.nn.Linear(2, 2), (torch.zeros(1, 2),), backends=['cpu'])\n"
        "print('torchao' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# ---- executing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("backends", [["cpu"], []], ids=["a delegate", "kernels"])
def test_executing_looks_nothing_up_and_allocates_no_planned_memory(backends: list[str], tmp_path: Path) -> None:
    """From the first call on: of the core, nothing runs that reads programs, finds plug-ins or binds.

    But for the checksums of large data, which the first run compares unless they are left out, as here.
    """
    sizes: list[int] = []

    def allocate(nbytes: int) -> np.ndarray[Any, Any]:
        sizes.append(nbytes)
        return np.empty(nbytes, np.uint8)

    delegraph.lower(Net().eval(), (torch.zeros(2, 8),), backends=backends).save(tmp_path / "net.pte")
    runtime = Runtime(platform=Platform(allocate=allocate))
    method = runtime.load_program(tmp_path / "net.pte", integrity="none").load_method("forward")
    loaded, running = len(sizes), set()
    assert loaded

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            running.add(str(frame.f_globals.get("__name__")))

    x = np.zeros((2, 8), np.float32)
    sys.setprofile(watch)
    method.execute([x])
    sys.setprofile(None)
    assert "delegraph.runtime.execution.executor" in running
    assert len(sizes) == loaded
    looking = (
        "delegraph.plugins",
        "delegraph.program",
        "delegraph.interfaces",
        "delegraph.runtime.resolution.kernels",
        "importlib",
    )
    assert {name for name in running if name.startswith(looking)} == set()


# ---- torch's private names -------------------------------------------------------------------------

INTERNALS = ROOT / "core" / "delegraph" / "aot" / "torch_internals.py"
EVERYWHERE = {
    *(f"torch._ops.{name}" for name in ("OpOverload", "OpOverloadPacket", "HigherOrderOperator")),
    *(f"torch._subclasses.fake_tensor.{name}" for name in ("FakeTensor", "FakeTensorMode")),
    "torch.utils._pytree",
    "torch._check",  # documented
    "torch.__version__",
    "torch.ao.quantization.fx._decomposed",  # for the operators that it registers: a quantized program calls them
}
OF_PLUGINS = {
    "delegraph_onnx": {f"torch.utils._sympy.value_ranges.{name}" for name in ("ValueRanges", "bound_sympy")},
    "delegraph_aten": {"torch._C.parse_schema", "torch._C._jit_get_all_schemas"},
    "delegraph_testkit": {
        "torch._decomp.decomposition_table",
        "torch._refs",
        "torch.testing._internal.common_methods_invocations.op_db",
    },
}
"""Plug-ins use nothing of the core but its public names, so they name torch's themselves."""


def private_names(tree: ast.AST) -> Iterator[str]:
    """torch's names with a part that begins with an underscore: imported, or reached from `torch`."""
    nodes = list(ast.walk(tree))
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch."):
            yield from (name for part in node.names if "._" in (name := f"{node.module}.{part.name}"))
        elif isinstance(node, ast.Import):
            yield from (part.name for part in node.names if part.name.startswith("torch.") and "._" in part.name)
        elif isinstance(node, ast.Attribute) and id(node) not in inner:
            name = ast.unparse(node)
            if re.match(r"torch\.(?!ops\.)([\w.]+\.)?_", name):
                yield name


def test_private_names_of_torch_stand_in_one_module() -> None:
    named: dict[str, set[str]] = {}
    for path in sources():
        if path != INTERNALS:
            parts = path.relative_to(ROOT).parts
            package = next((part for part in parts if part.startswith("delegraph")), parts[0])
            named.setdefault(package, set()).update(private_names(ast.parse(path.read_text("utf-8"))))
    beyond = {package: names - EVERYWHERE for package, names in named.items() if names - EVERYWHERE}
    assert beyond == OF_PLUGINS


def test_each_private_name_of_torch_has_a_purpose_and_a_way_without_it() -> None:
    lines = INTERNALS.read_text("utf-8").splitlines()
    tree = ast.parse("\n".join(lines))
    places = [node.lineno for node in tree.body if set(private_names(node))]
    assert places
    for place in places:
        block = place - 2  # the nearest comment above, behind others that it is for as well
        while lines[block] and not lines[block].startswith("#"):
            block -= 1
        comment = ""
        while lines[block].startswith("#"):
            comment, block = lines[block].removeprefix("#") + comment, block - 1
        assert re.search(r" .+\. When (it goes|they go): .+\.", comment), lines[place - 1]


# ---- words -----------------------------------------------------------------------------------------

VAGUE = {"one", "found", "given", "wanted", "held"}
PUBLIC = {"wanted of cut_attention", *(f"held of {hook}" for hook in ("external", "state", "write_back"))}
"""Parameters that authors' code may name."""


def sources() -> Iterator[Path]:
    """Every module of the distributions and the tools; delegraph-executorch's have an issue of their own."""
    for folder in (d.package for d in DISTRIBUTIONS if d.name != "delegraph-executorch"):
        yield from folder.rglob("*.py")
    yield from (ROOT / "tools").rglob("*.py")


def documented(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Docstrings, those behind constants too."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def named(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Local names and parameters, parameters with their function."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            yield from (f"{argument.arg} of {node.name}" for argument in arguments)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_docstrings_and_names_say_the_thing() -> None:
    for path in sources():
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        vague = [text for text in documented(nodes) if re.match("What ", text.lstrip())]
        vague += [name for name in named(nodes) if name.split()[0] in VAGUE and name not in PUBLIC]
        assert not vague, f"{path.relative_to(ROOT)}: {vague}"
