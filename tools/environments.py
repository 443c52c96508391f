"""Environments of the repository's tasks: folders into which pip installs, again when what they are made from changes.

`.venv` holds what most tasks need. Others have a Python of their own, or lie beside `.venv` and are seen through
PYTHONPATH by the tasks that need them: their packages would hide, or be hidden by, what is there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.distributions import DISTRIBUTIONS, ROOT

__all__ = [
    "ACCELERATORS",
    "BROWSER",
    "EXECUTORCH",
    "EXECUTORCH_NEWEST",
    "EXECUTORCH_USERS",
    "FUZZ",
    "MKDOCS",
    "ON_RAY",
    "ORACLES",
    "PEERS",
    "RAY",
    "SETTINGS",
    "TWINE",
    "VENV",
    "VIEWER",
    "WEBGPU",
    "ZOO",
    "Environment",
    "setting",
    "with_torch",
]

SETTINGS: Final = {
    "TORCH": "torch==2.13.0",  # a plain `torch` can bring several GB of CUDA packages
    "TORCHES": "2.14.1",  # the newest that was run; the oldest that our distributions admit is TORCH
    "FUZZ": "1000000",
    "PROGRAMS": "10000",
    "SEED": "0",
    "NUMERICS": "",
    "CHROMIUM": "",
    "DEBIAN": "",
    "VERSION": "",
    "DRY": "",
}
"""The shell's variables that tasks read, and what they take where one is not set or empty."""

DEVELOPED_WITH: Final = ("aot", "cli")
"""The extras of every distribution that `.venv` has."""


def setting(name: str) -> str:
    """The shell's value for one of `SETTINGS`, or its default."""
    return os.environ.get(name) or SETTINGS[name]


@dataclass(frozen=True, slots=True)
class Environment:
    """A folder below the repository with what each `pip install` of `installs()` brings.

    With `own_python` it is a virtual environment; without, its packages lie beside `.venv`. `without` names a package
    in it that is taken out again.
    """

    folder: str
    installs: Callable[[], list[list[str]]]
    own_python: bool = False
    without: str = ""

    @property
    def python(self) -> Path:
        """The interpreter that runs what is installed here."""
        return self.program("python") if self.own_python else VENV.python

    def program(self, name: str) -> Path:
        """An executable of a virtual environment: in `bin`, or in `Scripts` with `.exe`, as the platform has it."""
        scripts = sysconfig.get_path("scripts", "venv", {"base": str(ROOT / self.folder)})
        return Path(scripts, f"{name}{sysconfig.get_config_var('EXE') or ''}")

    def ready(self) -> Environment:
        """Install what is missing or has changed. Raises `CalledProcessError` if that fails."""
        if not self.own_python:
            VENV.ready()
        stamp, fingerprint = ROOT / self.folder / ".installed", self.fingerprint()
        if not stamp.is_file() or stamp.read_text("utf-8") != fingerprint:
            self._install()
            stamp.write_text(fingerprint, "utf-8")
        return self

    def fingerprint(self) -> str:
        """A digest of the words for pip and of the files that they name: requirements, and pyproject.toml files."""
        digest = hashlib.sha256()
        for words in self.installs():
            for option, word in zip(["", *words], words, strict=False):
                digest.update(f"{word}\n".encode())
                if option == "-r":
                    digest.update((ROOT / word).read_bytes())
                elif option == "-e":
                    digest.update((ROOT / word.partition("[")[0] / "pyproject.toml").read_bytes())
        return digest.hexdigest()

    def _install(self) -> None:
        print(f"installing {self.folder}", flush=True)
        if self.own_python and not self.python.exists():
            subprocess.run([sys.executable, "-m", "venv", self.folder], cwd=ROOT, check=True)
        place = [] if self.own_python else ["--upgrade", "--target", self.folder]
        for words in self.installs():
            command = [str(self.python), "-m", "pip", "install", "--quiet", *place, *words]
            subprocess.run(command, cwd=ROOT, check=True)
        if self.without:
            shutil.rmtree(ROOT / self.folder / self.without)


ON_RAY: Final = "delegraph-ray"
"""The distribution whose dependency, Ray, is too large for an environment that does not test it."""


def _editable(names: tuple[str, ...] = (), extras: tuple[str, ...] = ()) -> list[str]:
    """pip's words for our distributions but `ON_RAY`, or for those of these names, each with those of the extras that
    it has."""
    words = []
    for distribution in DISTRIBUTIONS:
        if distribution.name in names or (not names and distribution.name != ON_RAY):
            chosen = ",".join(extra for extra in extras if extra in distribution.extras)
            folder = f"./{distribution.folder.relative_to(ROOT).as_posix()}"
            words += ["-e", f"{folder}[{chosen}]" if chosen else folder]
    return words


