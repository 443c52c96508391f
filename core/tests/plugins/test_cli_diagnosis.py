"""The answers of `delegraph plugins check` and `doctor` to an installation that is wrong, and the command that helps.

Plug-ins are loaded in this process, and tried out on no model: `test_doctor.py` and `test_cli.py` do that elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from core.tests.plugins.command_line import run

from delegraph.cli import plugins
from delegraph.plugins import check as checking
from delegraph.plugins import doctor
from delegraph.plugins.check import CheckResult

Install = Callable[..., Path]
LOWERING = (
    "class Lowering:\n"
    "    @staticmethod\n    def preprocess(edge_program, compile_specs): ...\n"
    "    @classmethod\n    def preprocess_multimethod(cls, edge_programs, compile_specs): ...\n"
)
PARTITIONER = (
    "from delegraph.interfaces import DelegationSpec\n"
    "class P:\n"
    "    delegation_spec = DelegationSpec({id!r})\n"
    "    def partition(self, exported_program): ...\n"
    "    def ops_to_not_decompose(self, ep): return [], None\n"
    "def make(options): return P()\n"
)


@pytest.fixture(autouse=True)
def _only_acme_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGRAPH_PLUGINS", "acme,acme-compiler")
    monkeypatch.setenv("DELEGRAPH_DISABLE_PLUGINS", "delegraph")

    def check(offers: Any, limit: float, questions: Any = None) -> Sequence[CheckResult]:
        asked = questions or checking.Questions()
        return [checking._result(offer, checking._answer(offer, asked)) for offer in offers]

    monkeypatch.setattr(checking, "check", check)
    monkeypatch.setattr(doctor, "check", check)
    monkeypatch.setattr(doctor, "SLOW_IMPORT", float("inf"))  # of this machine nothing is said
    monkeypatch.setattr(plugins, "_trials", lambda sound, limit: [])


@pytest.fixture
def other(install: Install) -> None:
    """A distribution that the selection names, so that it is there where a test installs no other."""
    install(
        "acme-compiler", {"memory_planners": {"compiler": "acme_plan:plan"}}, {"acme_plan.py": "def plan(a, b): ..."}
    )


def backend(source: str, identity: str = "Npu", lowering: str = "Npu", target: str = "Npu") -> tuple[Any, Any]:
    """Entry points and modules of a backend, whose three ids may differ."""
    entries = {
        "partitioners": {"npu": "acme_partitioner:make"},
        "lowerings": {lowering: "acme_aot:Lowering"},
        "backends": {identity: "acme_rt:Backend"},
    }
    partitioner = PARTITIONER.format(id=target)
    return entries, {"acme_partitioner.py": partitioner, "acme_aot.py": LOWERING, "acme_rt.py": source}


# ---- ids -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("other")
def test_a_machine_that_is_slow_can_run_all_the_same(
    install: Install, backend_source: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("acme", *backend(backend_source))
    monkeypatch.setattr(doctor, "SLOW_IMPORT", 0.0)
    assert run("doctor") == 0
    assert "note: backends:Npu" in (told := capsys.readouterr().out) and "loading it takes" in told


@pytest.mark.usefixtures("other")
def test_a_sound_backend(install: Install, backend_source: str, capsys: pytest.CaptureFixture[str]) -> None:
    install("acme", *backend(backend_source))
    assert run("doctor") == run("check", "acme") == 0
    assert capsys.readouterr().out.startswith("all is well\n")


@pytest.mark.usefixtures("other")
def test_a_partitioner_for_another_id(
    install: Install, backend_source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    install("acme", *backend(backend_source, target="Npuu"))
    assert run("check", "acme", "--json") == 1
    (row,) = [row for row in json.loads(capsys.readouterr().out) if row["result"] == "another id"]
    problem = "its delegates are for the backend 'Npuu', which is not in delegraph.lowerings; did you mean 'Npu'?"
    assert (row["plugin"], row["distribution"], row["detail"]) == ("partitioners:npu", "acme 1.0", problem)
    assert run("doctor") == 1
    assert capsys.readouterr().out == (
        "error: partitioners:npu of acme 1.0 (acme_partitioner:make)\n"
        f"  {problem}\n"
        "  what to do: its authors give the backend one id: in the partitioner's DelegationSpec, in"
        " delegraph.lowerings and in delegraph.backends; then pip install it again\n"
    )


def test_the_half_that_compiles_may_be_another_distributions(
    install: Install, backend_source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked about one distribution, `check` knows what the others lower to."""
    entries, modules = backend(backend_source)
    compiler = {"lowerings": entries.pop("lowerings")}
    install("acme", entries, modules)
    install("acme-compiler", compiler)
    assert run("check", "partitioners:npu") == 0
    assert "another id" not in capsys.readouterr().out


