"""`delegraph plugins`: tables, JSON and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from core.tests.plugins.command_line import run

from delegraph.plugins import PluginRegistry, use_registry
from delegraph.program import write_program
from delegraph.program.schema import Chain, ExecutionPlan, Program

Install = Callable[..., Path]
ENTRY = {"backends": {"Npu": "npu_rt:Backend"}}


@pytest.fixture(autouse=True)
def _only_acme(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGRAPH_PLUGINS", "acme")
    monkeypatch.setenv("DELEGRAPH_DISABLE_PLUGINS", "delegraph")


def told(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_list(install: Install, backend_source: str, capsys: pytest.CaptureFixture[str]) -> None:
    install("acme", ENTRY, {"npu_rt.py": backend_source})
    assert run("list") == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "acme" in line)
    cells = [cell.strip() for cell in line.strip("│").split("│")]
    assert cells == ["delegraph.backends", "Npu", "acme", "1.0", "1.0", "npu_rt:Backend", "ok"]


def test_list_as_json_by_group(install: Install, backend_source: str, capsys: pytest.CaptureFixture[str]) -> None:
    install("acme", {**ENTRY, "kernels": {"acme": "npu_rt:Backend"}}, {"npu_rt.py": backend_source})
    assert run("list", "--json", "--group", "backends") == 0
    row = next(row for row in told(capsys) if row["state"] == "ok")
    assert row == {
        "group": "delegraph.backends",
        "name": "Npu",
        "distribution": "acme",
        "version": "1.0",
        "value": "npu_rt:Backend",
        "state": "ok",
        "reason": "",
        "api": "1.0",
    }


def test_list_shows_what_is_broken_and_why(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    site = install("acme", ENTRY)
    assert run("list") == 1
    out = capsys.readouterr().out
    assert "broken metadata" in out
    assert f"backends:Npu: there is no module npu_rt: the metadata in {site} is stale" in out


def test_list_tells_of_mistyped_names(
    install: Install, backend_source: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("acme", ENTRY, {"npu_rt.py": backend_source})
    monkeypatch.setenv("DELEGRAPH_DISABLE_PLUGINS", "acmee")
    assert run("list", "--json") == 1
    assert "DELEGRAPH_DISABLE_PLUGINS names 'acmee'" in capsys.readouterr().err


def test_list_of_a_group_that_does_not_exist(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("acme", ENTRY)
    assert run("list", "--group", "gadgets") == 2
    assert "delegraph plugins list: there is no entry-point group 'gadgets'" in capsys.readouterr().err


def test_list_without_rich(
    install: Install, backend_source: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("acme", ENTRY, {"npu_rt.py": backend_source})
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert run("list") == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "acme" in line)
    assert line.split() == ["delegraph.backends", "Npu", "acme", "1.0", "1.0", "npu_rt:Backend", "ok"]


def test_show(install: Install, backend_source: str, capsys: pytest.CaptureFixture[str]) -> None:
    site = install("acme", ENTRY, {"npu_rt.py": backend_source})
    assert run("show", "Npu") == 0
    out = capsys.readouterr().out
    assert f"location      {site}" in out
    assert "hooks         is_available(), check(stamp), init(context, processed, compile_specs), fork(" in out
    assert run("show", "acme", "--json") == 0
    assert [row["name"] for row in told(capsys)] == ["Npu"]


def test_show_of_what_is_not_there(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("acme", ENTRY)
    assert run("show", "acmee") == 2
    assert "nothing installed is called 'acmee'; did you mean 'acme'?" in capsys.readouterr().err


def test_check(install: Install, backend_source: str, capsys: pytest.CaptureFixture[str]) -> None:
    entries = {"backends": {"Npu": "npu_rt:Backend", "Bad": "bad_rt:Backend"}}
    install("acme", entries, {"npu_rt.py": backend_source, "bad_rt.py": "raise OSError('[no/such] tag')"})
    assert run("check", "Npu", "--json") == 1
    loaded, half = told(capsys)
    assert (loaded["plugin"], loaded["result"]) == ("backends:Npu", "ok")
    assert (half["plugin"], half["result"]) == ("backends:Npu", "one half")
    assert "it is in delegraph.backends but not in delegraph.lowerings" in half["detail"]
    assert run("check") == 1
    out = capsys.readouterr().out
    assert "PluginLoadError" in out
    assert "OSError: [no/such] tag" in out


def test_check_of_a_group_that_does_not_exist(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("acme", {"backend": {"Npu": "npu_rt:Backend"}})
    assert run("check", "acme") == 1
    out = capsys.readouterr().out
    assert "backend:Npu: there is no group delegraph.backend; did you mean 'delegraph.backends'" in out
    assert run("doctor") == 1
    out = capsys.readouterr().out
    assert "there is no entry-point group delegraph.backend; did you mean 'delegraph.backends'" in out


AOT = """
import torch
from delegraph.interfaces import BackendDetails, DelegationSpec, Partitioner, PartitionResult, PreprocessResult

