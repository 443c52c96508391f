"""Plug-ins for an older plug-in API go on working, and are told which parts of it will go: as the loader, doctor and
`plugins list` tell it."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from core.tests.plugins.command_line import run

from delegraph.errors import PluginLoadError, PluginVersionError
from delegraph.lazy import DeprecatedName, lazy_names
from delegraph.plugins import PLUGIN_API, PluginDeprecationWarning, PluginRegistry, deprecations, doctor, loader
from delegraph.plugins import check as checking
from delegraph.plugins.check import CheckResult
from delegraph.plugins.deprecations import Deprecation
from delegraph.plugins.hookspecs import GROUPS, Form, PluginGroup
from delegraph.plugins.versions import declared_api

Install = Callable[..., Path]
ENTRY = {"backends": {"Npu": "npu_rt:Backend"}}
RELEASE = Deprecation("backends", "release", "destroy", since=(1, 3), goes=(2, 0))


class Interface(ABC):
    """Backends as they might look one day: `init` is called `open`, and `execute` has parameters to leave out."""

    @abstractmethod
    def open(self, context: Any, processed: Any, compile_specs: Any) -> Any: ...

    @abstractmethod
    def execute(self, context: Any, handle: Any, args: Any, stream: Any = None, priority: int = 0) -> Any: ...

    def warm_up(self, handle: Any) -> str:
        return f"warm {handle}"


Interface.__module__ = "delegraph.interfaces.backend"  # what a class of the host's defines is not the author's own
FUTURE = PluginGroup("delegraph.backends", "backend", "BackendInterface", Form.INSTANCE, True, base="Interface")
FUTURE.__dict__["interface"] = Interface


@pytest.fixture
def deprecated(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`deprecated(row, …)`: the table, for this test."""

    def put(*rows: Deprecation) -> None:
        monkeypatch.setattr(deprecations, "DEPRECATIONS", rows)

    return put


@pytest.fixture
def future(monkeypatch: pytest.MonkeyPatch, deprecated: Callable[..., None]) -> None:
    """A host whose backends are as `Interface` has them."""
    monkeypatch.setattr(loader, "group_named", lambda name: FUTURE)
    deprecated(Deprecation("backends", "init", "open", since=(1, 3), goes=(2, 0)))


def registered(plugin: Any) -> Any:
    registry = PluginRegistry()
    registry.register("backends", "Old", plugin)
    return registry.load("backends", "Old")


