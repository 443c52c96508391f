"""`delegraph select`: what is packed up, what is left out, and that it runs where nothing else is."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegraph.cli import main
from delegraph.devtools.selective_build.contents import Contents, wheel_tag
from delegraph.devtools.selective_build.distributions import Distribution
from delegraph.devtools.selective_build.needs import needs_of
from delegraph.devtools.selective_build.operator_yaml import operator_yaml
from delegraph.devtools.selective_build.package import zipapp
from delegraph.errors import InvalidArgument, PluginLoadError
from delegraph.interfaces import BlobStamp
from delegraph.plugins.registry import PluginRegistry, use_registry
from delegraph.program import write_program
from delegraph.program.schema import (
    BackendDelegate,
    DelegateCall,
    ExtraTensorInfo,
    Int,
    KernelCall,
    NamedData,
    OptionalTensorList,
    Program,
    ScalarType,
    Tensor,
    TensorDataLocation,
    TensorList,
)
from delegraph.program.weights_origin import PROGRAM_KEY, WeightsOrigin

from .conftest import plan, tensor

pytestmark = pytest.mark.models

Told = Callable[..., Any]
Refused = Callable[..., str]

PACKAGES = {
    # a library in families, which its package imports; one is a package itself, whose helper others use
    "acme/__init__.py": "from . import sums, signs, extras\nfrom .library import library\n",
    "acme/library.py": "from delegraph.runtime import KernelLibrary\nlibrary = KernelLibrary('acme')\n",
    "acme/sums.py": """
import numpy as np
from .extras.rounding import nearest
from .library import library

@library.kernel("aten::add.out")
def add_out(context, a, b, alpha, out):
    np.add(a, nearest(b), out)
""",
    "acme/extras/__init__.py": "from . import exponentials\n",
    "acme/extras/rounding.py": "nearest = lambda array: array\n",
    "acme/signs.py": """
import numpy as np
from .library import library

def register(function, **key):
    library.kernel("aten::neg.out", **key)(lambda context, a, out: function(a, out))

register(np.negative)
register(lambda a, out: np.subtract(0, a, out), dtypes=["float32", "float32"], dim_orders=[(0,), (0,)])
register(lambda a, out: np.multiply(a, -1, out), dtypes=["int32", "int32"], dim_orders=[(0,), (0,)])
""",
    "acme/extras/exponentials.py": """
import numpy as np
from ..library import library

@library.kernel("aten::exp.out")
def exp_out(context, a, out):
    np.exp(a, out)
""",
    # a library in one module, with a table beside it, and a lazy import of what its users may lack
    "bolt/__init__.py": "",
    "bolt/kernels.py": """
from importlib.resources import files
import numpy as np
from delegraph.runtime import KernelLibrary

mine = KernelLibrary("bolt")
FACTOR = float(files("bolt").joinpath("tables/factor.txt").read_text())

@mine.kernel("bolt::times.out")
def times_out(context, a, out):
    np.multiply(a, FACTOR, out)

@mine.kernel("aten::exp.out")
def exp_out(context, a, out):
    import zest
    zest.exp(a, out)

@mine.kernel("aten::neg.out")
def neg_out(context, a, out):
    raise AssertionError("acme goes before bolt")
""",
    "bolt/tables/factor.txt": "2.5\n",
    "bolt/py.typed": "",
    # a backend in two halves
    "spark/__init__.py": "",
    "spark/aot.py": "import torch\n",
    "spark/runtime.py": """
import numpy as np
from delegraph.runtime import BackendInterface

class Spark(BackendInterface):
    def init(self, context, processed, compile_specs):
        return int(bytes(processed))

    def execute(self, context, handle, args):
        import spark_driver
        np.multiply(args[0], handle * spark_driver.ONE, args[1])
