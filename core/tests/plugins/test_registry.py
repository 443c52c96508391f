"""Who is meant by a name, and what loading it can come to."""

from __future__ import annotations

import pickle
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegraph.errors import (
    InvalidArgument,
    InvalidState,
    LoweringError,
    PluginConflict,
    PluginLoadError,
    PluginNotFound,
    PluginVersionError,
)
from delegraph.interfaces import BackendInterface, KernelLibrary
from delegraph.plugins import PluginRegistry, default_registry, use_registry
from delegraph.plugins.factory import make
from delegraph.plugins.versions import mismatch
from delegraph.program import serialize_program
from delegraph.program.schema import (
    AllocationDetails,
    BackendDelegate,
    Chain,
    DelegateCall,
    ExecutionPlan,
    Program,
    ScalarType,
    Tensor,
)
from delegraph.runtime import Runtime, load

Install = Callable[..., Path]
ENTRY = {"backends": {"Npu": "npu_rt:Backend"}}


class Sound(BackendInterface):
    """A backend that fits."""

    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        return "handle"

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        args.append(handle)


def load_error(install: Install, source: str, group: str = "backends", value: str = "npu_rt:Backend") -> str:
    install("acme", {group: {"Npu": value}}, {"npu_rt.py": source})
    with pytest.raises(PluginLoadError) as caught:
        PluginRegistry.discover().load(group, "Npu")
    return str(caught.value)


# ---- names ---------------------------------------------------------------------------------------------


def test_a_plug_in_is_imported_when_it_is_used_and_made_once(install: Install, backend_source: str) -> None:
    install("acme", ENTRY, {"npu_rt.py": backend_source})
    registry = PluginRegistry.discover()
    assert "Npu" in registry.names("backends")
    assert "npu_rt" not in sys.modules
    backend = registry.load("delegraph.backends", "Npu")
    assert isinstance(backend, BackendInterface)
    assert registry.load("backends", "Npu") is backend


def test_an_unknown_name_says_what_is_close_and_what_is_there(install: Install) -> None:
    install("acme", ENTRY)
    with pytest.raises(PluginNotFound) as caught:
        PluginRegistry.discover().load("backends", "Npv")
    message = str(caught.value)
    assert "no installed distribution offers 'Npv' in delegraph.backends; did you mean 'Npu'?" in message
    assert re.search(r"installed: .*Npu", message)
    assert "install the distribution that offers this one" in message


def test_a_name_of_another_group_is_pointed_out(install: Install) -> None:
    install("acme", ENTRY)
    with pytest.raises(PluginNotFound, match=r"acme 1\.0 has that name in delegraph\.backends"):
        PluginRegistry.discover().load("partitioners", "Npu")


def test_an_empty_registry_says_so() -> None:
    with pytest.raises(PluginNotFound, match="installed: none"):
        PluginRegistry().load("backends", "Npu")


def test_a_group_that_does_not_exist() -> None:
    with pytest.raises(PluginNotFound, match="no entry-point group 'gadgets'"):
        PluginRegistry().names("gadgets")


# ---- two for one name ----------------------------------------------------------------------------------


def two(install: Install, backend_source: str) -> None:
    install("acme", ENTRY, {"npu_rt.py": backend_source})
    install("rival", {"backends": {"Npu": "rival_rt:Backend"}}, {"rival_rt.py": backend_source}, version="2.0")


def test_two_distributions_for_one_name_are_refused(install: Install, backend_source: str) -> None:
    two(install, backend_source)
    with pytest.raises(PluginConflict) as caught:
        PluginRegistry.discover().load("backends", "Npu")
    message = str(caught.value)
    assert "2 distributions offer backends:Npu: acme 1.0 (npu_rt:Backend" in message
    assert "rival 2.0 (rival_rt:Backend" in message
    assert 'prefer={"backends:Npu": "acme"}' in message
    assert "DELEGRAPH_PREFER=backends:Npu=acme" in message
    assert not {"npu_rt", "rival_rt"} & set(sys.modules)


def test_the_override_in_the_message_works(install: Install, backend_source: str) -> None:
    two(install, backend_source)
    chosen = PluginRegistry.discover(prefer={"backends:Npu": "acme"}, environ={}).load("backends", "Npu")
    assert type(chosen).__module__ == "npu_rt"
    environ = {"DELEGRAPH_PREFER": "backends:Npu=rival"}
    assert type(PluginRegistry.discover(environ=environ).load("backends", "Npu")).__module__ == "rival_rt"
    both = PluginRegistry.discover(prefer={"delegraph.backends:Npu": "acme"}, environ=environ)
    assert both.find("backends", "Npu").distribution == "acme"


