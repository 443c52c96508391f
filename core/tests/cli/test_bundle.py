"""`delegraph bundle`: what is gathered, and what its installer refuses. It installs and loads in tests/platforms."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
import torch
from torch import nn

import delegraph
from delegraph.cli import main
from delegraph.devtools.offline_bundle.wheels import make_wheel, platform_tags
from delegraph.devtools.selective_build.distributions import Distributions
from delegraph.devtools.selective_build.package import packed
from delegraph.plugins.registry import PluginRegistry, use_registry

pytestmark = pytest.mark.models  # commands in processes of their own

Refused = Callable[..., str]
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(autouse=True)
def real() -> Iterator[None]:
    """The plug-ins that are installed."""
    with use_registry(PluginRegistry.discover()):
        yield


@pytest.fixture
def model(tmp_path: Path) -> Path:
    delegraph.lower(nn.ReLU(), (torch.ones(3),)).save(tmp_path / "m.pte")
    return tmp_path / "m.pte"


def wheel(folder: Path, name: str, version: str, *lines: str) -> None:
    """A wheel without code."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{info}/METADATA": "\n".join([f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *lines]).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    folder.mkdir(exist_ok=True)
    (folder / f"{name}-{version}-py3-none-any.whl").write_bytes(packed(files, info))


@pytest.fixture
def links(tmp_path: Path) -> Path:
    """A folder with wheels of ours, and of a NumPy for every machine: pip needs no network."""
    folder = tmp_path / "links"
    wheel(folder, "numpy", "2.1.0")
    wheel(folder, "delegraph", metadata.version("delegraph"), "Requires-Dist: numpy>=1.26,<3")
    wheel(folder, "delegraph_portable", metadata.version("delegraph-portable"), "Requires-Dist: delegraph")
    return folder


def words(model: Path, links: Path, out: Path, *more: str) -> list[str]:
    machine = ["--platform", "manylinux_2_28_aarch64", "--python", HERE]
    return ["bundle", str(model), *machine, "--find-links", str(links), "--no-index", "-o", str(out), *more]


