"""Strangers' plug-ins, pip-installed: a sound backend works with no line of the core changed, and bad ones hurt nobody.

The distributions are in `tests/plugins/`. pip installs them (offline, from copies) into directories of their own, which
are put on PYTHONPATH for processes that see them as any installed package.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.install

SOURCES = Path(__file__).parent / "plugins"
CHOICE = {"DELEGRAPH_PREFER": "backends:AcmeNpu=acme-npu"}
"""Which of the two backends that claim the name AcmeNpu is meant."""


@dataclass(frozen=True)
class Site:
    """Directories of installed distributions, and the Python that sees them."""

    directories: tuple[Path, ...]

    def run(self, script: str | Path, *args: str | Path, **environ: str) -> str:
        """Run a script, a file or text, in a new process; its output."""
        code = [str(script)] if isinstance(script, Path) else ["-c", script]
        done = self.start([sys.executable, *code, *map(str, args)], environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def plugins(self, *words: str | Path, **environ: str) -> tuple[int, Any]:
        """`delegraph plugins … --json`: its exit code, and what it printed."""
        done = self.start([sys.executable, "-c", CLI, "plugins", *map(str, words), "--json"], environ)
        assert done.returncode in (0, 1), done.stderr
        return done.returncode, json.loads(done.stdout)

    def start(self, command: list[str], environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a command that sees the distributions."""
        path = os.pathsep.join([*map(str, self.directories), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        env = {**os.environ, "PYTHONPATH": path, **environ}
        return subprocess.run(command, capture_output=True, text=True, env=env, timeout=600, check=False)


CLI = """
import argparse, sys
from delegraph.cli import plugins
parser = argparse.ArgumentParser()
plugins.add_parser(parser.add_subparsers())
args = parser.parse_args()
sys.exit(args.run(args))
"""


@pytest.fixture(scope="session")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The sound distribution alone."""
    return Site((pip_install(tmp_path_factory.mktemp("acme"), [SOURCES / "acme_npu"]),))


@pytest.fixture(scope="session")
def crowd(acme: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The sound distribution among all the bad ones."""
    return Site((*acme.directories, pip_install(tmp_path_factory.mktemp("bad"), sorted((SOURCES / "bad").iterdir()))))


def pip_install(directory: Path, sources: list[Path]) -> Path:
    """Install copies of `sources`, for setuptools leaves its traces beside what it builds."""
    copies = [shutil.copytree(source, directory / "sources" / source.name) for source in sources]
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    target = directory / "site"
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), *map(str, copies)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    return target


# ---- the sound one -------------------------------------------------------------------------------------

LOWER = """
import sys
import acme_npu.aot.operators, torch
from delegraph.aot.lower import lower
from delegraph.interfaces import DelegationSpec, Partitioner, PartitionResult

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.ops.acme.double(torch.relu(x + y) * y) + x

class TakesAll(Partitioner):
    def partition(self, exported_program):
        for node in exported_program.graph.nodes:
            if node.op == "call_function":
                node.meta["delegation_tag"] = "all"
        return PartitionResult(exported_program, {"all": DelegationSpec("StaleBlob")})

args = torch.zeros(3, 4), torch.zeros(3, 4)
lowered = lower(Model(), args, backends=["acme"])
lowered.save(sys.argv[1])
print(lowered.report)
if len(sys.argv) > 2:
    lower(Model(), args, backends=[TakesAll()]).save(sys.argv[2])
"""

RUN = """
import sys
sys.modules["torch"] = None
import numpy as np
from delegraph.runtime.module import load
x, y = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
result = load(sys.argv[1])(x, y)
expected = 2 * (np.maximum(x + y, 0) * y) + x
assert result.dtype == np.float32
assert (result == expected).all(), abs(result - expected).max()
print(*sorted(name for name in sys.modules if name.startswith(("acme_npu.", "delegraph_"))))
"""


@pytest.fixture(scope="session")
def lower_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LOWER as a file, so that reports can quote its lines."""
    script = tmp_path_factory.mktemp("scripts") / "lower_model.py"
    script.write_text(LOWER)
    return script


@pytest.fixture(scope="session")
def lowered(acme: Site, lower_script: Path) -> tuple[Path, str]:
    """A model lowered onto ACME's NPU, and the report."""
    file = lower_script.with_name("acme.pte")
    return file, acme.run(lower_script, file)


def test_a_strangers_backend_takes_what_it_can(lowered: tuple[Path, str]) -> None:
    _, report = lowered
    assert "4 nodes in 2 delegates, 1 node left to kernels" in report
    assert "acme: the NPU has no acme.double.default" in report
    assert "return torch.ops.acme.double(torch.relu(x + y) * y) + x" in report


def test_a_strangers_backend_and_kernel_run_without_torch(acme: Site, lowered: tuple[Path, str]) -> None:
    modules = acme.run(RUN, lowered[0]).split()
    assert "acme_npu.runtime.backend" in modules
    assert "acme_npu.runtime.kernels" in modules
    assert not [module for module in modules if ".aot" in module]


def test_a_strangers_backend_is_listed_and_sound(acme: Site, lowered: tuple[Path, str]) -> None:
    _, rows = acme.plugins("list")
    mine = [row for row in rows if row["distribution"] == "acme-npu"]
    assert {(row["group"], row["name"], row["version"], row["state"]) for row in mine} == {
        ("delegraph.partitioners", "acme", "0.1.0", "ok"),
        ("delegraph.lowerings", "AcmeNpu", "0.1.0", "ok"),
        ("delegraph.backends", "AcmeNpu", "0.1.0", "ok"),
        ("delegraph.kernels", "acme", "0.1.0", "ok"),
    }
    code, checked = acme.plugins("check", "acme-npu")
    assert code == 0
    assert [row["result"] for row in checked] == ["ok"] * 5
    assert checked[-1]["detail"].startswith("it took "), checked[-1]["detail"]
    assert acme.plugins("doctor", lowered[0], DELEGRAPH_PLUGINS="acme-npu") == (0, [])


def test_a_device_without_it_learns_what_to_install(lowered: tuple[Path, str]) -> None:
    nothing = Site(())
    _, findings = nothing.plugins("doctor", lowered[0], DELEGRAPH_PLUGINS="portable")
    told = {finding["subject"]: (finding["problem"], finding["remedy"]) for finding in findings}
    assert told["AcmeNpu"] == (
        "the program needs the backend AcmeNpu, which is not installed",
        "the file says that its blob was made by 'acme-npu' '0.1.0', which is not installed; install the distribution"
        " that offers this backend, from where you trust it",
    )
    problem = told["acme::double.out"][0]
    assert problem.startswith("the program needs acme::double.out on v1/")
    assert problem.endswith(", and no installed kernel library has it")
    done = nothing.start([sys.executable, "-c", RUN, str(lowered[0])], {})
    assert "BackendMissing" in done.stderr
    assert "acme-npu" in done.stderr
    assert "0.1.0" in done.stderr


# ---- the bad ones --------------------------------------------------------------------------------------

USE_ALL = """
import json, sys
from delegraph.errors import DelegraphError
from delegraph.plugins import PluginRegistry
from delegraph.plugins.hookspecs import group_named
registry, errors = PluginRegistry.discover(), {}
for offer in sorted(registry.offers(), key=lambda offer: offer.name == "TorchLeak"):
    if not group_named(offer.group).torch_free and offer.name != "raises_in_factory":
        continue
    try:
        registry.load(offer.group, offer.name)
        if offer.group == "delegraph.partitioners":
            registry.create(offer.group, offer.name)
    except DelegraphError as error:
        errors[offer.id] = f"{type(error).__name__}: {error}"
print(json.dumps(errors))
"""

REFUSED = {
    "kernels:raises_on_import": "PluginLoadError: cannot load plug-in kernels:raises_on_import of"
    " bad-raises-on-import 1.0 (bad_raises_on_import:library): OSError: libacme.so.3: cannot open shared object file",
    "partitioners:raises_in_factory": "PluginLoadError: cannot load plug-in partitioners:raises_in_factory of"
    " bad-raises-in-factory 1.0 (bad_raises_in_factory:partitioner): its factory raised RuntimeError: no licence",
    "backends:RaisesInFactory": "PluginLoadError: cannot load plug-in backends:RaisesInFactory of"
    " bad-raises-in-factory 1.0 (bad_raises_in_factory:Backend): Backend() raised OSError: /dev/acme0: no such device",
    "backends:WrongSignature": "its signature is execute(handle, args); it has to be execute(context, handle, args)",
    "backends:MisspeltHook": "it has distroy(), which is not a hook of delegraph.backends; did you mean destroy()?",
    "plugins:misspelt_tool": "it implements metod_loaded(), which is not a hook; did you mean 'method_loaded'",
    "backends:OtherApi": "PluginVersionError: cannot load plug-in backends:OtherApi of bad-other-api 1.0"
    " (bad_other_api:Backend): it needs plug-in API 2.0, and this Delegraph offers 1.1\n"
    "  what to do: upgrade Delegraph",
    "backends:AcmeNpu": 'prefer={"backends:AcmeNpu": "acme-npu"} or DELEGRAPH_PREFER=backends:AcmeNpu=acme-npu',
    "backends:TorchLeak": "bad_torch_leak.py:3 imports it\n  what to do: its authors move that import",
    "backends:StaleMetadata": "is stale or its files are gone: reinstall bad-stale-metadata",
}
"""What using each bad plug-in says."""


@pytest.fixture(scope="session")
def errors(crowd: Site) -> dict[str, str]:
    """What using every installed runtime half and factory in one process comes to."""
    answer: dict[str, str] = json.loads(crowd.run(USE_ALL))
    return answer


@pytest.mark.parametrize("plugin", REFUSED)
def test_a_bad_one_gives_an_error_of_its_own(errors: dict[str, str], plugin: str) -> None:
    assert REFUSED[plugin] in errors[plugin]


def test_the_others_in_that_process_work(errors: dict[str, str]) -> None:
    assert errors.keys() == REFUSED.keys()


def test_the_list_shows_the_bad_ones_without_importing_them(crowd: Site) -> None:
    code, rows = crowd.plugins("list")
    states = {(row["name"], row["distribution"]): row["state"] for row in rows if row["group"] == "delegraph.backends"}
    assert code == 1
    assert states["StaleMetadata", "bad-stale-metadata"] == "broken metadata"
    assert states["AcmeNpu", "acme-npu"] == states["AcmeNpu", "bad-duplicate-name"] == "conflict"
    assert states["OtherApi", "bad-other-api"] == states["TorchLeak", "bad-torch-leak"] == "ok"
    _, rows = crowd.plugins("list", DELEGRAPH_DISABLE_PLUGINS="bad-duplicate-name")
    states = {(row["name"], row["distribution"]): row["state"] for row in rows if row["group"] == "delegraph.backends"}
    assert states["AcmeNpu", "acme-npu"] == "ok"
    assert states["AcmeNpu", "bad-duplicate-name"] == "disabled"


def test_the_doctor_finds_every_bad_one(crowd: Site) -> None:
    code, findings = crowd.plugins("doctor")
    assert code == 1
    found = {finding["subject"].partition(" of ")[0]: finding for finding in findings if finding["severity"] == "error"}
    assert found.keys() >= REFUSED.keys()
    assert found["backends:StaleMetadata"]["problem"].startswith(
        "there is no module bad_stale_metadata.runtime: the metadata"
    )
    assert found["backends:AcmeNpu"]["problem"].endswith(" chooses this one")
    assert "bad_torch_leak.py:3 imports it" in found["backends:TorchLeak"]["problem"]
    halves = {finding["subject"] for finding in findings if "nothing can be lowered to it here" in finding["problem"]}
    assert {"OtherApi", "TorchLeak", "WrongSignature"} <= halves
    assert not {"AcmeNpu", "StaleBlob"} & halves


@pytest.fixture(scope="session")
def lowered_in_the_crowd(crowd: Site, lower_script: Path) -> tuple[Path, Path]:
    """The same model among the bad ones, and one lowered by a half whose blobs its other half refuses."""
    files = lower_script.with_name("crowd.pte"), lower_script.with_name("stale.pte")
    crowd.run(lower_script, *files, **CHOICE)
    return files


def test_among_bad_ones_everything_else_goes_on(
    crowd: Site, lowered: tuple[Path, str], lowered_in_the_crowd: tuple[Path, Path]
) -> None:
    assert lowered_in_the_crowd[0].read_bytes() == lowered[0].read_bytes()
    assert "acme_npu.runtime.backend" in crowd.run(RUN, lowered_in_the_crowd[0], **CHOICE)


def test_a_broken_tool_is_told_of_and_left_out(crowd: Site, lowered: tuple[Path, str]) -> None:
    done = crowd.start([sys.executable, "-c", RUN, str(lowered[0])], CHOICE)
    assert done.returncode == 0
    assert done.stderr.count("PluginWarning: going on without a tool: cannot load plug-in plugins:misspelt_tool") == 1


def test_a_stale_blob_is_refused_before_its_backend_sees_it(
    crowd: Site, lowered_in_the_crowd: tuple[Path, Path]
) -> None:
    stale = lowered_in_the_crowd[1]
    done = crowd.start([sys.executable, "-c", RUN, str(stale)], {})
    assert "DelegateInvalidCompatibility" in done.stderr
    assert "version 1 blobs are no longer read; lower the model again" in done.stderr
    _, findings = crowd.plugins("doctor", stale, DELEGRAPH_PLUGINS="bad-stale-blob")
    (finding,) = [f for f in findings if f["subject"] == "StaleBlob"]
    assert finding["severity"] == "error"
    assert finding["problem"] == (
        "bad-stale-blob 1.0 answers RECOMPILE to StaleBlob blob version 1, made by bad-stale-blob 1.0:"
        " version 1 blobs are no longer read"
    )