def _built_with() -> list[str]:
    """torch, and what builds our distributions and those of strangers in the tests."""
    return [setting("TORCH"), "hatchling>=1.27", "setuptools>=77"]


VENV = Environment(
    ".venv",
    lambda: [
        ["--upgrade", "pip>=25.1"],
        _built_with(),
        ["--no-build-isolation", *_editable(extras=DEVELOPED_WITH), "-r", "requirements-dev.txt"],
        ["--no-build-isolation", "--no-deps", *_editable((ON_RAY,))],
    ],
    own_python=True,
)


BESIDE_EXECUTORCH: Final = (
    "delegraph",
    "delegraph-partitioners",
    "delegraph-onnx",
    "delegraph-cpu",
    "delegraph-portable",
)


def _with_executorch(version: str, folder: str) -> Environment:
    """ExecuTorch in an environment of its own: it is what we compare with, never what we need.

    Delegraph is installed beside it for the bridge to ExecuTorch's backends, with Arm's compilers; tosa-tools asks for
    an older NumPy than it needs.
    """
    return Environment(
        folder,
        lambda: [
            _built_with(),
            [f"executorch=={version}", "transformers>=4.50,<6", "pytest", "pytest-xdist>=3"],
            ["pluggy", "ml_dtypes", "onnxruntime>=1.31,<1.32", "onnx", "onnx_ir", "ethos-u-vela"],
            ["jsonschema", "py-cpuinfo"],  # the latter for Qualcomm's passes
            ["--no-deps", "tosa-tools"],
            ["--no-deps", "--no-build-isolation", *_editable((*BESIDE_EXECUTORCH, "delegraph-executorch"))],
        ],
        own_python=True,
    )


EXECUTORCH = _with_executorch("1.4.1", ".venv-executorch")
EXECUTORCH_NEWEST = _with_executorch("1.5.1", ".venv-executorch-1.5")

# Packages that export to ExecuTorch, each with what it pins; torchvision as for the zoo.
EXECUTORCH_USERS = Environment(
    ".venv-executorch-users",
    lambda: [
        _built_with(),
        [setting("TORCH"), "torchvision==0.28.0", "executorch==1.4.1", "optimum-executorch==1.1.0"],
        ["ultralytics>=8.4,<8.5", "pytest", "pytest-xdist>=3"],
        ["pluggy", "ml_dtypes", "onnxruntime>=1.31,<1.32", "onnx", "onnx_ir"],
        ["--no-deps", "--no-build-isolation", *_editable((*BESIDE_EXECUTORCH, "delegraph-executorch"))],
    ],
    own_python=True,
)


def with_torch(version: str) -> Environment:
    """Another torch, with what it requires, which hides the one of `.venv`."""
    return Environment(f"build/torch-{version}", lambda: [[f"torch=={version}"]])


# Without what they depend on: onnxruntime is in .venv. Qualcomm's is of tens of MB, under its licence. The one with
# WebGPU inside is an onnxruntime of its own, which hides that of .venv.
ACCELERATORS = Environment("build/accelerators", lambda: [["--no-deps", "-r", "requirements-accelerators.txt"]])
WEBGPU = Environment("build/webgpu", lambda: [["--no-deps", "-r", "requirements-webgpu.txt"]])

# Without what they depend on: most of it is in .venv, and would hide what is there.
RAY = Environment("build/ray", lambda: [["--no-deps", "-r", "requirements-ray.txt"]])

PEERS = Environment("build/peers", lambda: [_built_with(), ["-r", "requirements-peers.txt"]], own_python=True)

MKDOCS = Environment("build/mkdocs", lambda: [["-r", "requirements-docs.txt"]])

BROWSER = Environment("build/browser", lambda: [["playwright"]])

# Model Explorer without its adapters for other formats, which are half a gigabyte; and what it imports.
VIEWER = Environment(
    "build/viewer",
    lambda: [
        ["playwright", "dacite", "flask", "ipython", "portpicker", "requests", "termcolor", "watchdog"],
        ["--no-deps", "ai-edge-model-explorer>=0.1.34,<0.2"],
    ],
)

TWINE = Environment("build/twine", lambda: [["-r", "requirements-release.txt"]])

FUZZ = Environment("build/fuzz", lambda: [["--no-deps", "-r", "requirements-fuzz.txt"]])

# Without what they depend on: tosa-tools asks for an older NumPy than it needs, and its `tests` would hide ours.
ORACLES = Environment("build/oracles", lambda: [["--no-deps", "-r", "requirements-oracles.txt"]], without="tests")

# Without what they depend on: torchvision on PyPI is built for a torch with CUDA, would pull it (several GB), and its
# operators don't load beside ours.
ZOO = Environment("build/zoo", lambda: [["--no-deps", "-r", "requirements-zoo.txt"]])