def test_what_is_gathered(model: Path, links: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.ptd").write_bytes(b"weights")
    out = tmp_path / "new" / "out"
    assert main(words(model, links, out, "--data", str(tmp_path / "m.ptd"), "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((out / "bundle.json").read_text())
    version = metadata.version("delegraph")
    assert told["requirements"] == [f"delegraph=={version}", f"delegraph-portable=={version}"]
    assert (told["programs"], told["data"]) == (["m.pte"], ["m.ptd"])
    assert "m.pte: its operators (1) have kernels" in told["checked"]
    assert any(line.startswith("3 wheels, ") for line in told["checked"])
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert files == {*told["files"], "bundle.json", "install.sh"}
    assert (out / "m.pte").read_bytes() == model.read_bytes()
    assert sorted(path.name for path in tmp_path.joinpath("new").iterdir()) == ["out"]


def test_in_words(model: Path, links: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(model, links, tmp_path / "out")) == 0
    assert capsys.readouterr().out.endswith("out: copy it to the machine, and there: sh out/install.sh\n")


def test_wheels_that_are_not_to_be_had(model: Path, links: Path, tmp_path: Path, refused: Refused) -> None:
    (links / "numpy-2.1.0-py3-none-any.whl").unlink()
    told = refused(*words(model, links, tmp_path / "out"), code=1)
    assert told.startswith("delegraph bundle: pip download failed:\n  Could not find a version that satisfies")
    assert "numpy" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["links", "m.pte"]


def test_a_folder_that_is_there(model: Path, links: Path, tmp_path: Path, refused: Refused) -> None:
    assert f"{tmp_path} is there already; name a new folder" in refused(*words(model, links, tmp_path), code=1)


def test_two_files_of_one_name(model: Path, links: Path, tmp_path: Path, refused: Refused) -> None:
    told = refused(*words(model, links, tmp_path / "out", "--data", str(model)), code=1)
    assert "two files have one name among m.pte, m.pte; rename one" in told


def test_a_python_that_is_too_old_or_none(model: Path, links: Path, tmp_path: Path, refused: Refused) -> None:
    told = refused(*words(model, links, tmp_path / "out", "--python", "3.9"), code=1)
    assert "delegraph needs Python >=3.11, and --python is 3.9" in told
    told = refused(*words(model, links, tmp_path / "out", "--python", "three"), code=2)
    assert "'three' is no version of Python, such as 3.11" in told


def test_a_platform_that_no_wheel_names(model: Path, links: Path, tmp_path: Path, refused: Refused) -> None:
    told = refused(*words(model, links, tmp_path / "out", "--platform", "aarch64"), code=2)
    assert "'aarch64' is no platform as wheels name it, such as manylinux_2_28_aarch64" in told


def test_what_is_no_program(model: Path, links: Path, tmp_path: Path, refused: Refused) -> None:
    model.write_bytes(b"nothing")
    assert f"{model}: " in refused(*words(model, links, tmp_path / "out"), code=1)


@pytest.mark.parametrize(
    ("platform", "tags"),
    [
        ("manylinux_2_18_aarch64", ["manylinux_2_18", "manylinux_2_17", "manylinux2014", "linux"]),
        ("musllinux_1_1_x86_64", ["musllinux_1_1", "musllinux_1_0", "linux"]),
    ],
)
def test_wheels_for_an_older_c_library_run_too(platform: str, tags: list[str]) -> None:
    processor = platform.split("_", 3)[3]
    assert platform_tags(platform) == [f"{tag}_{processor}" for tag in tags]
    assert platform_tags("win_amd64") == ["win_amd64"]
    assert {"manylinux1_x86_64", "manylinux_2_5_x86_64"} <= set(platform_tags("manylinux_2_28_x86_64"))


def test_wheels_are_made_of_sources_and_of_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is byte for byte the first, but for the record that pip wrote."""
    sources, copies = tmp_path / "sources", tmp_path / "copies"
    sources.mkdir(), copies.mkdir()
    assert make_wheel(Distributions().named("delegraph-machines"), sources)
    (built,) = sources.iterdir()
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(tmp_path / "site")]
    subprocess.run([*pip, "--find-links", str(sources), "delegraph-machines"], check=True)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert make_wheel(Distributions().named("delegraph-machines"), copies)
    (copy,) = copies.iterdir()
    assert copy.name == built.name
    with zipfile.ZipFile(built) as one, zipfile.ZipFile(copy) as other:
        names = {name for name in one.namelist() if not name.endswith("RECORD")}
        assert names == {name for name in other.namelist() if not name.endswith("RECORD")}
        assert all(one.read(name) == other.read(name) for name in names)


# ---- the installer -----------------------------------------------------------------------------------


@pytest.fixture
def out(model: Path, links: Path, tmp_path: Path) -> Path:
    assert main(words(model, links, tmp_path / "out")) == 0
    return tmp_path / "out"


def install(out: Path, python: str = sys.executable) -> str:
    """The error of an installer that fails."""
    command = ["sh", str(out / "install.sh"), "--target", str(out.parent / "packages")]
    done = subprocess.run(
        command, env={"PATH": "/usr/bin:/bin", "PYTHON": python}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    return done.stderr


def test_a_damaged_bundle_is_not_installed(out: Path) -> None:
    (out / "m.pte").write_bytes(b"damaged")
    assert f"install.sh: {out}/m.pte is damaged or missing; copy the folder again" in install(out)
    assert not (out.parent / "packages").exists()


def test_another_python_is_refused(model: Path, links: Path, tmp_path: Path) -> None:
    assert main(words(model, links, tmp_path / "other", "--python", "3.77")) == 0
    told = install(tmp_path / "other")
    assert f"install.sh: these wheels are for Python 3.77, and {sys.executable} is {HERE}; name another one" in told


def test_a_python_without_pip_is_told(out: Path) -> None:
    script = out.parent / "python"
    script.write_text(f'#!/bin/sh\n[ "$2" = pip ] && exit 1\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    assert f"install.sh: {script} has no pip: install it (python3 -m ensurepip, or apt" in install(out, str(script))


def test_a_python_that_is_not_there_is_told(out: Path) -> None:
    assert "install.sh: there is no /none/python; name another one with PYTHON=path" in install(out, "/none/python")
