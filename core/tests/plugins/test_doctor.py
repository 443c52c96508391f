"""Checks in a process of their own, and what the doctor makes of an installation and a program."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from core.tests.plugins.command_line import run

from delegraph.cli.load_trial import reasons_of_loads
from delegraph.errors import DelegraphError
from delegraph.interfaces import BlobStamp
from delegraph.plugins.check import CheckResult, check
from delegraph.plugins.discovery import scan
from delegraph.plugins.doctor import Finding, Severity, diagnose
from delegraph.plugins.inventory import OfferState, inventory
from delegraph.plugins.registry import PluginRegistry
from delegraph.program import write_program
from delegraph.program.alternatives import AlternativeOf
from delegraph.program.kernel_calls import needed_kernels
from delegraph.program.schema import (
    AllocationDetails,
    BackendDelegate,
    Chain,
    CompileSpec,
    DelegateCall,
    ExecutionPlan,
    KernelCall,
    Operator,
    Program,
    ScalarType,
    Tensor,
)
from delegraph.runtime.resolution.kernels import KernelRegistry

Install = Callable[..., Path]
ENTRY = {"backends": {"Npu": "npu_rt:Backend"}}


def checked(site: Path, limit: float = 30.0) -> list[CheckResult]:
    return check((offer for offer in scan() if offer.location == str(site)), limit)


def only(names: str) -> dict[str, str]:
    return {"DELEGRAPH_PLUGINS": names, "DELEGRAPH_DISABLE_PLUGINS": "delegraph"}


def found(names: str, program: Program | None = None) -> list[Finding]:
    return diagnose(only(names), program, limit=30.0)


# ---- check ---------------------------------------------------------------------------------------------


def test_a_sound_plug_in_is_loaded_elsewhere(install: Install, backend_source: str) -> None:
    site = install("acme", ENTRY, {"npu_rt.py": f"print('hello')\n{backend_source}"})
    (result,) = checked(site)
    assert (result.offer.name, result.error, result.kind, result.unavailable) == ("Npu", "", "", "")
    assert 0 < result.seconds < 5
    assert "npu_rt" not in sys.modules


@pytest.mark.parametrize(
    ("source", "kind", "says"),
    [
        ("import os; os._exit(0)", "Crash", "its process ended with code 0"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "Crash", "its process ended with code -11"),
        ("1 / 0", "PluginLoadError", "ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(3)", "PluginLoadError", "SystemExit: 3"),
        ("delegraph_api = (9, 0); Backend = None", "PluginVersionError", "it needs plug-in API 9.0"),
    ],
)
def test_what_a_plug_in_can_die_of(install: Install, source: str, kind: str, says: str) -> None:
    (result,) = checked(install("acme", ENTRY, {"npu_rt.py": source}))
    assert result.kind == kind
    assert says in result.error


def test_one_that_hangs_meets_the_time_limit(install: Install) -> None:
    (result,) = checked(install("acme", ENTRY, {"npu_rt.py": "while True: pass"}), limit=1.0)
    assert (result.kind, result.error) == ("Timeout", "it did not load within 1 s")


def test_those_after_one_that_died_are_checked_too(install: Install) -> None:
    """Halves that need torch share a process; the death of one is not the others' fault."""
    entries = {"partitioners": {"a": "aot_a:make", "b": "aot_b:make", "c": "aot_c:make"}}
    sound = (
        "class Sound:\n    def partition(self, program): ...\n    def ops_to_not_decompose(self, ep): ...\n"
        "def make(options): return Sound()\n"
    )
    site = install("acme", entries, {"aot_a.py": sound, "aot_b.py": "import os; os._exit(7)", "aot_c.py": sound})
    assert [result.kind for result in checked(site)] == ["", "Crash", ""]


def test_a_backend_is_asked_for_its_device(install: Install, backend_source: str) -> None:
    source = backend_source + (
        "\n    def is_available(self):\n"
        "        from delegraph.interfaces import Availability\n"
        "        return Availability(False, 'no /dev/npu0', 'load the driver')\n"
    )
    (result,) = checked(install("acme", ENTRY, {"npu_rt.py": source}))
    assert (result.error, result.unavailable) == ("", "no /dev/npu0; load the driver")


