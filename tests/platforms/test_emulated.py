"""Our wheels and programs on other processors, which QEMU emulates: they compute there what they compute here.

`make test-platforms` builds the wheels, makes the interpreters (`tools/platforms.py`) and runs this.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.platforms.programs import PROGRAMS, save
from tools.distributions import ROOT
from tools.platforms import PLATFORMS, Platform

pytestmark = pytest.mark.platforms

HERE = Path(__file__).parent
WITHOUT_ENGINE = [name for name, program in PROGRAMS.items() if not program.with_engine]
LITTLE_ENDIAN = [platform for platform in PLATFORMS if not platform.is_big_endian]
ON_DEVICES = ("delegraph", "portable", "npu", "dsp", "machines")


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all programs and their inputs."""
    folder = tmp_path_factory.mktemp("programs")
    for name in PROGRAMS:
        save(name, folder)
    return folder


@pytest.fixture(scope="session")
def expected(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the outputs that the same files have on this machine."""
    return outputs_of(sys.executable, programs, tmp_path_factory.mktemp("here"))


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our wheels, unpacked: they are for every processor."""
    wheels = [wheel for name in ON_DEVICES for wheel in (ROOT / "dist").glob(f"*{name}-[0-9]*.whl")]
    assert len(wheels) == len(ON_DEVICES), "make wheels"
    assert all(wheel.name.endswith("-py3-none-any.whl") for wheel in wheels)
    folder = tmp_path_factory.mktemp("packages")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*pip, *map(str, wheels)], check=True)
    return folder


def outputs_of(python: str | Path, programs: Path, outputs: Path, packages: Path | None = None) -> Path:
    """Run all programs with this Python; the folder of what came of them."""
    environment = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(packages or "")}
    command = [str(python), str(HERE / "run_programs.py"), str(programs), str(outputs)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return outputs


@pytest.fixture(scope="session")
def computed(programs: Path, packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Platform], Path]:
    """The folder of what a platform computes with NumPy from Debian and no other package than ours."""
    folders: dict[str, Path] = {}

    def of(platform: Platform) -> Path:
        if not platform.python.exists():
            pytest.skip("python -m tools.platforms makes the interpreters")
        if platform.name not in folders:
            folder = tmp_path_factory.mktemp(platform.name)
            folders[platform.name] = outputs_of(platform.python, programs, folder, packages)
        return folders[platform.name]

    return of


def compare(mine: Path, theirs: Path) -> None:
    """Integers are equal; floats differ by what the order of a sum and another `exp` make, a few units in the end."""
    assert theirs.exists(), theirs.with_suffix(".json").read_text()
    with np.load(mine) as here, np.load(theirs) as there:
        assert here.files == there.files
        for name in here.files:
            x, y = here[name], there[name]
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            if x.dtype.kind == "f":
                largest: Any = np.abs(x).max()
                np.testing.assert_allclose(x, y, rtol=0, atol=float(8 * np.finfo(x.dtype).eps * largest))
            else:
                np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", WITHOUT_ENGINE)
@pytest.mark.parametrize("platform", LITTLE_ENDIAN, ids=lambda platform: platform.name)
def test_the_same_numbers_come_out(
    computed: Callable[[Platform], Path], expected: Path, platform: Platform, name: str
) -> None:
    compare(expected / f"{name}.npz", computed(platform) / f"{name}.npz")


def test_big_endian_machines_are_refused_in_a_line(computed: Callable[[Platform], Path]) -> None:
    (platform,) = (platform for platform in PLATFORMS if platform.is_big_endian)
    for name in PROGRAMS:
        words = json.loads((computed(platform) / f"{name}.json").read_text())
        assert words.startswith("NotSupported: this machine is big-endian")
        assert "\n" not in words


# ---- aarch64, whole --------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def installed(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of a bundle for 64-bit Arm, put there by its installer, which has no network."""
    platform = PLATFORMS[0]
    if not platform.python.exists():
        pytest.skip("python -m tools.platforms makes the interpreters")
    folder = tmp_path_factory.mktemp("bundle")
    version = subprocess.run([platform.python, "-V"], capture_output=True, text=True, check=True).stdout
    python = ".".join(version.split()[1].split(".")[:2])
    files = [str(programs / f"{name}.pte") for name in PROGRAMS]
    target = ["--platform", f"manylinux_2_28_{platform.name}", "--python", python, "--find-links", "dist"]
    command = [sys.executable, "-m", "delegraph", "bundle", *files, *target, "-o", str(folder / "out")]
    subprocess.run(command, cwd=ROOT, check=True)
    done = subprocess.run(
        ["sh", "install.sh", "--target", folder / "packages", "--quiet"],
        cwd=folder / "out",
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(platform.python), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("can be loaded here") == len(PROGRAMS)
    return folder / "packages"


@pytest.fixture(scope="session")
def computed_whole(programs: Path, installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what aarch64 computes with the bundle's packages: NumPy's own wheel, and onnxruntime."""
    return outputs_of(PLATFORMS[0].python, programs, tmp_path_factory.mktemp("whole"), installed)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_bundle_computes_the_same_on_aarch64(computed_whole: Path, expected: Path, name: str) -> None:
    compare(expected / f"{name}.npz", computed_whole / f"{name}.npz")
