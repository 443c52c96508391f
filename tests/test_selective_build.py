"""Selective builds of real models: in fresh environments, and their operator YAML in ExecuTorch's own build tools."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.environment import Environment

import delegraph
from delegraph.cli import main

pytestmark = pytest.mark.models

ROOT = Path(__file__).parents[1]


class Convolutions(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 8, 3)
        self.linear = torch.nn.Linear(288, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.relu(self.conv(x)).flatten(1)).softmax(-1)


class Everything(torch.nn.Module):
    """Several dtypes and ranks, lists of tensors, views, branches, prim ops."""

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left, right = torch.split(x, 2, 1)
        branch = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))
        return torch.cat([left, right * x.shape[0]]), x[at], at + 1, x.to(torch.int64), branch.reshape(x.shape[0] * 4)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `plain.pte` (kernels), `cpu.pte` (a delegate), `everything.pte`, and an input `x.npy`."""
    folder = tmp_path_factory.mktemp("programs")
    torch.manual_seed(0)
    model, x = Convolutions().eval(), torch.randn(1, 1, 8, 8)
    delegraph.lower(model, (x,)).save(folder / "plain.pte")
    delegraph.lower(model, (x,), backends=["cpu"]).save(folder / "cpu.pte")
    shapes = {"x": {0: torch.export.Dim("n", min=2, max=8)}, "at": None}
    args = torch.randn(4, 4), torch.tensor([0, 1])
    delegraph.lower(Everything(), args, dynamic_shapes=shapes).save(folder / "everything.pte")
    np.save(folder / "x.npy", x.numpy())
    return folder


def select(*words: str | Path) -> None:
    assert main(["select", *map(str, words)]) == 0


def expected(programs: Path, name: str) -> bytes:
    """What the full installation gives."""
    result = delegraph.load(programs / f"{name}.pte")(np.load(programs / "x.npy"))
    return bytes(result.tobytes())


# ---- fresh environments --------------------------------------------------------------------------------


@pytest.mark.install
def test_a_zipapp_runs_where_there_is_only_numpy(programs: Path, tmp_path: Path) -> None:
    app, out = tmp_path / "app.pyz", tmp_path / "out.npz"
    select(programs / "plain.pte", programs / "everything.pte", "-o", app)
    bare = Environment(tmp_path / "bare")
    bare.install("numpy")
    assert bare.installed() == {"numpy"}
    bare.run(app, "plain", "--inputs", programs / "x.npy", "--output", out)
    assert np.load(out)["output_0"].tobytes() == expected(programs, "plain")
    inputs = np.ones((3, 4), np.float32), np.array([0, 1])
    np.savez(tmp_path / "in.npz", *inputs)
    bare.run(app, "everything", "--inputs", tmp_path / "in.npz", "--output", out)
    here = delegraph.load(programs / "everything.pte")(*inputs)
    assert [array.tobytes() for array in np.load(out).values()] == [array.tobytes() for array in here]


USE_WHEEL = """
import json, sys
import numpy as np
import delegraph
result = delegraph.load(sys.argv[1])(np.load(sys.argv[2]))
import delegraph_portable
print(json.dumps([result.tobytes().hex(), sorted(kernel.op for kernel in delegraph_portable.library)]))
"""


@pytest.mark.install
def test_a_wheel_brings_numpy_and_nothing_else(programs: Path, tmp_path: Path) -> None:
    select(programs / "plain.pte", "-o", tmp_path / "plain-1.0-py3-none-any.whl")
    slim = Environment(tmp_path / "slim")
    slim.install(tmp_path / "plain-1.0-py3-none-any.whl")
    assert slim.installed() == {"numpy", "plain"}
    slim.run("-m", "pip", "check")
    (tmp_path / "use.py").write_text(USE_WHEEL)
    bytes_, operators = json.loads(slim.run(tmp_path / "use.py", programs / "plain.pte", programs / "x.npy"))
    assert bytes.fromhex(bytes_) == expected(programs, "plain")
    assert operators == sorted(operators_of_plain(programs))


def operators_of_plain(programs: Path) -> set[str]:
    """The operators of `plain.pte` as its own records list them."""
    from delegraph.program import deserialize_program

    records = deserialize_program((programs / "plain.pte").read_bytes())
    return {str(operator) for operator in records.execution_plan[0].operators}