def test_a_backend_that_raises_when_it_is_asked(install: Install, backend_source: str) -> None:
    source = backend_source + "\n    def is_available(self):\n        raise OSError('ioctl')\n"
    (result,) = checked(install("acme", ENTRY, {"npu_rt.py": source}))
    assert result.error == "backends:Npu of acme 1.0 (npu_rt:Backend): OSError: ioctl"


def test_a_kernel_library_tells_its_operators(install: Install) -> None:
    source = (
        "from delegraph.interfaces import KernelLibrary\nlibrary = KernelLibrary('acme')\n"
        "@library.kernel('acme::double.out')\ndef double(context, self, out): ...\n"
    )
    (result,) = checked(install("acme", {"kernels": {"acme": "acme_rt:library"}}, {"acme_rt.py": source}))
    assert result.operators == ("acme::double.out",)


# ---- inventory -----------------------------------------------------------------------------------------


def states(environ: dict[str, str] | None = None) -> dict[str, OfferState]:
    return {f"{e.offer.id} of {e.offer.distribution}": e.state for e in inventory(environ or {})}


def test_states_are_told_without_an_import(install: Install) -> None:
    install(
        "acme", {"backends": {"Npu": "npu_rt:Backend", "Gone": "npu_rt.gone:B", "Odd": "?"}}, {"npu_rt.py": "1 / 0"}
    )
    install("rival", {"backends": {"Npu": "rival_rt:Backend"}}, {"rival_rt.py": "1 / 0"})
    install("dsp", {"backends": {"Dsp": "dsp_rt:Backend"}}, {"dsp_rt.py": "1 / 0"})
    told = states({"DELEGRAPH_DISABLE_PLUGINS": "dsp"})
    assert told["backends:Npu of acme"] is told["backends:Npu of rival"] is OfferState.CONFLICT
    assert told["backends:Gone of acme"] is told["backends:Odd of acme"] is OfferState.BROKEN
    assert told["backends:Dsp of dsp"] is OfferState.DISABLED
    chosen = states({"DELEGRAPH_PREFER": "backends:Npu=rival"})
    assert chosen["backends:Npu of rival"] is OfferState.OK
    assert chosen["backends:Npu of acme"] is OfferState.DISABLED


def test_a_module_is_found_without_importing_its_parents(install: Install) -> None:
    modules = {"npu/__init__.py": "1 / 0", "npu/rt/__init__.py": "1 / 0", "npu/rt/backend.py": "", "ns/rt/b.py": ""}
    install("acme", {"backends": {"Npu": "npu.rt.backend:B", "Ns": "ns.rt.b:B", "No": "npu.rt.other:B"}}, modules)
    told = states()
    assert told["backends:Npu of acme"] is told["backends:Ns of acme"] is OfferState.OK
    assert told["backends:No of acme"] is OfferState.BROKEN
    assert "npu" not in sys.modules


def test_metadata_without_a_name_or_version(install: Install) -> None:
    site = install("acme", ENTRY, {"npu_rt.py": ""})
    (site / "acme-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\n\nName: in the body\n")
    entry = next(e for e in inventory({}) if e.offer.location == str(site))
    assert (entry.state, entry.reason) == (OfferState.BROKEN, f"the metadata in {site} has no name or version")


# ---- doctor --------------------------------------------------------------------------------------------


def test_nothing_is_wrong_with_a_backend_of_two_sound_halves(install: Install, backend_source: str) -> None:
    lowering = (
        "class Lowering:\n"
        "    @staticmethod\n    def preprocess(edge_program, compile_specs): ...\n"
        "    @staticmethod\n    def preprocess_multimethod(edge_programs, compile_specs): ...\n"
    )
    entries = {**ENTRY, "lowerings": {"Npu": "npu_aot:Lowering"}}
    install("acme", entries, {"npu_rt.py": backend_source, "npu_aot.py": lowering})
    assert found("acme") == []


