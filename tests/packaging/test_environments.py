"""The wheels in `dist/`, installed where nothing else is: models lowered with torch, and run without it.

`make test-wheels` builds the wheels and runs this. pip fetches what they require.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.environment import Environment
from tools.distributions import DISTRIBUTIONS, ROOT, Distribution, sources
from tools.environments import setting

pytestmark = pytest.mark.wheels

TORCH = setting("TORCH")
"""The torch that is developed with: one without several GB of CUDA packages."""

MODEL = """
import torch

torch.manual_seed(0)
MODEL = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 10))
X = torch.linspace(-1, 1, 64).reshape(1, 1, 8, 8)

def make():
    return MODEL.eval(), (X,)
"""

LOWER = """
import numpy as np
import delegraph
from model import MODEL, X

delegraph.lower(MODEL.eval(), (X,)).save("kernels.pte")
np.savez("answer.npz", x=X.numpy(), y=MODEL(X).detach().numpy())
np.testing.assert_allclose(delegraph.load("cpu.pte")(X), MODEL(X).detach(), rtol=1e-5, atol=1e-6)
"""

RUN = """
import importlib.util, sys
import numpy as np
import delegraph

assert importlib.util.find_spec("torch") is None
for name in sys.argv[2:]:
    answer = np.load(sys.argv[1])
    np.testing.assert_allclose(delegraph.load(name)(answer["x"]), answer["y"], rtol=1e-5, atol=1e-6)
"""


def documented_commands() -> list[list[str]]:
    """The words after `pip install` under "Install" for beginners: with torch, without it, without it from wheels."""
    section = (ROOT / "docs" / "getting-started.md").read_text("utf-8").partition("## Install")[2].partition("\n## ")[0]
    return [shlex.split(words) for words in re.findall(r"^    pip install (.*)$", section, re.MULTILINE)]


def with_extras(distribution: Distribution) -> str:
    """The wheel of a distribution and its extras, as an argument of pip.

    All but the bridge, which `make test-executorch` tests in an environment of its own: with coremltools, pandas, SciPy
    and scikit-learn it would add 400 MB to this one, and to `plugins check` a start of ExecuTorch's runtime for each of
    its backends.
    """
    found = list((ROOT / "dist").glob(f"{distribution.package.name}-[0-9]*.whl"))
    assert len(found) == 1, f"dist/ has {len(found)} wheels of {distribution.name}: run `make wheels`"
    extras = [extra for extra in distribution.extras if extra != "bridge"]
    return f"{found[0]}[{','.join(extras)}]" if extras else str(found[0])


@pytest.fixture(scope="module")
def ahead_of_time(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Every distribution with its extras, and torch; but the one on Ray, which is 250 MB: `make test-ray` has it."""
    environment = Environment(tmp_path_factory.mktemp("aot") / "environment")
    environment.install(TORCH, *(with_extras(each) for each in DISTRIBUTIONS if each.name != "delegraph-ray"))
    return environment


@pytest.fixture(scope="module")
def programs(ahead_of_time: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `cpu.pte` (a delegate), `kernels.pte`, and eager's `answer.npz`, made there."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "model.py").write_text(MODEL)
    (folder / "lower.py").write_text(LOWER)
    ahead_of_time.run("-m", "delegraph", "lower", "model.py:make", "--backends", "cpu", "-o", "cpu.pte", cwd=folder)
    ahead_of_time.run("lower.py", cwd=folder)
    return folder


def python(version: str) -> str:
    """A Python of that version, on the PATH or of pyenv's; the test is skipped if there is none that runs."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python{version}"), sys.executable]
    for path in filter(None, found):
        command = [path, "-c", "import sys, ensurepip; print(*sys.version_info[:2], sep='.')"]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
        if asked.stdout.strip() == version:
            return str(path)
    pytest.skip(f"no Python {version} on this machine, neither on the PATH nor of pyenv's")


def check_runs(device: Environment, programs: Path) -> None:
    """Both programs give eager's answer on the device, and the command line finds nothing wrong with them there."""
    assert not {"torch", "onnx", "rich"} & device.installed()
    device.run("-m", "pip", "check")
    files = [programs / "cpu.pte", programs / "kernels.pte"]
    device.run("-W", "error", "-c", RUN, programs / "answer.npz", *files)
    for file in files:
        device.run("-m", "delegraph", "plugins", "doctor", file)


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_wheels_run_without_torch(version: str, programs: Path, tmp_path: Path) -> None:
    device = Environment(tmp_path / "environment", python(version))
    wheels = [path for pattern in documented_commands()[2] for path in glob.glob(str(ROOT / pattern))]
    assert len(wheels) == 3
    device.install(*wheels)
    check_runs(device, programs)
    first = device.run("-m", "delegraph", "--version").splitlines()[0]
    assert first.startswith(f"delegraph {Path(wheels[0]).name.split('-')[1]}, plug-in API ")


def test_every_plugin_loads_where_models_are_lowered(ahead_of_time: Environment) -> None:
    ahead_of_time.run("-m", "pip", "check")
    rows = json.loads(ahead_of_time.run("-m", "delegraph", "plugins", "check", "--json"))
    assert {row["distribution"].split()[0] for row in rows} <= {one.name for one in DISTRIBUTIONS}
    absent = [row for row in rows if row["result"] == "unavailable"]  # extras and packages that are not installed here
    assert {row["plugin"]: row["detail"] for row in rows if row not in absent and row["result"] != "ok"} == {}
    for row in absent:
        is_bridge = row["distribution"].startswith("delegraph-executorch ")
        assert is_bridge or row["distribution"].startswith("delegraph-providers ")
        lacks = ("[bridge]",) if is_bridge else ("is not installed", "finds no device", "not tried without its options")
        assert any(text in row["detail"] for text in lacks), row


def test_a_clone_is_installed_as_documented(ahead_of_time: Environment, programs: Path, tmp_path: Path) -> None:
    """On the device for good; where models are lowered it is enough that pip finds all that it wants."""
    with_torch, without_torch, _ = documented_commands()
    clone = sources(ROOT, tmp_path / "clone")
    device = Environment(tmp_path / "environment")
    before = set(clone.rglob("*"))
    device.install(*without_torch, cwd=clone)
    assert set(clone.rglob("*")) == before, "a later build or import would read what is left there"
    check_runs(device, programs)
    assert "Would install delegraph-" in ahead_of_time.install("--dry-run", *with_torch, cwd=clone)