def test_the_override_where_a_program_is_loaded(install: Install, backend_source: str) -> None:
    two(install, backend_source)
    with use_registry(PluginRegistry.discover()) as registry:
        runtime = Runtime(prefer={"backends:Npu": "rival"})
        assert type(runtime.backend_registry.get("Npu")).__module__ == "rival_rt"
        program = npu_program()
        with pytest.raises(PluginConflict, match="2 distributions offer backends:Npu"):
            load(program)
        module = load(program, prefer={"backends:Npu": "acme"})
        assert module(np.zeros(2, np.float32))[0].tolist() == [1, 1]
        assert type(registry.preferring({"backends:Npu": "acme"}).load("backends", "Npu")).__module__ == "npu_rt"
        assert type(runtime.backend_registry.get("Npu")).__module__ == "rival_rt"


def test_a_preference_for_what_is_not_there(install: Install, backend_source: str) -> None:
    two(install, backend_source)
    registry = PluginRegistry.discover()
    with pytest.raises(
        PluginNotFound, match=r"'acmee' is preferred for delegraph\.backends:Npu, but it is offered by acme"
    ):
        registry.preferring({"backends:Npu": "acmee"})


def test_registries_that_prefer_share_what_is_loaded(install: Install, backend_source: str) -> None:
    two(install, backend_source)
    registry = PluginRegistry.discover()
    first, second = registry.preferring({"backends:Npu": "acme"}), registry.preferring({"backends:Npu": "acme"})
    assert first.load("backends", "Npu") is second.load("backends", "Npu")


def test_the_override_never_names_the_broken_one(install: Install, backend_source: str) -> None:
    install("acme", {"backends": {"Npu": "no_such_module:Backend"}})
    install("rival", {"backends": {"Npu": "rival_rt:Backend"}}, {"rival_rt.py": backend_source}, version="2.0")
    with pytest.raises(PluginConflict) as caught:
        PluginRegistry.discover().load("backends", "Npu")
    assert 'prefer={"backends:Npu": "rival"} or DELEGRAPH_PREFER=backends:Npu=rival' in str(caught.value)
    assert "broken: there is no module no_such_module" in str(caught.value)


def test_options_for_a_name_whose_distribution_has_another_backend(install: Install, backend_source: str) -> None:
    install("acme", ENTRY, {"npu_rt.py": backend_source})
    install("rival", {"partitioners": {"vpu": "rival_aot:make"}, "backends": {"Vpu": "rival_rt:Backend"}})
    install("third", {"partitioners": {"asic": "third_aot:make"}})
    with use_registry(PluginRegistry.discover()):
        with pytest.raises(InvalidArgument) as caught:
            load(npu_program(), backend_options={"vpu": {}})
        assert str(caught.value) == "the program has no backend 'vpu' (that of rival: Vpu); its backends are Npu"
        with pytest.raises(InvalidArgument) as caught:
            load(npu_program(), backend_options={"asic": {}})
        assert str(caught.value) == "the program has no backend 'asic' (that of third: none); its backends are Npu"


def test_options_for_a_name_of_two_whose_backend_the_program_tells(install: Install, backend_source: str) -> None:
    options = {"backend_options": {"vpu": {"speed": 2}}}
    source = backend_source.replace("return", "context.runtime_specs['speed']; return")
    npu = {"partitioners": {"vpu": "acme_aot:make"}, **ENTRY}
    install("acme", npu, {"npu_rt.py": source})
    install("rival", {"partitioners": {"vpu": "rival_aot:make"}, "backends": {"Vpu": "rival_rt:Backend"}})
    with use_registry(PluginRegistry.discover()):
        load(npu_program(), **options)
    install("third", npu, version="3.0")
    with use_registry(PluginRegistry.discover()):
        load(npu_program(), prefer={"backends:Npu": "acme"}, **options)
        with pytest.raises(PluginConflict, match="2 distributions offer backends:Npu"):
            load(npu_program(), **options)


