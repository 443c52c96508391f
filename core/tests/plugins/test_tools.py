"""Tools: wrappers are bound around a backend's hooks, observers hear of events, and none can break the others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from delegraph.errors import PluginLoadError
from delegraph.interfaces import BackendInterface
from delegraph.plugins import Offer, PluginRegistry, PluginWarning, hookimpl

Install = Callable[..., Path]


class Backend(BackendInterface):
    """Notes what it is called with."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        self.calls.append((context, processed, compile_specs))
        return "handle"

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        self.calls.append((context, handle, args))


class Profiler:
    """Wraps two hooks and watches one event."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @hookimpl(wrapper=True)
    def init(self, plugin: Offer, compile_specs: Any) -> Generator[None, Any, Any]:
        self.seen.append((plugin.id, compile_specs))
        return (yield) + "!"

    @hookimpl(wrapper=True)
    def preprocess(self) -> Generator[None, Any, Any]:
        return ["wrapped", (yield)]

    @hookimpl
    def lowering_stage_done(self, seconds: float, stage: str) -> None:
        self.seen.append((stage, seconds))


class Clumsy:
    """Raises at every event."""

    @hookimpl
    def lowering_stage_done(self) -> None:
        raise ZeroDivisionError("oh")


def registry_with(*tools: Any) -> PluginRegistry:
    registry = PluginRegistry()
    registry.register("backends", "Npu", Backend)
    for number, tool in enumerate(tools):
        registry.register("plugins", f"tool{number}", tool)
    return registry


def test_without_tools_the_plain_method_is_bound() -> None:
    registry = registry_with()
    backend = registry.load("backends", "Npu")
    assert registry.bound("backends", backend, "init") == backend.init
    assert not registry.is_wrapped("init")
    registry.notify("lowering_stage_done", stage="edge", method="forward", seconds=1.0)


def test_a_wrapper_surrounds_the_hook() -> None:
    profiler = Profiler()
    registry = registry_with(profiler)
    backend = registry.load("backends", "Npu")
    assert registry.bound("backends", backend, "init")("ctx", b"blob", ("spec",)) == "handle!"
    assert backend.calls == [("ctx", b"blob", ("spec",))]
    assert profiler.seen == [("backends:Npu", ("spec",))]


def test_what_no_tool_wraps_stays_plain() -> None:
    registry = registry_with(Profiler)
    backend = registry.load("backends", "Npu")
    assert registry.bound("backends", backend, "execute") == backend.execute
    assert registry.is_wrapped("init")
    assert not registry.is_wrapped("execute")


def test_a_lowering_class_is_wrapped_too() -> None:
    class Lowering:
        @staticmethod
        def preprocess(edge_program: Any, compile_specs: Any) -> Any:
            return edge_program, compile_specs

        @staticmethod
        def preprocess_multimethod(edge_programs: Any, compile_specs: Any) -> Any: ...

    registry = registry_with(Profiler)
    registry.register("lowerings", "Npu", Lowering)
    bound = registry.bound("lowerings", registry.load("lowerings", "Npu"), "preprocess")
    assert bound(1, 2) == ["wrapped", (1, 2)]


def test_parameters_of_other_names_are_passed_by_position() -> None:
    class Other(Backend):
        def init(self, ctx: Any, blob: Any, specs: Any) -> Any:
            return f"{ctx} {blob!r} {specs}"

    assert registry_with(Profiler).bound("backends", Other(), "init")("c", b"b", ()) == "c b'b' ()!"


def test_an_object_that_was_passed_in_can_be_wrapped() -> None:
    profiler = Profiler()
    assert registry_with(profiler).bound("backends", Backend(), "init")(None, b"", ()) == "handle!"
    assert profiler.seen == [("backends:Backend", ())]


def test_wrappers_nest_and_an_error_passes_through_them() -> None:
    class Broken(Backend):
        def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
            raise OSError("no device")

    first, second = Profiler(), Profiler()
    registry = registry_with(first, second)
    backend = registry.load("backends", "Npu")
    assert registry.bound("backends", backend, "init")(None, b"", ()) == "handle!!"
    with pytest.raises(OSError, match="no device"):
        registry.bound("backends", Broken(), "init")(None, b"", ())
    assert len(first.seen) == len(second.seen) == 2


def test_an_event_reaches_every_tool_though_one_raises() -> None:
    before, after = Profiler(), Profiler()
    registry = registry_with(before, Clumsy, after)
    with pytest.warns(PluginWarning, match=r"tool1 .*Clumsy\) raised at lowering_stage_done: ZeroDivisionError: oh"):
        registry.notify("lowering_stage_done", stage="edge", method="forward", seconds=1.5)
    assert before.seen == after.seen == [("edge", 1.5)]


def test_a_module_is_a_tool(install: Install) -> None:
    source = (
        "from delegraph.plugins import hookimpl\n"
        "heard = []\n@hookimpl\ndef method_loaded(method): heard.append(method)\n"
    )
    install("acme-trace", {"plugins": {"trace": "acme_trace"}}, {"acme_trace.py": source})
    PluginRegistry.discover().notify("method_loaded", method="forward")
    assert sys.modules["acme_trace"].heard == ["forward"]


def test_a_broken_tool_is_reported_and_all_else_goes_on(install: Install, backend_source: str) -> None:
    install("bad-tool", {"plugins": {"bad": "bad_tool"}}, {"bad_tool.py": "1 / 0"})
    install("acme", {"backends": {"Npu": "npu_rt:Backend"}}, {"npu_rt.py": backend_source})
    registry = PluginRegistry.discover()
    backend = registry.load("backends", "Npu")
    with pytest.warns(
        PluginWarning, match=r"going on without a tool: cannot load plug-in plugins:bad of bad-tool 1\.0"
    ):
        bound = registry.bound("backends", backend, "init")
    assert bound == backend.init
    registry.notify("program_loaded", program=None)  # told once


def test_a_tool_that_uses_the_registry_as_it_is_imported(install: Install) -> None:
    source = (
        "from delegraph.plugins import default_registry, hookimpl\n"
        "default_registry().notify('program_loaded', program=None)\n"
        "heard = []\n@hookimpl\ndef program_loaded(program): heard.append(program)\n"
    )
    install("acme-trace", {"plugins": {"trace": "acme_trace"}}, {"acme_trace.py": source})
    from delegraph.plugins import use_registry

    with use_registry(PluginRegistry.discover()) as registry:
        registry.notify("program_loaded", program="p")
    assert sys.modules["acme_trace"].heard == ["p"]


# ---- tools that do not fit -----------------------------------------------------------------------------


def refusal(**members: Any) -> str:
    with pytest.raises(PluginLoadError) as caught:
        PluginRegistry().register("plugins", "tool", type("Tool", (), members))
    return str(caught.value)


def test_a_misspelt_event() -> None:
    message = refusal(metod_loaded=hookimpl(lambda self, method: None))
    assert "it implements metod_loaded(), which is not a hook; did you mean 'method_loaded'" in message


def test_a_parameter_that_the_hook_does_not_have() -> None:
    message = refusal(method_loaded=hookimpl(lambda self, module: None))
    assert "its signature is method_loaded(module); it has to be some of method_loaded(method)" in message


def test_a_plain_function_for_what_may_only_be_wrapped() -> None:
    assert "init(), which may only be wrapped: @hookimpl(wrapper=True)" in refusal(init=hookimpl(lambda self: None))


def test_a_wrapper_that_never_yields() -> None:
    assert "its wrapper init() never yields" in refusal(init=hookimpl(lambda self: None, wrapper=True))


def test_a_wrapper_around_an_event() -> None:
    def program_loaded(self: Any) -> Generator[None, Any, Any]:
        return (yield)

    message = refusal(program_loaded=hookimpl(program_loaded, wrapper=True))
    assert "it implements program_loaded(), which is an event: nothing to wrap" in message


def test_a_tool_without_marks() -> None:
    assert "it marks no function with @delegraph.plugins.hookimpl" in refusal(method_loaded=lambda self, method: None)


# ---- what it costs -------------------------------------------------------------------------------------


def test_pluggy_is_loaded_only_where_a_tool_is(install: Install, backend_source: str) -> None:
    site = install("acme", {"backends": {"Npu": "npu_rt:Backend"}}, {"npu_rt.py": backend_source})
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from delegraph.plugins import PluginRegistry\n"
        "r = PluginRegistry.discover(); b = r.load('backends', 'Npu'); r.bound('backends', b, 'init')\n"
        "r.notify('program_loaded', program=None)\n"
        "print([m for m in ('pluggy', 'torch', 'rich', 'importlib.metadata') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(site)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stderr