@pytest.mark.usefixtures("other")
def test_a_partitioner_for_a_backend_that_is_not_here(
    install: Install, backend_source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    install("acme", *backend(backend_source, target="Quantum"))
    assert run("doctor") == 1
    assert "  what to do: install the distribution that lowers to Quantum\n" in capsys.readouterr().out


@pytest.mark.usefixtures("other")
def test_halves_with_ids_that_differ_by_a_letter(
    install: Install, backend_source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    install("acme", *backend(backend_source, identity="Npuu"))
    assert run("doctor") == 1
    out = capsys.readouterr().out
    assert "error: Npu\n  it is in delegraph.lowerings but not in delegraph.backends" in out
    assert "what is lowered to it cannot run here; did you mean 'Npuu'?" in out
    assert out.count("what to do: its authors give the backend one id") == 2


# ---- groups, halves, metadata --------------------------------------------------------------------------


@pytest.mark.usefixtures("other")
def test_a_group_that_does_not_exist(install: Install, backend_source: str, capsys: pytest.CaptureFixture[str]) -> None:
    entries = {"backend": {"Npu": "acme_rt:Backend"}, "memory_planners": {"acme": "acme_plan:plan"}}
    install("acme", entries, {"acme_rt.py": backend_source})
    assert run("doctor") == 1
    assert capsys.readouterr().out == (
        "error: backend:Npu of acme 1.0 (acme_rt:Backend)\n"
        "  there is no entry-point group delegraph.backend; did you mean 'delegraph.backends' or 'delegraph.kernels'?\n"
        "  what to do: its authors correct the group's name, then: pip install it again\n"
    )
    assert run("check", "acme", "--json") == 1
    (row,) = [row for row in json.loads(capsys.readouterr().out) if row["plugin"] == "backend:Npu"]
    assert (row["result"], row["detail"]) == (
        "no such group",
        "there is no group delegraph.backend; did you mean 'delegraph.backends' or 'delegraph.kernels'?",
    )


@pytest.mark.usefixtures("other")
@pytest.mark.parametrize(
    ("missing", "effect"),
    [("lowerings", "nothing can be lowered to it here"), ("backends", "what is lowered to it cannot run here")],
)
def test_a_half_that_is_missing(
    install: Install, backend_source: str, capsys: pytest.CaptureFixture[str], missing: str, effect: str
) -> None:
    entries, modules = backend(backend_source)
    del entries[missing]
    install("acme", entries, modules)
    assert run("doctor") == 1
    out = capsys.readouterr().out
    assert (
        f"but not in delegraph.{missing}: {effect}\n  what to do: install the distribution that has the other half"
        in out
    )
    assert run("check", "acme", "--json") == 1
    assert "one half" in [row["result"] for row in json.loads(capsys.readouterr().out)]


@pytest.mark.usefixtures("other")
def test_metadata_whose_module_has_gone(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    site = install("acme", {"kernels": {"acme": "acme_gone:library"}})
    assert run("doctor") == 1
    assert capsys.readouterr().out == (
        "error: kernels:acme of acme 1.0 (acme_gone:library)\n"
        f"  there is no module acme_gone: the metadata in {site} is stale\n"
        "  what to do: pip install --force-reinstall acme, or remove its metadata\n"
    )


@pytest.mark.usefixtures("other")
@pytest.mark.parametrize(("version", "code"), [("0.9", 1), ("1.0", 0)])
def test_stale_metadata_is_a_warning_and_an_editable_installation_is_not(
    install: Install, backend_source: str, capsys: pytest.CaptureFixture[str], version: str, code: int
) -> None:
    entries, modules = backend(backend_source)
    site = install("acme", entries, modules)
    checkout = install("acme", entries, where="checkout", kind="egg-info", version=version)
    assert run("doctor") == code
    out = capsys.readouterr().out
    there = f"its metadata is there twice: {version} in {checkout}, which is found first, and 1.0 in {site}"
    assert f"{'warning' if code else 'note'}: acme\n  {there}\n" in out