def test_a_program_is_sent_with_its_preferences(install: Install, backend_source: str) -> None:
    two(install, backend_source)
    data = serialize_program(npu_program())
    with use_registry(PluginRegistry.discover()) as registry:
        module = load(data, prefer={"backends:Npu": "acme"})
        sent = pickle.loads(pickle.dumps(module))
        assert sent(np.zeros(2, np.float32))[0].tolist() == [1, 1]
        assert sent.program.environment.backend_registry().plugins.find("backends", "Npu").distribution == "acme"
        pickle.loads(pickle.dumps(sent))
        own = load(data, prefer={"backends:Npu": "acme"}, plugins=registry)
    with pytest.raises(InvalidState, match="it has a plug-in registry of its own; load it there"):
        pickle.dumps(own)
    with use_registry(PluginRegistry()), pytest.raises(PluginNotFound, match="'acme' is preferred"):
        pickle.loads(pickle.dumps(module))


def npu_program() -> Program:
    """`Npu` on float32[2]."""
    tensors = [Tensor(ScalarType.FLOAT, (2,), (0,), allocation_info=AllocationDetails(1, at)) for at in (0, 16)]
    plan = ExecutionPlan(
        "forward",
        tuple(tensors),
        (0,),
        (1,),
        (Chain((DelegateCall(0, (0, 1)),)),),
        (),
        (BackendDelegate("Npu", 0),),
        (0, 32),
    )
    return Program((plan,), delegate_data=(b"blob",))


def test_disabling_one_of_two_settles_it(install: Install, backend_source: str) -> None:
    two(install, backend_source)
    registry = PluginRegistry.discover(environ={"DELEGRAPH_DISABLE_PLUGINS": "rival"})
    assert registry.find("backends", "Npu").distribution == "acme"


def test_copies_of_one_distribution_that_disagree(install: Install, backend_source: str) -> None:
    install("acme", ENTRY, {"npu_rt.py": backend_source}, where="site")
    old = install("acme", {"backends": {"Npu": "old_rt:Backend"}}, where="checkout", kind="egg-info", version="0.9")
    with pytest.raises(PluginConflict) as caught:
        PluginRegistry.discover().load("backends", "Npu")
    assert "acme is installed more than once, and its copies disagree on backends:Npu" in str(caught.value)
    assert str(old) in str(caught.value)
    assert "remove the stale metadata" in str(caught.value)


# ---- explicit ------------------------------------------------------------------------------------------


def test_what_is_registered_goes_before_what_is_installed(install: Install, backend_source: str) -> None:
    two(install, backend_source)
    registry = PluginRegistry.discover()
    mine = Sound()
    registry.register("backends", "Npu", mine)
    assert registry.load("backends", "Npu") is mine
    assert registry.find("backends", "Npu").distribution == "in-process"


def test_registering_again_is_harmless_but_another_is_refused() -> None:
    registry = PluginRegistry()
    registry.register("backends", "Npu", Sound)
    first = registry.load("backends", "Npu")
    registry.register("backends", "Npu", Sound)
    registry.register("backends", "Npu", first)
    assert registry.load("backends", "Npu") is first
    with pytest.raises(PluginConflict, match="backends:Npu is registered in this process already"):
        registry.register("backends", "Npu", Sound())


def test_what_is_registered_must_fit_too() -> None:
    with pytest.raises(PluginLoadError, match=r"of in-process 0 .*it has no lookup\(op, key\)"):
        PluginRegistry().register("kernels", "mine", object())
    assert PluginRegistry().names("kernels") == ()


def test_the_process_registry_can_be_replaced() -> None:
    before = default_registry()
    with use_registry(PluginRegistry()) as empty:
        assert default_registry() is empty
    assert default_registry() is before


# ---- broken ones ---------------------------------------------------------------------------------------


def test_a_module_that_raises(install: Install) -> None:
    message = load_error(install, "raise OSError('libnpu.so: cannot open')")
    assert message.startswith("cannot load plug-in backends:Npu of acme 1.0 (npu_rt:Backend): OSError: libnpu.so: ")
    assert "npu_rt.py:1)" in message
    assert "what to do: upgrade acme or report it to its authors; `delegraph plugins check backends:Npu`" in message
    assert "DELEGRAPH_DISABLE_PLUGINS=backends:Npu goes without it" in message


def test_a_broken_one_costs_nobody_else(install: Install, backend_source: str) -> None:
    install("broken", {"backends": {"Broken": "broken_rt:Backend"}}, {"broken_rt.py": "import sys; sys.exit('bye')"})
    install("acme", ENTRY, {"npu_rt.py": backend_source})
    registry = PluginRegistry.discover()
    with pytest.raises(PluginLoadError, match="SystemExit: bye"):
        registry.load("backends", "Broken")
    assert registry.load("backends", "Npu").is_available()