class Taking(Partitioner):
    def __init__(self, backend):
        self.backend = backend

    def partition(self, exported_program):
        for node in exported_program.graph.nodes:
            if node.op == "call_function":
                node.meta["delegation_tag"] = "all"
        return PartitionResult(exported_program, {"all": DelegationSpec(self.backend)})

class Declining(Partitioner):
    def partition(self, exported_program):
        return PartitionResult(exported_program, {})

def sound(): return Taking("Sound")
def raw(): return Taking("Raw")
def leak(): return Taking("Leak")
def other(): return Taking("Soundd")
def picky(): return Declining()

class Lowering(BackendDetails):
    @staticmethod
    def preprocess(edge_program, compile_specs):
        return PreprocessResult(b"blob")

class RawLowering(BackendDetails):
    @staticmethod
    def preprocess(edge_program, compile_specs):
        return b"blob"
"""

RUNTIME = """
from delegraph.interfaces import BackendInterface

class Sound(BackendInterface):
    def init(self, context, processed, compile_specs):
        print("initialising")

    def execute(self, context, handle, args):
        args[-1][...] = 0

class Leak(Sound):
    def init(self, context, processed, compile_specs):
        import torch
"""


@pytest.mark.models
def test_check_tries_out_what_it_checks(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    """Each part is sound by itself; whether they fit shows when a small model goes through them."""
    names = ("sound", "raw", "leak", "other", "picky")
    runtime = {"Sound": "acme_rt:Sound", "Raw": "acme_rt:Sound", "Leak": "acme_rt:Leak"}
    lowerings = {"Sound": "acme_aot:Lowering", "Raw": "acme_aot:RawLowering", "Leak": "acme_aot:Lowering"}
    entries = {"partitioners": {n: f"acme_aot:{n}" for n in names}, "lowerings": lowerings, "backends": runtime}
    site = install("acme", entries, {"acme_aot.py": AOT, "acme_rt.py": RUNTIME})
    assert run("check", "acme", "--json") == 1
    rows = told(capsys)
    assert {row["result"] for row in rows if row["seconds"] != ""} == {"ok"}
    trials = {row["plugin"].partition(":")[2]: (row["result"], row["detail"]) for row in rows if row["seconds"] == ""}
    assert trials["sound"] == (
        "ok",
        "it took aten_add_tensor, aten_mul_tensor, aten_sub_tensor, aten_relu_default, which ran",
    )
    assert trials["picky"] == ("ok", "its partitioner took nothing of 3 small models, so that nothing was run")
    result, detail = trials["raw"]
    assert result == "trial failed"
    assert detail.startswith(
        "PreprocessError as it was to lower a small model: preprocess of lowerings:Raw of acme 1.0"
    )
    assert "preprocess returned bytes instead of a PreprocessResult" in detail
    line = RUNTIME[: RUNTIME.index("import torch")].count("\n") + 1
    assert trials["leak"] == (
        "trial failed",
        f"running it brought torch into a process that runs without it: {site}/acme_rt.py:{line} imports it",
    )
    result, detail = trials["other"]
    assert result == "trial failed"
    assert "'Soundd'" in detail
    assert "did you mean 'Sound'" in detail


ABSENT_AOT = """
from delegraph.errors import PluginUnavailable

def uncompiled(): return Taking("Uncompiled")
def away(): return Taking("Away")

class Uncompiled(BackendDetails):
    @staticmethod
    def preprocess(edge_program, compile_specs):
        raise PluginUnavailable("acme-cc is not on the PATH; what to do: pip install acme-cc")
"""

ABSENT_RUNTIME = """
from delegraph.interfaces import Availability

class Away(Sound):
    def is_available(self):
        return Availability(False, "no /dev/npu0", "load the driver")