def test_a_half_that_is_missing(install: Install, backend_source: str) -> None:
    install("acme", ENTRY, {"npu_rt.py": backend_source})
    install("dsp", {"lowerings": {"Dsp": "dsp_aot:Lowering"}})
    problems = {finding.subject: finding.problem for finding in found("acme,dsp") if finding.subject in ("Npu", "Dsp")}
    assert problems == {
        "Npu": "it is in delegraph.backends but not in delegraph.lowerings: nothing can be lowered to it here",
        "Dsp": "it is in delegraph.lowerings but not in delegraph.backends: what is lowered to it cannot run here",
    }


def test_halves_with_two_ids(install: Install, backend_source: str) -> None:
    lowering = (
        "class Lowering:\n"
        "    @staticmethod\n    def preprocess(edge_program, compile_specs): ...\n"
        "    @staticmethod\n    def preprocess_multimethod(edge_programs, compile_specs): ...\n"
    )
    partitioner = (
        "from delegraph.interfaces import DelegationSpec\n"
        "class P:\n"
        "    delegation_spec = DelegationSpec('Npuu')\n"
        "    def partition(self, exported_program): ...\n"
        "    def ops_to_not_decompose(self, ep): return [], None\n"
        "def make(options): return P()\n"
    )
    entries = {"lowerings": {"Npu": "aot:Lowering"}, "partitioners": {"npu": "aot_partitioner:make"}, **ENTRY}
    files = {"npu_rt.py": backend_source, "aot.py": lowering, "aot_partitioner.py": partitioner}
    install("acme", entries, files)
    (finding,) = found("acme")
    assert (finding.severity, finding.subject) == (
        Severity.ERROR, "partitioners:npu of acme 1.0 (aot_partitioner:make)",
    )  # fmt: skip
    assert finding.problem == (
        "its delegates are for the backend 'Npuu', which is not in delegraph.lowerings; did you mean 'Npu'?"
    )
    assert finding.remedy.startswith("its authors give the backend one id: in the partitioner's DelegationSpec")


def test_a_broken_one_is_found_with_its_remedy(install: Install) -> None:
    install("acme", ENTRY, {"npu_rt.py": "import no_such_driver"})
    finding = found("acme")[0]
    assert finding.severity is Severity.ERROR
    assert finding.subject == "backends:Npu of acme 1.0 (npu_rt:Backend)"
    assert finding.problem.startswith("ModuleNotFoundError: No module named 'no_such_driver'")
    assert finding.remedy.startswith("install 'no_such_driver', which it needs")


def test_mistyped_names_in_the_environment_do_not_stop_the_doctor(install: Install, backend_source: str) -> None:
    install("acme", ENTRY, {"npu_rt.py": backend_source})
    first = found("acme,acmee")[0]
    assert (first.severity, first.subject) == (Severity.ERROR, "environment")
    assert "DELEGRAPH_PLUGINS names 'acmee'" in first.problem


def test_a_conflict_is_found_on_both_sides(install: Install, backend_source: str) -> None:
    install("acme", ENTRY, {"npu_rt.py": backend_source})
    install("rival", {"backends": {"Npu": "rival_rt:Backend"}}, {"rival_rt.py": backend_source})
    problems = [finding.problem for finding in found("acme,rival") if "DELEGRAPH_PREFER" in finding.problem]
    assert problems == [
        "rival 1.0 (rival_rt:Backend) offers this name too; DELEGRAPH_PREFER=backends:Npu=acme chooses this one",
        "acme 1.0 (npu_rt:Backend) offers this name too; DELEGRAPH_PREFER=backends:Npu=rival chooses this one",
    ]


def test_stale_copies_of_metadata(install: Install, backend_source: str) -> None:
    site = install("acme", ENTRY, {"npu_rt.py": backend_source})
    stale = install("acme", {"backends": {"Old": "old_rt:B"}}, where="checkout", kind="egg-info", version="0.9")
    finding = next(f for f in found("acme") if "there twice" in f.problem)
    assert finding.severity is Severity.WARNING
    assert finding.problem == (f"its metadata is there twice: 0.9 in {stale}, which is found first, and 1.0 in {site}")
    assert finding.remedy == f"remove the stale one, 0.9 in {stale}"