def test_all_of_a_group_that_load(install: Install, backend_source: str) -> None:
    install("acme", ENTRY, {"npu_rt.py": backend_source})
    install("broken", {"backends": {"Broken": "broken_rt:Backend"}}, {"broken_rt.py": "1 / 0"})
    registry = PluginRegistry.discover(environ={"DELEGRAPH_PLUGINS": "acme,broken"})
    loaded, (error,) = registry.load_all("backends")
    assert loaded == {"Npu": registry.load("backends", "Npu")}
    assert "ZeroDivisionError" in str(error)


def test_a_failure_is_the_same_each_time_and_keeps_its_cause(install: Install) -> None:
    install("acme", ENTRY, {"npu_rt.py": "raise KeyError('%s')"})
    registry = PluginRegistry.discover()
    for _ in range(2):
        with pytest.raises(PluginLoadError, match="KeyError: '%s'") as caught:
            registry.load("backends", "Npu")
        assert isinstance(caught.value.__cause__, KeyError)


def test_an_import_of_something_missing_is_not_taken_for_a_missing_plug_in(install: Install) -> None:
    message = load_error(install, "import no_such_driver")
    assert "install 'no_such_driver', which it needs (perhaps as an extra of acme)" in message


def test_metadata_that_outlived_its_module(install: Install) -> None:
    site = install("acme", {"backends": {"Npu": "gone.runtime:Backend"}})
    with pytest.raises(PluginLoadError) as caught:
        PluginRegistry.discover().load("backends", "Npu")
    assert f"its metadata in {site} is stale or its files are gone: reinstall acme" in str(caught.value)


def test_an_attribute_that_is_not_there(install: Install) -> None:
    assert "AttributeError: module 'npu_rt' has no attribute 'Backend'" in load_error(install, "x = 1")


@pytest.mark.parametrize("value", ["not a reference", ":Backend", "npu_rt:", "1npu:Backend", ""])
def test_a_malformed_value(install: Install, value: str) -> None:
    assert f"the entry point {value!r} is malformed" in load_error(install, "", value=value)


def test_obsolete_extras_in_a_value_are_ignored(install: Install, backend_source: str) -> None:
    install("acme", {"backends": {"Npu": "npu_rt:Backend [gpu]"}}, {"npu_rt.py": backend_source})
    assert PluginRegistry.discover().load("backends", "Npu")


def test_a_constructor_that_raises(install: Install, backend_source: str) -> None:
    source = backend_source + "\n    def __init__(self):\n        raise OSError('/dev/npu0: busy')\n"
    assert "Backend() raised OSError: /dev/npu0: busy" in load_error(install, source)


def test_a_factory_that_raises(install: Install) -> None:
    source = "def partitioner(options):\n    raise ValueError('no option x')\n"
    install("acme", {"partitioners": {"asic": "npu_aot:partitioner"}}, {"npu_aot.py": source})
    registry = PluginRegistry.discover()
    assert callable(registry.load("partitioners", "asic"))
    with pytest.raises(PluginLoadError) as caught:
        registry.create("partitioners", "asic", {"x": 1})
    assert "partitioners:asic of acme 1.0 (npu_aot:partitioner): its factory raised ValueError: no option x" in str(
        caught.value
    )
    assert "check the options {'x': 1}" in str(caught.value)
    with pytest.raises(PluginLoadError, match="report it to acme's authors"):
        registry.create("partitioners", "asic")


def test_a_factory_that_refuses_what_is_asked_for(install: Install) -> None:
    """In Delegraph's own errors, which are no fault of the plug-in's."""
    source = "from delegraph.errors import LoweringError\ndef quantizer(options):\n    raise LoweringError('no int3')\n"
    install("acme", {"quantizers": {"asic": "npu_aot:quantizer"}}, {"npu_aot.py": source})
    with pytest.raises(LoweringError, match=r"^acme: no int3"):
        PluginRegistry.discover().create("quantizers", "asic")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("exact", "no", "exact is 'no'; it is true or false"),
        ("exact", 1, "exact is 1; it is true or false"),
        ("threads", "two", "threads is 'two'; it is a whole number"),
        ("threads", True, "threads is True; it is a whole number"),
        ("share", "half", "share is 'half'; it is a number or None"),
        ("name", 3, "name is 3; it is a text"),
    ],
)
def test_an_option_of_another_type_than_the_factory_asks_for(option: str, value: object, said: str) -> None:
    def factory(*, exact: bool = False, threads: int = 1, share: float | None = None, name: str = "") -> object:
        return exact, threads, share, name

    for sound in ({"exact": True, "threads": 2}, {"share": 1}, {"share": 0.5}, {"share": None, "name": "3"}):
        make(factory, sound, "partitioner 'typed'")
    with pytest.raises(InvalidArgument, match=re.escape(f"partitioner 'typed': {said}")):
        make(factory, {option: value}, "partitioner 'typed'")


