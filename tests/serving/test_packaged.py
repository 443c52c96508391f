"""The page's Dockerfile and unit, as far as they can be tried without Docker and without being process 1."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serving.servers import BIN, Net, free_port, lower, serve, under_load, write_files
from tests.test_docs import ROOT

pytestmark = pytest.mark.serving

MOST_BYTES = 145 * 2**20
"""Of the packages in the image, of which the page says 140 MB."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that other users may read, which pytest's are not."""
    with tempfile.TemporaryDirectory(dir=Path(tempfile.gettempdir()).resolve()) as name:
        os.chmod(name, 0o755)
        yield Path(name)


def lines_of(dockerfile: str, word: str) -> list[str]:
    return re.findall(rf"^{word} (.*)$", dockerfile, re.MULTILINE)


def size_of(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())


NOBODY = "setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --inh-caps=-all"
READ_ONLY = 'mount --bind . . && mount -o remount,ro,bind . && cd "$PWD" && ! touch written 2>/dev/null && exec "$@"'


def in_a_read_only_tree(folder: Path) -> list[str]:
    """The words before a command that run it as nobody, `folder` read-only; skips where the system cannot."""
    tools = [shutil.which(tool) for tool in ("unshare", "setpriv")]
    words = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", *shlex.split(NOBODY)]
    tried = None if None in tools else subprocess.run([*words, "true"], cwd=folder, capture_output=True, check=False)
    if tried is None or tried.returncode:
        pytest.skip("mounting a tree read-only needs util-linux and the right to do so")
    return words


@pytest.mark.skipif(not any((ROOT / "dist").glob("delegraph-*.whl")), reason="`make wheels` builds the wheels in dist/")
def test_the_image_is_small_and_serves_as_nobody_from_a_read_only_tree(folder: Path) -> None:
    dockerfile = write_files(folder)["Dockerfile"]
    expected = lower(Net(0), folder / "model.pte")
    (folder / "dist").symlink_to(ROOT / "dist")
    install, clean, doctor = lines_of(dockerfile, "RUN")
    build = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}

    def run(line: str) -> None:
        line = re.sub(
            r"(?<!\S)/(packages|dist|app)|(?<==)/packages", lambda m: str(folder / (m[1] or "packages")), line
        )
        line = line.replace(str(folder / "app") + "/", f"{folder}/")
        done = subprocess.run(["sh", "-ec", line], cwd=folder, env=build, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    run(install)
    run(clean)
    run(doctor.partition("&& ")[2])  # without rich, which `.venv` has
    assert size_of(folder / "packages") < MOST_BYTES
    (settings,) = lines_of(dockerfile, "ENV")
    environment = dict(item.split("=", 1) for item in shlex.split(settings)) | {"PYTHONPATH": str(folder / "packages")}
    (entry,) = lines_of(dockerfile, "ENTRYPOINT")
    _, *words = [word.strip(' "') for word in entry.strip("[]").split(",")]
    port = free_port()
    # The interpreter is this one; its own packages are those of `packages`, and nothing else is.
    base = Path(sysconfig.get_config_var("BINDIR")) / Path(sys.executable).name
    command = [*in_a_read_only_tree(folder), str(base), "-s", *words, "--port", str(port)]
    with serve(command, folder, port, environment) as server:
        load = under_load(server, [expected], requests=100)
        assert load.statuses == {200: load.statuses.total()} and load.wrong == 0
        process = Path(f"/proc/{server.process.pid}/status").read_text()
        assert re.search(r"^Uid:\s+65534\s+65534", process, re.MULTILINE)
        server.stop()


def test_the_unit(folder: Path) -> None:
    """systemd finds nothing wrong with it, and its commands serve."""
    unit = write_files(folder)["model.service"].replace("/opt/model/bin", str(BIN)).replace("/opt/model", str(folder))
    (folder / "model.service").write_text(unit, "utf-8")
    expected = lower(Net(0), folder / "model.pte")
    if shutil.which("systemd-analyze"):
        command = ["systemd-analyze", "verify", "--man=no", str(folder / "model.service")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and not done.stderr, done.stderr
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit)
    service = parser["Service"]
    subprocess.run(shlex.split(service["ExecStartPre"]), check=True, capture_output=True)
    port = free_port()
    command = [str(port) if word == "8000" else word for word in shlex.split(service["ExecStart"])]
    environment = dict(item.split("=", 1) for item in shlex.split(service["Environment"]))
    with serve(command, Path(service["WorkingDirectory"]), port, environment) as server:
        subprocess.run(service["ExecReload"].replace("$MAINPID", str(server.process.pid)), shell=True, check=True)
        server.told("loaded")
        load = under_load(server, [expected], requests=100)
        assert load.statuses == {200: load.statuses.total()} and load.wrong == 0
        server.stop()
