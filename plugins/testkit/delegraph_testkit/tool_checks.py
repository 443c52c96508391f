"""Tools where programs run: results and errors are those that they are without the tool, and its cost is told."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

import pluggy

import delegraph
from delegraph.interfaces import WRAPPABLE, ToolHooks
from delegraph.plugins import default_registry
from delegraph_testkit.bench import Bench, Stored
from delegraph_testkit.opaque import kernel_order
from delegraph_testkit.running import Loaded, load, run
from delegraph_testkit.tool_registries import Refused, assert_same_error, assert_without_a_warning, no_tool, the_tool
from delegraph_testkit.whole_keeper import WHOLE_KEEPER, WholeKeeper

__all__ = [
    "cost_is_told",
    "errors_are_passed_on",
    "hooks_are_marked",
    "loading_is_watched_without_a_warning",
    "results_are_the_same",
]

_ROUNDS: Final = 5
_RUNS: Final = 100


def hooks_are_marked(bench: Bench) -> str:
    """Every function that is called as a hook is marked with `@hookimpl`; those that are, the report tells."""
    tool = default_registry().load("plugins", bench.subject.name)
    manager = pluggy.PluginManager("delegraph")
    events = [name for name in vars(ToolHooks) if not name.startswith("_")]
    functions = [name for name in (*WRAPPABLE, *events) if callable(getattr(tool, name, None))]
    marked = [name for name in functions if manager.parse_hookimpl_opts(tool, name) is not None]
    unmarked = [name for name in functions if name not in marked]
    assert not unmarked, f"nobody calls {', '.join(unmarked)}: mark it with @delegraph.plugins.hookimpl, or rename it"
    wrapped, watched = ([name for name in marked if (name in WRAPPABLE) is wraps] for wraps in (True, False))
    return f"it wraps {', '.join(wrapped) or 'nothing'}, and watches {', '.join(watched) or 'nothing'}"


def results_are_the_same(bench: Bench, stored: Stored) -> None:
    """Every call gives the same bytes with the tool as without it, traced or not."""
    with no_tool():
        expected = run(stored)
    for options in ({}, {"event_tracer": delegraph.EventTracer()}):
        with the_tool(bench):
            actual = run(stored, **options)
        for number, (first, second) in enumerate(zip(expected, actual, strict=True)):
            same = [a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True)]
            assert all(same), f"{stored.name}: call {number} gives other results where the tool is on"


def errors_are_passed_on(bench: Bench, stored: Stored) -> None:
    """Where a backend raises, in `init` or `execute`, its error comes through."""
    for hook in ("init", "execute"):

        def attempt(hook: str = hook) -> None:
            call = stored.calls[0]
            backends = {WHOLE_KEEPER: _Refusing(hook)}
            module = delegraph.load(stored.file, method=call.method, backends=backends, kernels=kernel_order())
            module[call.method].method.execute(call.inputs)

        assert_same_error(bench, f"{stored.name}: a backend whose {hook}() raises", attempt)


class _Refusing(WholeKeeper):
    """Raises in one of its hooks."""

    def __init__(self, hook: str) -> None:
        self._hook = hook

    def init(self, *args: Any) -> Any:
        self._refuse("init")
        return super().init(*args)

    def execute(self, *args: Any) -> None:
        self._refuse("execute")
        super().execute(*args)

    def _refuse(self, hook: str) -> None:
        if hook == self._hook:
            raise Refused(f"{hook} is refused")


def loading_is_watched_without_a_warning(bench: Bench, stored: Stored) -> None:
    """Programs load and run with the tool, and it raises at no event."""
    assert_without_a_warning(bench, lambda: run(stored))


def cost_is_told(bench: Bench, stored: Stored) -> str:
    """The time that the tool adds to a run, in the report; no time is a fault."""
    with no_tool():
        without = load(stored)
    with the_tool(bench):
        beside = load(stored)
    times = [(_seconds(without, stored), _seconds(beside, stored)) for _ in range(_ROUNDS)]
    before, after = map(min, zip(*times, strict=True))
    return f"{stored.name} runs in {1e6 * before:.1f} us without the tool and in {1e6 * after:.1f} us with it"


def _seconds(loaded: Loaded, stored: Stored) -> float:
    """Those of a run, on average."""
    start = perf_counter()
    for _ in range(_RUNS):
        loaded(stored.calls[0])
    return (perf_counter() - start) / _RUNS