def test_a_factory_gets_the_options(install: Install) -> None:
    source = "def graph_pass(options):\n    return dict(options)\n"
    install("acme", {"passes": {"fuse": "npu_aot:graph_pass"}}, {"npu_aot.py": source})
    registry = PluginRegistry.discover()
    assert registry.create("passes", "fuse", {"x": 1}) == {"x": 1}
    assert registry.create("passes", "fuse") == {}


# ---- versions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needed", "offered", "says"),
    [
        ((1, 0), (1, 0), ""),
        ((1, 0), (1, 7), ""),
        ((1, 2), (1, 1), "needs plug-in API 1.2, and this Delegraph offers 1.1; upgrade Delegraph"),
        ((2, 0), (1, 9), "needs plug-in API 2.0, and this Delegraph offers 1.9; upgrade Delegraph"),
        ((1, 9), (2, 0), ""),  # what it uses that has gone is refused, not its age
    ],
)
def test_negotiation(needed: tuple[int, int], offered: tuple[int, int], says: str) -> None:
    message = mismatch(needed, offered)
    assert says in message
    assert bool(says) == bool(message)


@pytest.mark.parametrize("where", ["delegraph_api = (2, 0)\n", "    delegraph_api = (2, 0)\n"])
def test_another_api_in_the_module_or_the_class(install: Install, backend_source: str, where: str) -> None:
    source = where + backend_source if where[0] != " " else backend_source + where
    install("acme", ENTRY, {"npu_rt.py": source})
    with pytest.raises(
        PluginVersionError, match=r"it needs plug-in API 2\.0, and this Delegraph offers 1\.1\n.*upgrade"
    ):
        PluginRegistry.discover().load("backends", "Npu")


@pytest.mark.parametrize("api", ["'1.0'", "(1,)", "(1, '0')", "(1.0, 0)", "[1, 0]"])
def test_a_malformed_api(install: Install, backend_source: str, api: str) -> None:
    assert "it has to be a pair of ints such as (1, 0)" in load_error(
        install, f"delegraph_api = {api}\n{backend_source}"
    )


# ---- torch ---------------------------------------------------------------------------------------------