""",
}

DISTRIBUTIONS = {
    "acme-kernels": ("acme", "[delegraph.kernels]\nacme = acme:library\n", ""),
    "bolt": ("bolt", "[delegraph.kernels]\nbolt = bolt.kernels:mine\n", ""),
    "spark": (
        "spark",
        "[delegraph.backends]\nSpark = spark.runtime:Spark\n[delegraph.lowerings]\nSpark = spark.aot:Lowering\n",
        'Requires-Dist: spark-driver>=2; python_version>"3"\nRequires-Dist: torch>=2; extra == "aot"\n',
    ),
    "spark-driver": ("spark_driver", "", ""),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory of installed distributions, on the path."""
    root = tmp_path_factory.mktemp("site")
    for path, text in {**PACKAGES, "spark_driver.py": "ONE = 1\n"}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for name, (top, entry_points, more) in DISTRIBUTIONS.items():
        info = root / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        host = "Requires-Dist: delegraph>=0.1\nRequires-Dist: numpy<3,>=1.26\n" if entry_points else ""
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{host}{more}")
        (info / "entry_points.txt").write_text(entry_points)
        (info / "top_level.txt").write_text(f"{top}\n")
        (info / "RECORD").write_text("")
    sys.path.insert(0, str(root))
    yield root
    sys.path.remove(str(root))


@pytest.fixture(autouse=True)
def plugins(site: Path, installed: PluginRegistry) -> Iterator[PluginRegistry]:
    """The modules of `site`, and nothing else."""
    with use_registry(PluginRegistry.discover(environ={}, path=[str(site)])) as registry:
        yield registry


def calls(*operators: str, dtype: ScalarType = ScalarType.FLOAT) -> Program:
    """A program of a chain of operators of one argument."""
    values = [tensor(4, at=64 * index, dtype=dtype) for index in range(len(operators) + 1)]
    chain = [KernelCall(index, (index, index + 1, index + 1)) for index in range(len(operators))]
    return Program((plan("forward", values, (0,), (len(operators),), chain, operators),))


def delegated() -> Program:
    """-x, then three times that on Spark."""
    values = [tensor(4, at=64 * index) for index in range(3)]
    delegate = BackendDelegate("Spark", 0, (BlobStamp("Spark", "spark", "1.0", 1).to_compile_spec(),))
    chain = [KernelCall(0, (0, 1, 1)), DelegateCall(0, (1, 2))]
    record = plan("forward", values, (0,), (2,), chain, ["aten::neg.out"], [delegate])
    return Program((record,), delegate_data=(b"3",))


@pytest.fixture
def pte_of(tmp_path: Path) -> Callable[[str, Program], str]:
    def write(name: str, program: Program) -> str:
        write_program(program, tmp_path / f"{name}.pte")
        return str(tmp_path / f"{name}.pte")

    return write


PteOf = Callable[[str, Program], str]

ELSEWHERE = """
import runpy, sys
for name in ("torch", "onnxruntime", "rich", "pluggy", "flatbuffers", "ml_dtypes", "importlib_metadata"):
    sys.modules[name] = None
directory, *more, app = sys.argv[1].split(":")
sys.path += [directory, *more]
sys.argv = [app, *sys.argv[2:]]
runpy.run_path(app, run_name="__main__")
"""