"""


@pytest.mark.models
def test_a_compiler_or_device_that_is_absent_is_no_fault(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    entries = {
        "partitioners": {"uncompiled": "acme_aot:uncompiled", "away": "acme_aot:away"},
        "lowerings": {"Uncompiled": "acme_aot:Uncompiled", "Away": "acme_aot:Lowering"},
        "backends": {"Uncompiled": "acme_rt:Sound", "Away": "acme_rt:Away"},
    }
    install("acme", entries, {"acme_aot.py": AOT + ABSENT_AOT, "acme_rt.py": RUNTIME + ABSENT_RUNTIME})
    assert run("check", "acme", "--json") == 0
    rows = {(row["plugin"], row["seconds"] == ""): (row["result"], row["detail"]) for row in told(capsys)}
    assert rows["backends:Away", False] == ("unavailable", "no /dev/npu0; load the driver")
    result, detail = rows["partitioners:away", True]
    assert result == "unavailable"
    assert detail.startswith("it took aten_add_tensor")
    assert "compiled and cannot run here: method 'forward' cannot be loaded" in detail
    assert "no /dev/npu0; load the driver" in detail
    told_of_compiler = "acme-cc is not on the PATH; what to do: pip install acme-cc"
    assert rows["partitioners:uncompiled", True] == ("unavailable", told_of_compiler)


def test_doctor(install: Install, backend_source: str, capsys: pytest.CaptureFixture[str]) -> None:
    install("acme", {"kernels": {"acme": "npu_rt:library"}}, {"npu_rt.py": "library = 3"})
    assert run("doctor") == 1
    out = capsys.readouterr().out
    assert out.startswith("error: kernels:acme of acme 1.0 (npu_rt:library)\n  it has no lookup(op, key); derive from")
    assert "\n  what to do: " in out


def test_doctor_when_all_is_well(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    source = "from delegraph.interfaces import KernelLibrary\nlibrary = KernelLibrary('acme')\n"
    install("acme", {"kernels": {"acme": "npu_rt:library"}}, {"npu_rt.py": source})
    assert run("doctor") == 0
    assert capsys.readouterr().out == "all is well\n"
    assert run("doctor", "--json") == 0
    assert told(capsys) == []


def test_doctor_tells_its_verdict_behind_notes(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "from delegraph.interfaces import KernelLibrary\nlibrary = KernelLibrary('acme')\n"
    for where, kind in (("site", "dist-info"), ("checkout", "egg-info")):  # which is noted, and no fault
        install("acme", {"kernels": {"acme": "npu_rt:library"}}, {"npu_rt.py": source}, where=where, kind=kind)
    assert run("doctor") == 0
    out = capsys.readouterr().out
    assert out.startswith("note: ")
    assert out.endswith("\nall is well\n")

    file = tmp_path / "m.pte"
    write_program(Program((ExecutionPlan("forward", (), (), (), (Chain(()),)),)), file)
    assert run("doctor", str(file)) == 0
    assert capsys.readouterr().out.endswith(f"\n{file} finds here all that it needs\n")


@pytest.mark.parametrize("content", [None, b"no program"])
def test_doctor_with_a_file_that_is_none(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    file = tmp_path / "m.pte"
    if content is not None:
        file.write_bytes(content)
    assert run("doctor", str(file)) == 2
    assert "delegraph plugins doctor: " in capsys.readouterr().err


def test_list_imports_neither_torch_nor_a_plug_in(install: Install) -> None:
    site = install("acme", ENTRY, {"npu_rt.py": "raise SystemExit"})
    script = (
        "import sys, argparse; sys.path.insert(0, sys.argv[1])\n"
        "from delegraph.cli import plugins\n"
        "parser = argparse.ArgumentParser(); plugins.add_parser(parser.add_subparsers())\n"
        "args = parser.parse_args(['plugins', 'list', '--json']); args.run(args)\n"
        "vendors = [m for m in sys.modules if m.startswith('delegraph_')]\n"
        "print([*vendors, *(m for m in ('torch', 'npu_rt', 'numpy', 'pluggy', 'rich') if m in sys.modules)])\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(site)], capture_output=True, text=True, check=True)
    assert '"npu_rt:Backend"' in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.models
def test_a_partitioner_that_kills_its_process_is_blamed_alone(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    dying = AOT + "\ndef dying():\n    import os\n    trial = 'plugin_trial' in ' '.join(os.sys.orig_argv)\n"
    dying += "    return os._exit(9) if trial else Declining()\n"
    entries = {"partitioners": {"a": "acme_aot:dying", "b": "acme_aot:picky"}}
    install("acme", entries, {"acme_aot.py": dying})
    assert run("check", "acme", "--json") == 1
    died, went = [row for row in told(capsys) if row["seconds"] == ""]
    assert (died["result"], went["result"]) == ("trial failed", "ok")
    assert died["detail"].startswith("its process ended with code 9 as it was to lower a small model")


KIT = """
def prove(name, arguments):
    print("proves", name, *arguments)
    return 1
"""


def test_a_conformance_kit_gets_the_words_behind_run(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("acme", {"conformance_kits": {"kit": "acme_kit:prove"}}, {"acme_kit.py": KIT})
    with use_registry(PluginRegistry.discover(environ={"DELEGRAPH_PLUGINS": "acme"})):
        assert run("check", "npu", "--run", "--level", "contract", "--json", "x") == 1
        assert capsys.readouterr().out == "proves npu --level contract --json x\n"
        assert run("check", "--run") == 2
    assert "say what to prove: `delegraph plugins check NAME --run`" in capsys.readouterr().err


def test_no_conformance_kit(capsys: pytest.CaptureFixture[str]) -> None:
    with use_registry(PluginRegistry()):
        assert run("check", "npu", "--run") == 2
    assert "no conformance kit is installed\n  what to do: install delegraph-testkit, " in capsys.readouterr().err