@pytest.fixture
def fake_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process in which torch is not loaded, and is quickly importable."""
    for name in [name for name in sys.modules if name == "torch" or name.startswith("torch.")]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "torch.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "fake"))


@pytest.mark.usefixtures("fake_torch")
@pytest.mark.parametrize("group", ["backends", "kernels"])
def test_a_runtime_half_that_imports_torch(install: Install, backend_source: str, group: str) -> None:
    kernels = "from delegraph.interfaces import KernelLibrary\nlibrary = KernelLibrary('acme')\n"
    source, attribute = {"backends": (backend_source, "Backend"), "kernels": (kernels, "library")}[group]
    modules = {"npu_rt.py": "import npu_helper\n" + source, "npu_helper.py": "\nimport torch\n"}
    install("acme", {group: {"Npu": f"npu_rt:{attribute}"}}, modules)
    registry = PluginRegistry.discover()
    for _ in range(2):  # the second time torch is there, and it is refused all the same
        with pytest.raises(PluginLoadError) as caught:
            registry.load(group, "Npu")
        assert re.search(
            r"brought torch into a process that runs without it: .+npu_helper\.py:2 imports it", str(caught.value)
        )
    assert not [finder for finder in sys.meta_path if "TorchWatch" in repr(finder)]


@pytest.mark.usefixtures("fake_torch")
def test_looking_whether_torch_is_there_is_no_leak(install: Install, backend_source: str) -> None:
    source = "from importlib.util import find_spec\nHAS_TORCH = find_spec('torch') is not None\n" + backend_source
    install("acme", ENTRY, {"npu_rt.py": source})
    assert PluginRegistry.discover().load("backends", "Npu")


@pytest.mark.usefixtures("fake_torch")
def test_an_aot_half_may_import_torch(install: Install) -> None:
    source = "import torch\ndef partitioner(options): ...\n"
    install("acme", {"partitioners": {"asic": "npu_aot:partitioner"}}, {"npu_aot.py": source})
    assert PluginRegistry.discover().load("partitioners", "asic")


@pytest.mark.usefixtures("fake_torch")
def test_another_thread_may_import_torch_meanwhile(install: Install, backend_source: str) -> None:
    source = "import threading\nt = threading.Thread(target=__import__, args=('torch',)); t.start(); t.join()\n"
    install("acme", ENTRY, {"npu_rt.py": source + backend_source})
    assert PluginRegistry.discover().load("backends", "Npu")


# ---- threads and re-entrance ---------------------------------------------------------------------------


def test_threads_share_one_instance(install: Install, backend_source: str) -> None:
    source = f"import time\n{backend_source}\n    made = []\n    def __init__(self):\n        time.sleep(0.05)\n"
    install("acme", ENTRY, {"npu_rt.py": source + "        self.made.append(self)\n"})
    registry, got = PluginRegistry.discover(), []
    threads = [threading.Thread(target=lambda: got.append(registry.load("backends", "Npu"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(got) == 8
    assert len(got[0].made) == 1
    assert set(map(id, got)) == {id(got[0])}


def test_a_plug_in_that_uses_the_registry_as_it_is_imported(install: Install, backend_source: str) -> None:
    """torch-spyre#2925: importing the host's registry from a plug-in must not go in circles."""
    source = (
        "from delegraph.plugins import default_registry\n"
        "other = default_registry().load('backends', 'Dsp')\n"
        "default_registry().notify('program_loaded', program=None)\n"
    )
    install("acme", ENTRY, {"npu_rt.py": source + backend_source})
    install("dsp", {"backends": {"Dsp": "dsp_rt:Backend"}}, {"dsp_rt.py": backend_source})
    with use_registry(PluginRegistry.discover()) as registry:
        assert registry.load("backends", "Npu").is_available()


def test_a_plug_in_that_asks_for_itself(install: Install, backend_source: str) -> None:
    source = "from delegraph.plugins import default_registry\ndefault_registry().load('backends', 'Npu')\n"
    install("acme", ENTRY, {"npu_rt.py": source + backend_source})
    with (
        use_registry(PluginRegistry.discover()) as registry,
        pytest.raises(PluginLoadError, match="it asks for itself while it is being loaded"),
    ):
        registry.load("backends", "Npu")


def test_a_thread_that_imports_a_plug_in_which_registers_itself_does_not_dead_lock(
    install: Install, backend_source: str
) -> None:
    source = (
        "import time\nfrom delegraph.plugins import default_registry\n"
        + backend_source
        + "\ntime.sleep(0.1)\ndefault_registry().register('backends', 'Also', Backend)\n"
    )
    install("acme", ENTRY, {"npu_rt.py": source})
    with use_registry(PluginRegistry.discover()) as registry:
        importing = threading.Thread(target=__import__, args=("npu_rt",))
        loading = threading.Thread(target=registry.load, args=("backends", "Npu"))
        importing.start()
        time.sleep(0.02)
        loading.start()
        importing.join(60)
        loading.join(60)
        assert not importing.is_alive()
        assert not loading.is_alive()
        assert registry.load("backends", "Also") is not registry.load("backends", "Npu")


def test_a_lazy_module_is_not_made_to_import_everything(install: Install) -> None:
    """pluggy#701: walking `dir(plugin)` runs a module's lazy `__getattr__` for all it has."""
    source = (
        "class Library:\n"
        "    def lookup(self, op, key): return None\n"
        "    def operator_names(self): return frozenset()\n"
        "    @property\n"
        "    def heavy(self): raise AssertionError('nobody asked')\n"
        "    def __dir__(self): raise AssertionError('nobody asked')\n"
        "library = Library()\n"
    )
    install("acme", {"kernels": {"lazy": "lazy_rt:library"}}, {"lazy_rt.py": source})
    assert PluginRegistry.discover().load("kernels", "lazy")


def test_a_kernel_library_is_an_object(install: Install) -> None:
    registry = PluginRegistry()
    library = KernelLibrary("mine")
    registry.register("kernels", "mine", library)
    assert registry.load("kernels", "mine") is library
    assert registry.names("kernels") == ("mine",)