def run_elsewhere(app: str, *words: str, path: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a zipapp in a Python that has NumPy: none of `site`, nor what is installed here in editable mode."""
    search = ":".join([str(Path(np.__file__).parents[1]), *path, app])
    command = [sys.executable, "-I", "-S", "-c", ELSEWHERE, search, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def output_of(app: str, *words: str, folder: Path, path: tuple[str, ...] = ()) -> bytes:
    file = folder / "out.npz"
    done = run_elsewhere(app, *words, "--output", str(file), path=path)
    assert done.returncode == 0, done.stderr
    return bytes(np.load(file)["output_0"].tobytes())


def output_here(told: Told, pte: str, folder: Path) -> bytes:
    told("run", pte, "--output", str(folder / "here.npz"), "--repeat", "1", "--kernels", "acme,bolt")
    return bytes(np.load(folder / "here.npz")["output_0"].tobytes())


def names(archive: str | Path) -> set[str]:
    return set(zipfile.ZipFile(archive).namelist())


# ---- zipapps -------------------------------------------------------------------------------------------


def test_a_zipapp_gives_the_same_bytes_and_has_nothing_else(pte_of: PteOf, told: Told, tmp_path: Path) -> None:
    pte, app = pte_of("m", calls("aten::neg.out")), str(tmp_path / "app.pyz")
    answer = told("select", pte, "-o", app, "--json")
    assert output_of(app, folder=tmp_path) == output_here(told, pte, tmp_path)
    packed = names(app)
    assert {name for name in packed if name.startswith(("acme", "bolt", "spark"))} == {
        "acme/__init__.py",
        "acme/library.py",
        "acme/signs.py",
    }
    assert not [name for name in packed if "/aot/" in name or name.startswith("delegraph/program/files/serialize")]
    assert {name for name in packed if name.startswith("delegraph/cli/")} == {
        "delegraph/cli/__init__.py",
        "delegraph/cli/arrays.py",
        "delegraph/cli/data_files.py",
        "delegraph/cli/deployed.py",
        "delegraph/cli/inputs.py",
    }
    assert answer["requirements"] == [next(r for r in answer["requirements"] if r.startswith("numpy"))]
    assert answer["programs"] == {pte: Path(pte).stat().st_size}
    assert answer["outputs"] == [{"path": app, "kind": "zipapp", "nbytes": Path(app).stat().st_size}]
    assert Path(app).stat().st_mode & 0o111


def test_bytecode_for_versions_of_python(pte_of: PteOf, told: Told, tmp_path: Path) -> None:
    """It is used by the Python that it is for, and every other one takes the sources."""
    pte, app = pte_of("m", calls("aten::neg.out")), str(tmp_path / "app.pyz")
    here = ".".join(map(str, sys.version_info[:2]))
    told("select", pte, "-o", app, "--bytecode", here)
    assert output_of(app, folder=tmp_path) == output_here(told, pte, tmp_path)
    folder = f"bytecode/{sys.implementation.cache_tag}/"
    modules = {name for name in names(app) if name.endswith(".py") and "/" in name and not name.startswith("bytecode")}
    assert {name.removeprefix(folder) for name in names(app) if name.startswith(folder)} >= {f"{m}c" for m in modules}
    script = (
        "import sys; {other}; sys.path.insert(0, sys.argv[1]); from delegraph_selected import load; load('m')\n"
        "print(*{{'.pyz/bytecode/' in m.__file__ for n, m in sys.modules.items() if n.startswith('delegraph.')}})"
    )
    for other, is_used in (("0", "True"), ("sys.implementation.cache_tag = 'cpython-2'", "False")):
        command = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            ELSEWHERE.partition("directory,")[0] + "sys.path.append(sys.argv[2])\n",
        ]
        command[-1] += script.format(other=other)
        done = subprocess.run(
            [*command, app, str(Path(np.__file__).parents[1])], capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == [is_used], done.stderr


def test_bytecode_needs_the_python_that_it_is_for(
    pte_of: PteOf, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pte, app = pte_of("m", calls("aten::neg.out")), tmp_path / "app.pyz"
    with pytest.raises(
        InvalidArgument, match=r"there is no python3\.999 on the PATH: install it, or leave --bytecode out"
    ):
        zipapp(Contents({}, (), (), (), {}, "py3-none-any", ()), ["3.999"])
    with pytest.raises(InvalidArgument, match=r"does not compile the modules:\n(.|\n)*SyntaxError"):
        zipapp(Contents({"a/b.py": b"?"}, (), (), (), {}, "py3-none-any", ()), [f"3.{sys.version_info.minor}"])
    with pytest.raises(SystemExit):
        main(["select", pte, "-o", str(app), "--bytecode", "3"])
    assert "'3' is no version of Python, such as 3.11" in capsys.readouterr().err
    assert not app.exists()


def test_a_helper_comes_without_the_kernels_of_its_package(pte_of: PteOf, told: Told, tmp_path: Path) -> None:
    app = str(tmp_path / "app.pyz")
    values = [tensor(4, at=0), tensor(4, at=64)]
    chain = [KernelCall(0, (0, 0, 2, 1, 1))]
    record = plan("forward", [*values, Int(1)], (0,), (1,), chain, ["aten::add.out"])
    pte = pte_of("m", Program((record,)))
    told("select", pte, "-o", app)
    assert {name for name in names(app) if name.startswith("acme")} == {
        "acme/__init__.py",
        "acme/extras/__init__.py",
        "acme/extras/rounding.py",
        "acme/library.py",
        "acme/sums.py",
    }
    assert output_of(app, folder=tmp_path) == output_here(told, pte, tmp_path)


def test_a_partial_kernel_is_kept_where_its_key_is_used(pte_of: PteOf, told: Told, tmp_path: Path) -> None:
    app = str(tmp_path / "app.pyz")
    words = ("-o", app, "--json", "--kernels", "acme,bolt")
    answer = told("select", pte_of("m", calls("aten::neg.out")), *words)
    (acme,) = answer["kernels"]
    assert acme["kept"] == {"aten::neg.out": ["v1/6;0|6;0"]}
    assert acme["left_out"] == 4
    both = [pte_of("ints", calls("aten::neg.out", dtype=ScalarType.INT)), pte_of("doubles", doubles())]
    (acme,) = told("select", *both, *words)["kernels"]
    assert acme["kept"] == {"aten::neg.out": ["default", "v1/3;0|3;0"]}
    source = zipfile.ZipFile(app).read("acme/__init__.py").decode()
    assert "'aten::neg.out': ('default', 'v1/3;0|3;0')" in source


def doubles() -> Program:
    return calls("aten::neg.out", dtype=ScalarType.DOUBLE)


def test_programs_on_two_libraries(pte_of: PteOf, told: Told, tmp_path: Path) -> None:
    first, second = pte_of("one", calls("aten::neg.out", "bolt::times.out")), pte_of("two", doubles())
    app = str(tmp_path / "app.pyz")
    answer = told("select", first, second, "-o", app, "--json", "--kernels", "acme,bolt")
    assert [kernels["library"] for kernels in answer["kernels"]] == ["acme", "bolt"]
    assert [kernels["left_out"] for kernels in answer["kernels"]] == [3, 2]
    assert {"bolt/kernels.py", "bolt/tables/factor.txt"} <= names(app)
    assert "bolt/py.typed" not in names(app)
    for name, pte in (("one", first), ("two", second)):
        assert output_of(app, name, folder=tmp_path) == output_here(told, pte, tmp_path)
        assert output_of(app, pte, folder=tmp_path) == output_of(app, name, folder=tmp_path)
    assert "say which program: one, two" in run_elsewhere(app).stderr


def test_libraries_that_overlap_need_an_order(pte_of: PteOf, refused: Refused, tmp_path: Path) -> None:
    pte = pte_of("m", doubles())
    message = refused("select", pte, "-o", str(tmp_path / "app.pyz"), code=1)
    assert f"{pte}: the kernel libraries acme (of acme-kernels 1.0) and bolt (of bolt 1.0) both have kernels" in message
    assert 'give an order, kernels=["acme", "bolt"]' in message


def test_the_order_of_libraries(pte_of: PteOf, told: Told, tmp_path: Path) -> None:
    """bolt's fallback where it is preferred: not what partial kernels of acme take."""
    app = str(tmp_path / "app.pyz")
    words = ("select", pte_of("m", doubles()), "-o", app, "--json", "--kernels", "bolt,acme")
    assert [kernels["library"] for kernels in told(*words)["kernels"]] == ["bolt"]
    words = (*words[:-1], "acme", "--kernels", "aten::neg.out=bolt,acme")
    assert [kernels["library"] for kernels in told(*words)["kernels"]] == ["bolt"]
    assert (
        "{'*': (), 'aten::neg.out': ('bolt',)}" in zipfile.ZipFile(app).read("delegraph_selected/__init__.py").decode()
    )
    assert "acme goes before bolt" in run_elsewhere(app).stderr


def test_a_backend_comes_with_its_runtime_half(pte_of: PteOf, told: Told, tmp_path: Path, site: Path) -> None:
    app, pte = str(tmp_path / "app.pyz"), pte_of("m", delegated())
    answer = told("select", pte, "-o", app, "--json")
    assert answer["backends"] == [{"backend": "Spark", "provider": "spark 1.0"}]
    assert {name for name in names(app) if name.startswith("spark")} == {"spark/__init__.py", "spark/runtime.py"}
    assert 'spark-driver>=2; python_version>"3"' in answer["requirements"]
    assert not [requirement for requirement in answer["requirements"] if requirement.startswith("torch")]
    assert "No module named 'spark_driver'" in run_elsewhere(app).stderr
    driver = tmp_path / "driver"
    driver.mkdir()
    (driver / "spark_driver.py").write_text((site / "spark_driver.py").read_text())
    assert output_of(app, folder=tmp_path, path=(str(driver),)) == output_here(told, pte, tmp_path)


def test_what_dtypes_and_external_constants_need(pte_of: PteOf, told: Told, tmp_path: Path) -> None:
    app = str(tmp_path / "app.pyz")
    half = calls("aten::neg.out", dtype=ScalarType.BFLOAT16)
    requirements = told("select", pte_of("half", half), "-o", app, "--json", "--kernels", "acme")["requirements"]
    assert [requirement[:5].replace("_", "-") for requirement in requirements] == ["ml-dt", "numpy"]
    assert "delegraph/program/flat_tensor.py" not in names(app)
    info = ExtraTensorInfo(fully_qualified_name="weight", location=TensorDataLocation.EXTERNAL)
    constant = Tensor(ScalarType.FLOAT, (4,), (0,), extra_tensor_info=info)
    told("select", pte_of("external", Program((plan("forward", (constant,), (), (0,), ()),))), "-o", app)
    assert "delegraph/program/flat_tensor.py" in names(app)
    origin = {
        PROGRAM_KEY: NamedData(WeightsOrigin("cafe").to_bytes())
    }  # then it is a delegate that has external weights
    told("select", pte_of("delegate", Program((plan("forward", (), (), (), ()),), named_data=origin)), "-o", app)
    assert "delegraph/program/flat_tensor.py" in names(app)


# ---- wheels --------------------------------------------------------------------------------------------


def test_a_wheel(pte_of: PteOf, told: Told, tmp_path: Path) -> None:
    pte = pte_of("m", calls("aten::neg.out", "bolt::times.out"))
    told("select", pte, "-o", str(tmp_path / "my.model-1.5-py3-none-any.whl"))
    archive = zipfile.ZipFile(tmp_path / "my.model-1.5-py3-none-any.whl")
    info = "my.model-1.5.dist-info"
    metadata = archive.read(f"{info}/METADATA").decode()
    assert "Name: my.model\nVersion: 1.5\n" in metadata
    assert [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ")] == [
        line for line in metadata.splitlines() if line.startswith("Requires-Dist: numpy")
    ]
    assert archive.read(f"{info}/entry_points.txt").decode() == (
        "[delegraph.kernels]\nacme = acme:library\nbolt = delegraph_selected.kernels_1:library\n"
    )
    assert f"{info}/licenses/delegraph/LICENSE" in archive.namelist()
    rows = dict(line.split(",", 1) for line in archive.read(f"{info}/RECORD").decode().splitlines())
    assert rows.keys() == set(archive.namelist())
    for name in set(rows) - {f"{info}/RECORD"}:
        data = archive.read(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        assert rows[name] == f"sha256={digest},{len(data)}"
    assert not [name for name in rows if name.endswith(".pte")]


def test_a_wheel_with_programs_by_its_short_name(pte_of: PteOf, told: Told, tmp_path: Path) -> None:
    out = str(tmp_path / "my-model.whl")
    answer = told("select", pte_of("m", calls("aten::neg.out")), "-o", out, "--embed", "--json")
    (output,) = answer["outputs"]
    assert Path(output["path"]).name.startswith("my_model-")
    assert "delegraph_selected/programs/m.pte" in names(output["path"])


def test_native_code_runs_from_a_wheel_for_one_machine() -> None:
    linux, windows = "cp311-cp311-linux_x86_64", "cp311-cp311-win_amd64"
    owners = [Distribution(tag, "1.0", {}, {}, "", {}, tag) for tag in (linux, windows)]
    libraries = {owner.name: {"fast.so": Path("fast.so")} for owner in owners}
    assert wheel_tag(owners[:1], libraries) == linux
    with pytest.raises(PluginLoadError, match=f"no machine runs all native code in one wheel: {linux}, {windows}"):
        wheel_tag(owners, libraries)
    with pytest.raises(InvalidArgument, match=f"there is native code for {linux} among the files; make a wheel"):
        zipapp(Contents({}, (), (), (), {}, linux, ()))


@pytest.mark.parametrize("out", ["app.pyz", "app-1.0-py3-none-any.whl", "ops.yaml"])
def test_the_same_programs_give_the_same_file(out: str, pte_of: PteOf, told: Told, tmp_path: Path) -> None:
    pte = pte_of("m", delegated())
    told("select", pte, "-o", str(tmp_path / out))
    first = (tmp_path / out).read_bytes()
    told("select", pte, "-o", str(tmp_path / out))
    assert (tmp_path / out).read_bytes() == first


# ---- the operator YAML ---------------------------------------------------------------------------------


def test_the_operator_yaml(pte_of: PteOf, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pte_of("one", calls("aten::neg.out"))
    pte_of("two", calls("aten::neg.out", "nobody::has.this", dtype=ScalarType.LONG))
    answer = told("select", "one.pte", "two.pte", "-o", "ops.yaml", "--json")
    assert answer["operators"] == ["aten::neg.out", "nobody::has.this"]
    flags = "    include_all_overloads: false\n    is_root_operator: true\n    is_used_for_training: true\n"
    assert Path("ops.yaml").read_text() == (
        "build_features: []\n"
        "custom_classes: []\n"
        "et_kernel_metadata:\n"
        "  aten::neg.out:\n"
        "  - v1/4;0|4;0|4;0\n"
        "  - v1/6;0|6;0|6;0\n"
        "  nobody::has.this:\n"
        "  - v1/4;0|4;0|4;0\n"
        "include_all_non_op_selectives: false\n"
        "include_all_operators: false\n"
        "kernel_metadata: {}\n"
        "operators:\n"
        f'  aten::neg.out:\n    debug_info:\n    - "one.pte"\n    - "two.pte"\n{flags}'
        f'  nobody::has.this:\n    debug_info:\n    - "two.pte"\n{flags}'
    )


def test_lists_count_by_their_first_tensor() -> None:
    values = (tensor(4, at=0), TensorList((0, 0)), OptionalTensorList((-1, 0)), TensorList(()), tensor(2, 2, at=64))
    record = plan("forward", values, (0,), (4,), [KernelCall(0, (1, 2, 3, 4, 4))], ["aten::cat.out"])
    text = operator_yaml([needs_of("m.pte", Program((record,)))])
    assert "  aten::cat.out:\n  - v1/6;0|6;0|6;0,1|6;0,1\n" in text


def test_names_from_a_stranger_stay_names() -> None:
    record = plan("forward", (), (), (), [KernelCall(0, ())], ["a::b: [c]\n- d.out"])
    text = operator_yaml([needs_of("yes", Program((record,)))])
    assert '  "a::b: [c]\\n- d.out":\n  - default\n' in text
    assert '    - "yes"\n' in text


# ---- what people read ----------------------------------------------------------------------------------


def test_the_tables(pte_of: PteOf, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    lines = told("select", pte_of("m", delegated()), "-o", str(tmp_path / "app.pyz")).splitlines()
    rows = [line.split() for line in lines]
    assert ["acme", "aten::neg.out", "v1/6;0|6;0"] in rows
    assert ["acme", "acme-kernels", "1.0", "1", "kernels", "4", "kernels"] in rows
    assert ["Spark", "spark", "1.0", "backend"] in rows
    assert next(row for row in rows if row[:2] == ["acme-kernels", "1.0"])[2::2] == ["3", "4"]
    assert "spark-driver" in lines[-2]
    assert lines[-1].startswith(f"{tmp_path / 'app.pyz'}: zipapp, ")


# ---- what is refused -----------------------------------------------------------------------------------


def test_an_operator_that_nobody_has(pte_of: PteOf, refused: Refused, tmp_path: Path) -> None:
    good, bad = pte_of("good", calls("aten::neg.out")), pte_of("bad", calls("mine::walk.out", "aten::neg.out"))
    message = refused("select", good, bad, "-o", str(tmp_path / "app.pyz"), code=1)
    assert (
        f"{bad}: no kernel for\n  mine::walk.out on v1/6;0|6;0\nin the kernel libraries asked (acme, bolt)" in message
    )
    assert not (tmp_path / "app.pyz").exists()


def test_a_backend_that_is_not_installed(pte_of: PteOf, refused: Refused, tmp_path: Path, site: Path) -> None:
    pte = pte_of("m", delegated())
    with use_registry(PluginRegistry.discover(environ={"DELEGRAPH_PLUGINS": "acme"}, path=[str(site)])):
        message = refused("select", pte, "-o", str(tmp_path / "app.pyz"), code=1)
    assert f"{pte}: backend 'Spark' is not installed; the file says that 'spark' '1.0' made its blobs; ins" in message


def test_what_only_this_process_has(pte_of: PteOf, refused: Refused, tmp_path: Path, installed: PluginRegistry) -> None:
    with use_registry(installed):
        message = refused("select", pte_of("m", added()), "-o", str(tmp_path / "app.pyz"), code=1)
    assert "kernels:numpy was registered in this process" in message


def added() -> Program:
    values = (tensor(4, at=0), tensor(4, at=64))
    return Program((plan("forward", values, (0,), (1,), [KernelCall(0, (0, 1, 1))], ["aten::add.out"]),))


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("app.exe", "the suffix says what is made: .pyz, .whl, .yaml"),
        ("-.whl", "'-.whl' is no wheel's name"),
        ("m-1.0-cp311-none-any.whl", "pip takes a wheel with these contents by the name m-1.0-py3-none-any.whl"),
    ],
)
def test_a_name_that_says_nothing(out: str, message: str, pte_of: PteOf, refused: Refused, tmp_path: Path) -> None:
    pte = pte_of("m", calls("aten::neg.out"))
    assert message in refused("select", pte, "-o", str(tmp_path / out), code=2)
    assert list(tmp_path.iterdir()) == [Path(pte)]


def test_two_programs_of_one_name(pte_of: PteOf, refused: Refused, tmp_path: Path) -> None:
    pte = pte_of("m", calls("aten::neg.out"))
    (tmp_path / "other").mkdir()
    copy = tmp_path / "other" / "m.pte"
    copy.write_bytes(Path(pte).read_bytes())
    message = refused("select", pte, str(copy), "-o", str(tmp_path / "app.pyz"), code=2)
    assert f"two programs are called 'm'; rename the file {copy}" in message


def test_what_is_no_program(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(bytes(64))
    message = refused("select", str(tmp_path / "m.pte"), "-o", str(tmp_path / "app.pyz"), code=1)
    assert f"{tmp_path / 'm.pte'}: " in message
    assert "not a .pte" in message
    assert "No such file" in refused("select", "no.pte", "-o", "app.pyz", code=1)