@pytest.mark.install
def test_a_wheel_with_a_backend_requires_its_driver(programs: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "cpu-1.0-py3-none-any.whl"
    select(programs / "cpu.pte", "-o", wheel, "--embed")
    packed = zipfile.ZipFile(wheel).namelist()
    assert "delegraph_cpu/runtime/backend.py" in packed
    assert not [name for name in packed if name.startswith(("delegraph_cpu/aot", "delegraph_portable"))]
    slim = Environment(tmp_path / "slim")
    slim.install(wheel)
    assert {"cpu", "numpy", "onnxruntime"} <= slim.installed()
    assert not slim.installed() & {"torch", "delegraph", "delegraph-cpu", "onnx"}
    out = tmp_path / "out.npz"
    slim.run("-m", "delegraph_selected", "cpu", "--inputs", programs / "x.npy", "--output", out)
    assert np.load(out)["output_0"].tobytes() == expected(programs, "cpu")


# ---- in this environment -------------------------------------------------------------------------------


def test_left_out_kernels_and_their_modules_are_absent(programs: Path, tmp_path: Path) -> None:
    select(programs / "plain.pte", "-o", tmp_path / "app.pyz")
    archive = zipfile.ZipFile(tmp_path / "app.pyz")
    kept = {name for name in archive.namelist() if name.startswith("delegraph_portable/")}
    assert {"delegraph_portable/convolution/forward.py", "delegraph_portable/library.py"} <= kept
    assert not kept & {
        "delegraph_portable/pooling/forward.py",
        "delegraph_portable/sorting/sort.py",
        "delegraph_portable/fourier.py",
    }
    count = "import delegraph_portable, json; print(json.dumps(sorted(k.op for k in delegraph_portable.library)))"
    program = f"import sys; sys.path.insert(0, {str(tmp_path / 'app.pyz')!r}); {count}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) == operators_of_plain(programs)


# ---- ExecuTorch's build tools --------------------------------------------------------------------------

THEIR_TOOLS = """
import json, pathlib, sys
from executorch.codegen.gen import ComputeCodegenUnboxedKernels, parse_yaml_files
from executorch.codegen.tools import gen_all_oplist, gen_oplist, gen_selected_op_variants
from torchgen.selective_build.selector import SelectiveBuilder
import executorch.kernels.portable, torchgen, yaml

ours, *programs = sys.argv[1:]
folder = pathlib.Path(ours).parent
theirs = []
for index, program in enumerate(programs):
    gen_oplist.main(["--output_path", str(folder / f"{index}.yaml"), "--model_file_path", program])
    theirs.append(SelectiveBuilder.from_yaml_path(str(folder / f"{index}.yaml")))

from functools import reduce
from torchgen.selective_build.selector import combine_selective_builders
selector = SelectiveBuilder.from_yaml_path(ours)

gen_selected_op_variants.main(["--yaml_file_path", ours, "--output_dir", str(folder)])
(folder / "list.txt").write_text(ours)
(folder / "all").mkdir()
gen_all_oplist.main(["--output_dir", str(folder / "all"), "--model_file_list_path", f"@{folder / 'list.txt'}"])
merged = SelectiveBuilder.from_yaml_path(str(folder / "all" / "selected_operators.yaml"))

packaged = pathlib.Path(torchgen.__path__[0]) / "packaged" / "ATen" / "native"
functions = pathlib.Path(list(executorch.kernels.portable.__path__)[0]) / "functions.yaml"
parsed, _ = parse_yaml_files(
    str(packaged / "tags.yaml"), str(packaged / "native_functions.yaml"), str(functions), None, selector, False
)
generate = ComputeCodegenUnboxedKernels(selector, False, False)
registered = [
    generate((function, entry))
    for function in parsed.native_functions
    for entry in parsed.kernel_index.get_kernels(function).items()
]

def plain(builder):
    full = builder.to_dict()
    for operator in full["operators"].values():
        operator["debug_info"] = sorted(operator["debug_info"])
    return full

print(json.dumps({
    "ours": plain(selector),
    "theirs": plain(reduce(combine_selective_builders, theirs)),
    "merged": sorted(merged.operators),
    "registered": registered,
    "header": (folder / "selected_op_variants.h").read_text(),
}))
"""


@pytest.fixture(scope="module")
def in_their_tools(programs: Path, executorch_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ExecuTorch's tools make of our YAML, and of the same programs."""
    yaml = tmp_path_factory.mktemp("yaml") / "ops.yaml"
    paths = [programs / "plain.pte", programs / "everything.pte", programs / "cpu.pte"]
    select(*paths, "-o", yaml)
    command = [executorch_python, "-c", THEIR_TOOLS, str(yaml), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.executorch
def test_the_yaml_says_what_gen_oplist_says(in_their_tools: dict[str, Any]) -> None:
    ours, theirs = in_their_tools["ours"], in_their_tools["theirs"]
    # gen_oplist cuts `v1/` to `v1` for a call without tensors, which is no kernel key; `default` is what is meant.
    metadata = theirs["et_kernel_metadata"]
    without_tensors = {operator for operator, keys in metadata.items() if keys == ["v1"]}
    assert without_tensors == {"executorch_prim::mul.Scalar"}
    theirs["et_kernel_metadata"] = metadata | {operator: ["default"] for operator in without_tensors}
    assert ours == theirs
    assert "aten::sym_size.int" in ours["operators"]


@pytest.mark.executorch
def test_executorchs_build_registers_those_kernels(in_their_tools: dict[str, Any]) -> None:
    operators = set(in_their_tools["ours"]["operators"])
    assert set(in_their_tools["merged"]) == operators
    # what functions.yaml has not are prim ops, which the runtime itself registers
    kernels = {op for op in operators if not op.startswith("executorch_prim::") and op != "aten::sym_size.int"}
    registered = in_their_tools["registered"]
    assert len(registered) == len(kernels)
    for operator in kernels:
        (code,) = [text for text in registered if f'"{operator}"' in text]
        assert "Kernel(" in code
        assert f'compare("{operator.removeprefix("aten::")}")' in in_their_tools["header"]