def heard(action: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [f"{warning.category.__name__}: {warning.message}" for warning in caught]


class Old:
    """Written when `init` was called so and `execute` took no more."""

    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        return processed

    def execute(self, context: Any, handle: Any, args: Any) -> Any:
        return context, handle, args


class OldHeir(Interface):
    """The same, by somebody who derives from the interface: a class that nothing could be made of as it is."""

    init = Old.init
    execute = Old.execute  # type: ignore[assignment]


class OldWithPriority(Old):
    """Takes one of the two parameters that may be left out, the second one."""

    def execute(self, context: Any, handle: Any, args: Any, priority: int) -> Any:  # type: ignore[override]
        return args, priority


# ---- what the loader does ------------------------------------------------------------------------------


@pytest.mark.usefixtures("future")
@pytest.mark.parametrize("kind", [Old, OldHeir])
def test_what_an_older_plug_in_lacks_is_given_to_it(kind: type) -> None:
    with pytest.warns(PluginDeprecationWarning, match=r"init\(\) is deprecated: use open; it goes in plug-in API 2\.0"):
        plugin = registered(type("Copy", (kind,), {}))
    assert plugin.open("context", b"blob", ()) == b"blob"
    assert plugin.execute("context", "handle", ["x"], "stream", 3) == ("context", "handle", ["x"])
    assert plugin.warm_up("handle") == "warm handle"


@pytest.mark.usefixtures("future")
def test_an_optional_parameter_is_found_by_its_name() -> None:
    with pytest.warns(PluginDeprecationWarning):
        plugin = registered(OldWithPriority())
    assert plugin.execute("context", "handle", ["x"], "stream", 3) == (["x"], 3)


@pytest.mark.usefixtures("future")
def test_a_required_parameter_may_not_be_left_out() -> None:
    class Short(Old):
        def execute(self, context: Any, handle: Any) -> Any: ...  # type: ignore[override]

    with (
        pytest.warns(PluginDeprecationWarning),
        pytest.raises(PluginLoadError, match=r"its signature is \(?execute\(context, handle\); it has to be execute"),
    ):
        registered(Short())


@pytest.mark.usefixtures("future")
def test_what_cannot_be_given_a_hook_says_so() -> None:
    class Closed:
        __slots__ = ()
        open = Old.init
        execute = Interface.execute

    with pytest.raises(
        PluginLoadError, match=r"cannot be given what it lacks of delegraph\.backends: .*\n.* derive from Interface"
    ):
        registered(Closed())


def test_a_function_that_leaves_a_parameter_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Planner:
        def __call__(self, lifetimes: Any, alignment: int, device: Any = None, /) -> Any: ...

    group = replace(GROUPS["delegraph.memory_planners"])
    group.__dict__["interface"] = Planner
    monkeypatch.setattr(loader, "group_named", lambda name: group)
    registry = PluginRegistry()
    registry.register("memory_planners", "old", lambda lifetimes, alignment: (lifetimes, alignment))
    assert registry.load("memory_planners", "old")([1], 16, "npu:0") == ([1], 16)


def test_a_parameter_that_is_deprecated(deprecated: Callable[..., None]) -> None:
    row = Deprecation("backends", "execute", "context.platform", since=(1, 1), goes=(2, 0), parameter="args")
    deprecated(row)

    class Plain(Old):
        destroy = cancel = lambda self, *anything: None

    told = heard(lambda: registered(Plain()))
    assert told == [
        "PluginDeprecationWarning: backends:Old of in-process 0: the parameter 'args' of execute() is deprecated:"
        " use context.platform; it goes in plug-in API 2.0"
    ]
    assert str(row) == (
        "the parameter 'args' of execute() is deprecated since plug-in API 1.1, and goes in 2.0: use context.platform"
    )


def test_the_line_of_the_author_is_named(deprecated: Callable[..., None], install: Install) -> None:
    deprecated(RELEASE)
    site = install("acme", ENTRY, {"npu_rt.py": WITH_RELEASE})
    with pytest.warns(PluginDeprecationWarning) as caught:
        plugin = PluginRegistry.discover().load("backends", "Npu")
    (warning,) = caught
    assert str(warning.message) == (
        "backends:Npu of acme 1.0: release() is deprecated: use destroy; it goes in plug-in API 2.0"
    )
    assert (warning.filename, warning.lineno) == (str(site / "npu_rt.py"), 11)
    plugin.destroy("handle")
    assert plugin.released == ["handle"]


def test_one_that_has_both_names_keeps_both(deprecated: Callable[..., None], install: Install) -> None:
    """So does who supports hosts of both kinds."""
    deprecated(RELEASE)
    source = f"{WITH_RELEASE}\n    def destroy(self, handle):\n        self.released.append('destroyed')\n"
    install("acme", ENTRY, {"npu_rt.py": source})
    with pytest.warns(PluginDeprecationWarning):
        plugin = PluginRegistry.discover().load("backends", "Npu")
    plugin.destroy("handle")
    assert plugin.released == ["destroyed"]


def test_what_has_gone_is_refused(deprecated: Callable[..., None], install: Install) -> None:
    deprecated(replace(RELEASE, since=(0, 1), goes=PLUGIN_API))
    install("acme", ENTRY, {"npu_rt.py": WITH_RELEASE})
    with pytest.raises(
        PluginVersionError, match=r"release\(\) went in plug-in API 1\.1: it is destroy now\n.* upgrade acme"
    ):
        PluginRegistry.discover().load("backends", "Npu")


def test_the_product_of_a_factory_is_looked_at_too(deprecated: Callable[..., None]) -> None:
    deprecated(Deprecation("partitioners", "tag", "partition", since=(1, 1), goes=(2, 0)))

    class Tags:
        def tag(self, exported_program: Any) -> str:
            return "tagged"

    registry = PluginRegistry()
    registry.register("partitioners", "old", lambda options: Tags())
    with pytest.warns(PluginDeprecationWarning, match=r"tag\(\) is deprecated: use partition"):
        partitioner = registry.create("partitioners", "old")
    assert partitioner.partition("program") == "tagged"
    assert partitioner.ops_to_not_decompose("program") == ([], None)


def test_a_public_name_that_has_another_now() -> None:
    get, listed = lazy_names(
        "delegraph.plugins",
        {"delegraph.plugins.versions": ("PLUGIN_API",)},
        {"API_VERSION": DeprecatedName("PLUGIN_API", "2.0")},
    )
    with pytest.warns(PluginDeprecationWarning) as caught:
        assert get("API_VERSION") == PLUGIN_API
    assert str(caught[0].message) == (
        "delegraph.plugins.API_VERSION is deprecated: use delegraph.plugins.PLUGIN_API; it goes in plug-in API 2.0"
    )
    assert caught[0].filename == __file__
    assert listed() == ["PLUGIN_API"]


def test_a_name_that_a_plug_in_imports(monkeypatch: pytest.MonkeyPatch, install: Install, backend_source: str) -> None:
    """The warning names the distribution in whose import the old name is used."""
    import delegraph.plugins

    get, _ = lazy_names(
        "delegraph.plugins",
        {"delegraph.plugins.versions": ("PLUGIN_API",)},
        {"API": DeprecatedName("PLUGIN_API", "2.0")},
    )
    monkeypatch.setattr(delegraph.plugins, "__getattr__", get)
    install("acme", ENTRY, {"npu_rt.py": f"from delegraph.plugins import API\n{backend_source}"})
    with pytest.warns(
        PluginDeprecationWarning, match=r"^backends:Npu of acme 1\.0: delegraph\.plugins\.API is deprecated"
    ):
        PluginRegistry.discover().load("backends", "Npu")


def test_without_a_declaration_the_first_api_is_meant() -> None:
    assert declared_api(object()) == (1, 0) <= PLUGIN_API


# ---- what the command line tells -----------------------------------------------------------------------

WITH_RELEASE = """
class Backend:
    released = []

    def init(self, context, processed, compile_specs):
        return bytes(processed)

    def execute(self, context, handle, args):
        args[-1][...] = 1

    def release(self, handle):
        self.released.append(handle)
"""


@pytest.fixture
def only_acme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGRAPH_PLUGINS", "acme")
    monkeypatch.setenv("DELEGRAPH_DISABLE_PLUGINS", "delegraph")


def check_here(offers: Any, limit: float, questions: Any) -> Sequence[CheckResult]:
    """As `check`, in this process, whose table of deprecations is the test's."""
    return [checking._result(offer, checking._answer(offer, questions)) for offer in offers]


@pytest.mark.usefixtures("only_acme")
def test_the_doctor_tells(
    deprecated: Callable[..., None],
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    deprecated(RELEASE)
    monkeypatch.setattr(doctor, "check", check_here)
    install("acme", ENTRY, {"npu_rt.py": WITH_RELEASE})
    run("doctor")
    assert (
        "note: backends:Npu of acme 1.0 (npu_rt:Backend)\n"
        "  release() is deprecated: use destroy; it goes in plug-in API 2.0\n"
        "  what to do: nothing yet; its authors follow, and then: pip install --upgrade acme\n"
    ) in capsys.readouterr().out


@pytest.mark.usefixtures("only_acme")
def test_the_list_tells_without_an_import(
    deprecated: Callable[..., None], install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    deprecated(RELEASE)
    install("acme", ENTRY, {"npu_rt.py": f"raise RuntimeError('it was imported')\n{WITH_RELEASE}"})
    assert run("list") == 0
    assert (
        "backends:Npu: release() is deprecated since plug-in API 1.3, and goes in 2.0: use destroy,"
        " says acme 1.0's source"
    ) in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.usefixtures("only_acme")
def test_the_list_tells_of_parameters_of_functions(
    deprecated: Callable[..., None], install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    deprecated(Deprecation("data_loaders", "__call__", "url.headers", (1, 1), (2, 0), parameter="headers"))
    install("acme", {"data_loaders": {"acme": "acme_rt:load"}}, {"acme_rt.py": "def load(url, *, headers=None): ..."})
    run("list")
    assert "acme: the parameter 'headers' of its call is deprecated" in capsys.readouterr().out


@pytest.mark.usefixtures("only_acme")
def test_the_list_shows_an_api_that_is_too_new(
    install: Install, backend_source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    install("acme", ENTRY, {"npu_rt.py": f"delegraph_api = (1, 9)\n{backend_source}"})
    assert run("list") == 1
    out = capsys.readouterr().out
    assert "│ 1.9 │" in out
    assert "backends:Npu: it needs plug-in API 1.9, and this Delegraph offers 1.1; upgrade Delegraph" in out