def test_an_editable_installation_beside_its_checkout_is_only_noted(install: Install, backend_source: str) -> None:
    install("acme", ENTRY, {"npu_rt.py": backend_source})
    install("acme", ENTRY, where="checkout", kind="egg-info")
    (finding,) = [f for f in found("acme") if "there twice" in f.problem]
    assert finding.severity is Severity.NOTE


def test_copies_of_what_the_user_left_out_are_not_told(install: Install, backend_source: str) -> None:
    install("acme", ENTRY, {"npu_rt.py": backend_source})
    for where in ("one", "another"):
        install("rival", {"backends": {"Rival": "npu_rt:Backend"}}, where=where)
    assert [finding for finding in found("acme") if "there twice" in finding.problem] == []


def test_two_versions_in_one_directory(install: Install, backend_source: str) -> None:
    install("acme", ENTRY, {"npu_rt.py": backend_source})
    install("acme", ENTRY, version="0.9")
    (finding,) = [f for f in found("acme") if "there twice" in f.problem]
    assert finding.severity is Severity.WARNING
    assert "1.0 in" in finding.problem
    assert "0.9 in" in finding.problem


def test_without_torch_the_aot_halves_are_left_alone(
    install: Install, backend_source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    install("acme", {**ENTRY, "lowerings": {"Npu": "npu_aot:L"}}, {"npu_rt.py": backend_source, "npu_aot.py": "1 / 0"})
    (finding,) = found("acme")
    assert finding.severity is Severity.NOTE
    assert finding.problem == "it is not installed, so these were not tested: lowerings:Npu"


# ---- doctor, with a program ----------------------------------------------------------------------------


def program(*stamps: BlobStamp) -> Program:
    delegates = tuple(BackendDelegate(stamp.backend, 0, (stamp.to_compile_spec(),)) for stamp in stamps)
    plan = ExecutionPlan("forward", (), (), (), (), (), delegates)
    return Program((plan,), delegate_data=(b"",))


KERNELS = "from delegraph.interfaces import KernelLibrary\nlibrary = KernelLibrary('acme')\n"


def test_a_backend_that_a_program_needs(install: Install) -> None:
    install("acme", {"kernels": {"acme": "acme_rt:library"}}, {"acme_rt.py": KERNELS})
    finding = found("acme", program(BlobStamp("Npu", "acme-npu", "0.3", 1)))[0]
    assert finding == Finding(
        Severity.ERROR,
        "Npu",
        "the program needs the backend Npu, which is not installed",
        "the file says that its blob was made by 'acme-npu' '0.3', which is not installed; install the distribution"
        " that offers this backend, from where you trust it",
        of_program=True,
    )


def test_errors_that_keep_a_program_from_running(install: Install) -> None:
    install("acme", ENTRY, {"npu_rt.py": "raise ImportError('libnpu.so is not there')\n"})
    told = found("acme", program(BlobStamp("Npu", "acme", "1.0", 1)))
    (of_program,) = [finding for finding in told if finding.of_program]
    assert of_program.problem.startswith("the program needs the backend Npu, and backends:Npu of acme 1.0")
    assert of_program.problem.endswith("cannot be loaded")
    errors = [finding for finding in found("acme", program()) if finding.severity is Severity.ERROR]
    assert any("libnpu.so" in finding.problem for finding in errors)
    assert not any(finding.of_program for finding in errors)


def test_a_backend_that_a_program_needs_and_whose_device_is_not_here(install: Install, backend_source: str) -> None:
    source = backend_source + "\n    def is_available(self):\n        return False\n"
    install("acme", ENTRY, {"npu_rt.py": source})
    finding = found("acme", program(BlobStamp("Npu", "acme", "1.0", 1)))[0]
    assert finding.severity is Severity.ERROR
    assert finding.problem == (
        "the program needs the backend Npu, whose device cannot be used here: it gives no reason"
    )


def test_a_backend_that_a_program_needs_and_nobody_knows(install: Install) -> None:
    install("acme", {"kernels": {"acme": "acme_rt:library"}}, {"acme_rt.py": KERNELS})
    plan = ExecutionPlan("forward", (), (), (), (), (), (BackendDelegate("Npu", 0, (CompileSpec("k", b"v"),)),))
    finding = found("acme", Program((plan,), delegate_data=(b"",)))[0]
    assert finding.remedy == (
        "its blob carries no stamp that would name its distribution; install the distribution that offers this backend,"
        " from where you trust it"
    )


def library(name: str, *registrations: str, more: str = "") -> str:
    """The source of a library; a registration is what stands behind the operator's name."""
    source = f"from delegraph.interfaces import KernelLibrary\nlibrary = KernelLibrary({name!r})\n{more}\n"
    return source + "".join(
        f"library.kernel({registration})(lambda context, *args: None)\n" for registration in registrations
    )


DOUBLE = "'acme::double.out'"
FLOATS = ", dtypes=['float32'] * 2, dim_orders=[(0,)] * 2"


def calling(*operators: str) -> Program:
    """Each called on two float32 tensors."""
    tensor = Tensor(ScalarType.FLOAT, (2,), (0,), allocation_info=AllocationDetails(1, 0))
    calls = tuple(KernelCall(index, (0, 1, 1)) for index in range(len(operators)))
    names = tuple(Operator(*name.split(".")) for name in operators)
    return Program((ExecutionPlan("forward", (tensor, tensor), (0,), (1,), (Chain(calls),), names, (), (0, 8)),))


def test_operators_that_a_program_calls(install: Install) -> None:
    install("acme", {"kernels": {"acme": "acme_rt:library"}}, {"acme_rt.py": library("acme", DOUBLE)})
    (finding,) = found("acme", calling("acme::double.out", "acme::triple.out", "executorch_prim::add.Scalar"))
    assert finding.problem == (
        "the program needs acme::triple.out on v1/6;0|6;0, and no installed kernel library has it"
    )


@pytest.mark.parametrize(
    ("first", "second", "problem", "remedy"),
    [
        (library("a", DOUBLE), library("b"), "", ""),
        (library("a", DOUBLE), library("b", DOUBLE + FLOATS), "", ""),
        (
            library("a", DOUBLE),
            library("b", DOUBLE),
            ", and 2 installed kernel libraries have it, none of them before the others",
            'give an order, kernels=["a", "b"], or uninstall one',
        ),
        (
            library("a", DOUBLE, more="library.on_request = True"),
            library("b"),
            ", and only libraries have it that are asked where they are named",
            'name it, kernels=["a"], with the others that are needed',
        ),
        (
            library("a", DOUBLE + FLOATS.replace("float32", "int32")),
            library("b"),
            ", and no installed kernel library has it; a has it for other dtypes or dim orders",
            "install a kernel library that does",
        ),
    ],
)
def test_the_doctor_finds_what_loading_would_refuse(
    install: Install, first: str, second: str, problem: str, remedy: str
) -> None:
    install("acme", {"kernels": {"a": "a_rt:library", "b": "b_rt:library"}}, {"a_rt.py": first, "b_rt.py": second})
    needed = calling("acme::double.out")
    findings = found("acme", needed)
    assert [(f.severity, f.problem, f.remedy) for f in findings] == (
        [(Severity.ERROR, f"the program needs acme::double.out on v1/6;0|6;0{problem}", remedy)] if problem else []
    )
    registry = KernelRegistry.of(None, PluginRegistry.discover(environ=only("acme")))
    try:
        registry.resolve(needed_kernels(needed.execution_plan[0]))
    except DelegraphError:
        assert findings
    else:
        assert not findings


def test_stamps_are_judged_by_the_installed_backend(install: Install, backend_source: str) -> None:
    source = backend_source + (
        "\n    def check(self, stamp):\n"
        "        from delegraph.interfaces import Compatibility, Verdict\n"
        "        old = stamp.blob_version < 2\n"
        "        return Compatibility(Verdict.RECOMPILE, 'too old') if old else Compatibility(Verdict.OK)\n"
    )
    install("acme", ENTRY, {"npu_rt.py": source})
    stamps = (
        BlobStamp("Npu", "acme", "0.5", 1),
        BlobStamp("Npu", "acme", "0.9", 2),
        BlobStamp("Npu", "acme", "1.0", 2),
    )
    error, note = [f for f in found("acme", program(*stamps)) if f.subject == "Npu" and "delegraph." not in f.problem]
    assert error.severity is Severity.ERROR
    assert error.problem == "acme 1.0 answers RECOMPILE to Npu blob version 1, made by acme 0.5: too old"
    assert error.remedy == "lower the model again, or install acme==0.5"
    assert note.severity is Severity.NOTE
    assert note.problem == "Npu blob version 2, made by acme 0.9; installed is acme 1.0, which accepts it"


def test_the_doctor_imports_nothing_that_it_examines(install: Install, backend_source: str) -> None:
    site = install("acme", ENTRY, {"npu_rt.py": "import torch\n" + backend_source})
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from delegraph.plugins.doctor import diagnose\n"
        "environ = {'DELEGRAPH_PLUGINS': 'acme', 'DELEGRAPH_DISABLE_PLUGINS': 'delegraph'}\n"
        "print([f.problem for f in diagnose(environ)][0])\n"
        "print([m for m in ('torch', 'npu_rt', 'pluggy', 'rich') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(site)], capture_output=True, text=True, check=True)
    problem, modules = done.stdout.splitlines()
    assert problem == f"loading it brought torch into a process that runs without it: {site}/npu_rt.py:1 imports it"
    assert modules == "[]"


# ---- what only a load shows ----------------------------------------------------------------------------


def with_a_fallback() -> Program:
    """y = delegate(x), or a kernel in its place."""
    x, y = (Tensor(ScalarType.FLOAT, (2,), (0,), allocation_info=AllocationDetails(1, at)) for at in (0, 16))
    call, delegate = Chain((DelegateCall(0, (0, 1)),)), BackendDelegate("Npu", 0, ())
    own = ExecutionPlan("forward", (x, y), (0,), (1,), (call,), (), (delegate,), (0, 32))
    outside = tuple(replace(tensor, allocation_info=None) for tensor in (x, y))
    kernel = Chain((KernelCall(0, (0, 1, 1)),))
    name = AlternativeOf("forward", 0, 1).plan_name
    other = ExecutionPlan(name, outside, (0,), (1,), (kernel,), (Operator("acme::double", "out"),), (), (0,))
    return Program((own, other), delegate_data=(b"blob",))


@pytest.mark.parametrize(("body", "warned"), [("raise OSError('no queue')", True), ("return 1", False)])
def test_an_init_that_fails_is_known_from_loading(
    install: Install,
    backend_source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    body: str,
    warned: bool,
) -> None:
    entries = {**ENTRY, "kernels": {"acme": "acme_rt:library"}}
    backend = backend_source.replace("return bytes(processed)", body)
    install("acme", entries, {"npu_rt.py": backend, "acme_rt.py": library("acme", DOUBLE)})
    for name, value in only("acme").items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "m.pte"
    write_program(with_a_fallback(), file)
    run("doctor", str(file))
    told = capsys.readouterr().out
    assert ("its fall-back, on kernels, would run here: the backend failed on a blob without a stamp" in told) is warned
    assert ("while initialising: OSError: no queue" in told) is warned


def test_a_load_that_dies_tells_nothing(
    install: Install, backend_source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("acme", ENTRY, {"npu_rt.py": backend_source.replace("return bytes(processed)", "import os; os._exit(3)")})
    for name, value in only("acme").items():
        monkeypatch.setenv(name, value)
    write_program(with_a_fallback(), tmp_path / "m.pte")
    assert reasons_of_loads(str(tmp_path / "m.pte"), 30.0) == {}
